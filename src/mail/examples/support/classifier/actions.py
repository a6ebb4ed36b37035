"""A classification of tickets by their words."""

from typing import Annotated, Any

from pydantic import Field

from mail.api.actions import action
from mail.examples.texts import signs_in

CATEGORIES = {
    "billing": "bill charge invoice pay payment price refund money card twice",
    "shipping": "arrive carrier delivery late lost parcel package shipping tracking",
    "returns": "broken damaged defective exchange return wrong",
    "account": "account address email login password profile sign username",
    "technical": "app bug crash error fails page website loading",
}
PRIORITIES = {
    "urgent": "emergency fraud hacked immediately lawyer stolen urgent",
    "high": "angry asap broken charge complaint crash lost today twice unacceptable worst",
    "low": "curious feedback idea suggestion thanks wondering",
}


@action(read_only=True)
def classify_ticket(text: Annotated[str, Field(min_length=1, max_length=20_000)]) -> dict[str, Any]:
    """Classify a customer's message. Returns JSON: category, priority, and the words of each that were found.

    Args:
        text: the message, in the customer's words.
    """
    categories = {name: signs_in(text, signs) for name, signs in CATEGORIES.items()}
    category = max(categories, key=lambda name: len(categories[name]))
    priorities = {name: signs_in(text, signs) for name, signs in PRIORITIES.items()}
    priority = next((name for name, found in priorities.items() if found), "normal")
    return {
        "category": category if categories[category] else "general",
        "priority": priority,
        "category_words": categories[category],
        "priority_words": priorities.get(priority, []),
    }
