"""The questions that the shop's customers ask, and its orders, which are made up: one number always has the same status."""

import json
import re
from hashlib import sha256

from pydantic import BaseModel, Field

from mail.api.actions import action

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
