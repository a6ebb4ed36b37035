"""A help desk of a shop: a coordinator and two agents, one for common questions and one for orders, with a model.

It is the swarm `support` of the package's swarms.json. The shop is made up.
"""

import json
import re
from hashlib import sha256

from pydantic import BaseModel, Field

from mail.api.actions import action

COORDINATOR_PROMPT = """\
You lead the help desk of a shop.

Send each part of a customer's message with send_request to the agent that knows best: questions about delivery, returns
and payment to faq, everything about one order to orders. Send all requests in one turn, then call await_message. When all
answers are there, call task_complete with one friendly reply to the customer, who sees nothing else. Promise nothing that
no agent has confirmed."""

FAQ_PROMPT = """\
You answer common questions of a shop's customers for other agents.

Call search_faq with the question, and once more in other words if nothing fits. Then answer the agent that asked with
send_response, in the words of what you have found. If nothing fits, say that the shop has no rule for it."""

ORDERS_PROMPT = """\
You look up orders of a shop for other agents.

Call look_up_order with the number of the order. Then answer the agent that asked with send_response: the order's status, and
when it arrives or arrived. If the number is missing or unknown, ask for it in your response."""

FAQ = {
    "How long does delivery take?": "Two to four working days, and one more to islands.",
    "What does delivery cost?": "4.90 €; nothing for orders from 50 €.",
    "Can I return what I have bought?": "Within 30 days, unused. The label for the parcel is in your account.",
    "When do I get my money back?": "Within five working days after the parcel has arrived.",
    "How can I pay?": "By card, by bank transfer, or on invoice for customers with two earlier orders.",
    "Can I change my address?": "In your account, until the order has been handed over to the carrier.",
}

STATUSES = ("being packed", "on its way", "delivered", "returned")

ORDER = r"^[A-Z]{2}-\d{4,8}$"
"""The form of an order's number."""


class Question(BaseModel):
    """The arguments of `search_faq`."""

    question: str = Field(min_length=1, max_length=500, description="The customer's question.")


class Order(BaseModel):
    """The arguments of `look_up_order`."""

    order: str = Field(pattern=ORDER, description="The number of the order, such as AB-12345.")


@action(idempotent=True)
async def search_faq(wanted: Question) -> str:
    """Find common questions like this one. Returns JSON: answers, by question, the likeliest first."""
    words = _words(wanted.question)
    ranked = sorted(FAQ, key=lambda question: len(words & _words(question + FAQ[question])), reverse=True)
    found = {question: FAQ[question] for question in ranked if words & _words(question + FAQ[question])}
    return json.dumps({"answers": dict(list(found.items())[:3])}, ensure_ascii=False)


@action(idempotent=True)
async def look_up_order(wanted: Order) -> str:
    """Look up an order. Returns JSON: order, status, and days until it arrives, negative for days since then."""
    luck = sha256(wanted.order.encode()).digest()
    status = STATUSES[luck[0] % len(STATUSES)]
    days = 1 + luck[1] % 4
    arrives = days if status in STATUSES[:2] else -days
    return json.dumps({"order": wanted.order, "status": status, "arrives_in_days": arrives})


def _words(text: str) -> set[str]:
    """Return the words that say what a text is about."""
    return {word for word in re.findall(r"\w+", text.lower()) if len(word) > 3}
