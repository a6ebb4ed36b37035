"""A sentiment by the words of a text, and escalations."""

from hashlib import sha256
from typing import Annotated, Any, Literal

from pydantic import Field

from mail.api.actions import action
from mail.examples.texts import sentences_of, signs_in

POSITIVE = (
    "amazing excellent fast friendly glad good great happy helpful love nice perfect pleased thanks wonderful"
)
NEGATIVE = """angry annoyed awful bad broken disappointed frustrated furious hate horrible late lost ridiculous slow
terrible unacceptable unhappy upset useless waste worst wrong"""
NEGATIONS = {"no", "not", "never", "hardly"}

ANSWER_HOURS = {"high": 8, "urgent": 1}


@action(read_only=True)
def analyze_sentiment(text: Annotated[str, Field(min_length=1, max_length=20_000)]) -> dict[str, Any]:
    """Judge how a customer feels. Returns JSON: sentiment, score from -1 to 1, and the words that decide it.

    Args:
        text: the message, in the customer's words.
    """
    positive, negative = list[str](), list[str]()
    for sentence in sentences_of(text):
        is_negated = not NEGATIONS.isdisjoint(sentence.lower().replace("n't", " not").split())
        (negative if is_negated else positive).extend(signs_in(sentence, POSITIVE))
        negative += signs_in(sentence, NEGATIVE)
    total = len(positive) + len(negative)
    score = round((len(positive) - len(negative)) / total, 2) if total else 0.0
    sentiment = (
        "neutral" if not total else "positive" if score > 0.2 else "negative" if score < -0.2 else "mixed"
    )
    return {"sentiment": sentiment, "score": score, "positive_words": positive, "negative_words": negative}


@action(idempotent=True)
def create_escalation(
    ticket_id: Annotated[str, Field(min_length=1, max_length=100)],
    reason: Annotated[str, Field(min_length=1, max_length=2000)],
    priority: Literal["high", "urgent"],
) -> dict[str, Any]:
    """Create the escalation of a ticket to a person. Returns JSON: the escalation, with its id; one per ticket.

    Args:
        ticket_id: the id of the ticket.
        reason: why a person must look at it.
        priority: how soon.
    """
    return {
        "escalation_id": f"ESC-{sha256(ticket_id.encode(errors='replace')).hexdigest()[:8].upper()}",
        "ticket_id": ticket_id,
        "reason": reason,
        "priority": priority,
        "answer_within_hours": ANSWER_HOURS[priority],
    }
