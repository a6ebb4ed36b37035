"""A search in the shop's answers to common questions."""

from typing import Annotated

from pydantic import Field

from mail.api.actions import action
from mail.examples.texts import similarity

FAQ = {
    "How long does delivery or shipping take?": "Two to four working days, and one more to islands.",
    "What does delivery or shipping cost?": "4.90 €; nothing for orders from 50 €.",
    "Where is my order?": "Your account shows where the parcel is, from the moment it leaves us.",
    "Can I return or exchange what I have bought?": "Within 30 days, unused. The label for the parcel is in your "
    "account.",
    "When do I get my money back, the refund?": "Within five working days after the parcel has arrived.",
    "How can I pay?": "By card, by bank transfer, or on invoice for customers with two earlier orders.",
    "Can I change my address?": "In your account, until the order has been handed over to the carrier.",
    "How do I reset my password?": "Choose 'Forgot password' at the login; the link that we send works for an hour.",
}


@action(read_only=True)
def search_faq(
    query: Annotated[str, Field(min_length=1, max_length=500)],
    max_results: Annotated[int, Field(ge=1, le=10)] = 3,
) -> dict[str, dict[str, str]]:
    """Find common questions like this one. Returns JSON: answers, by question, the likeliest first.

    Args:
        query: the customer's question.
        max_results: how many answers to return at most.
    """
    fits = {question: similarity(query, f"{question} {answer}") for question, answer in FAQ.items()}
    ranked = sorted((question for question in fits if fits[question]), key=lambda each: -fits[each])
    return {"answers": {question: FAQ[question] for question in ranked[:max_results]}}
