"""Live events: what running turns do, and what late calls report, for those who watch a task.

They are not part of its record and never stored.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Self

from pydantic_core import from_json, to_json

from mail.core.protocol.values import value
from mail.core.task.callbacks import LaterCall


class LiveKind(StrEnum):
    """Every kind of live event (SPEC, section 9)."""

    TURN_STARTED = "turn_started"
    TURN_ENDED = "turn_ended"
    MODEL_CALL_STARTED = "model_call_started"
    MODEL_CALL_WAITS = "model_call_waits"
    MODEL_CALL_RETRIED = "model_call_retried"
    MODEL_CALL_ENDED = "model_call_ended"
    ACTION_STARTED = "action_started"
    ACTION_RETRIED = "action_retried"
    ACTION_REPORTED = "action_reported"
    ACTION_ENDED = "action_ended"
    ACTION_PROGRESS = "action_progress"
    TEXT_DELTA = "text_delta"


@value
class LiveEvent:
    """One step of a running turn, or how far a call has come that finishes later.

    Attributes:
        turn: the token of the turn's lease; for a call, what tells it from others.
        n: counts the events of the turn; for a call, grows. The same event may arrive twice.
        timestamp: in ISO 8601.
        text: the description.
        extra: further facts, always with `agent`.
    """

    kind: LiveKind
    turn: str
    n: int
    timestamp: str
    text: str
    extra: dict[str, Any]

    @classmethod
    def of_call(cls, call: LaterCall) -> Self:
        """Return the event that says how far a call that waits has come."""
        text = f"agent {call.agent} waits for {call.name}" + (f": {call.progress}" if call.progress else "")
        heard = datetime.fromtimestamp(call.heard, UTC).isoformat(timespec="milliseconds")
        return cls(
            LiveKind.ACTION_PROGRESS, call.digest, round(call.heard * 1000), heard, text, call.as_json()
        )

    @property
    def is_of_turn(self) -> bool:
        """Whether it is a step of a turn."""
        return self.kind is not LiveKind.ACTION_PROGRESS

    @property
    def agent(self) -> str:
        """The agent whose turn, or call, it is."""
        return str(self.extra["agent"])

    @property
    def delta(self) -> str:
        """The piece of a model's reply that a `text_delta` reports; empty for other kinds."""
        return str(self.extra["delta"]) if self.kind is LiveKind.TEXT_DELTA else ""

    @property
    def is_answer(self) -> bool:
        """Whether `delta` belongs to the task's answer: to `task_complete`, or to text for the user."""
        if self.kind is not LiveKind.TEXT_DELTA:
            return False
        return self.extra["kind"] == "answer" or self.extra.get("to") == "user"

    @property
    def encoded(self) -> bytes:
        """The event as processes send it to each other: a JSON list of its fields."""
        return to_json(
            (self.kind.value, self.turn, self.n, self.timestamp, self.text, self.extra), inf_nan_mode="null"
        )

    @classmethod
    def decode(cls, fields: list[Any]) -> Self:
        """Return the event of such a list. Raises ValueError if it is none, or of a newer version."""
        kind, *rest = fields
        return cls(LiveKind(kind), *rest)

    @classmethod
    def decode_all(cls, text: bytes | str) -> list[Self]:
        """Return the events of a JSON list of such lists."""
        return [cls.decode(fields) for fields in from_json(text)]

    def data(self, task_id: str) -> dict[str, Any]:
        """Return the event as the JSON object that clients receive: the shape of ordinary events."""
        return {
            "timestamp": self.timestamp,
            "description": self.text,
            "task_id": task_id,
            "extra_data": self.extra,
        }
