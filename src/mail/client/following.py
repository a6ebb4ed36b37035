"""What was sent, where it stands in the record of its task, and what comes of it."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Self
from uuid import uuid4

from mail.client.errors import ConnectionLost
from mail.client.stream import PING, TERMINAL, EventStream

JSONObject = dict[str, Any]

PEOPLE = frozenset({"user", "admin"})
"""Whose messages come from outside, by the type of their address."""

IDEMPOTENCY_KEY = "Idempotency-Key"

CLOCK_TOLERANCE = timedelta(seconds=1)
"""How far the clocks of one server's machines may be apart."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A message on its way.

    Attributes:
        path: the endpoint it is sent to.
        body: that of the request.
        is_new: whether it begins a task that nobody has used before.
        headers: what the request says besides.
        at: when it was sent, by the clock of `time.monotonic`.
    """

    path: str
    body: Mapping[str, Any]
    is_new: bool
    headers: Mapping[str, str] = field(default_factory=dict)
    at: float = field(default_factory=time.monotonic)

    @property
    def task_id(self) -> str | None:
        """The task; None where only the server knows it."""
        return self.body.get("task_id")

    def under(self, key: str | None, generation: int | None) -> Self:
        """The same, under an idempotency key, or only where the task is at a generation.

        With a key it is the server that chooses a new task's id: the same each time.
        """
        headers = {IDEMPOTENCY_KEY: key} if key is not None else {}
        if generation is not None:
            headers["If-Match"] = f'"{generation}"'
        if key is None or not self.is_new:
            return replace(self, headers=headers)
        body = {name: value for name, value in self.body.items() if name != "task_id"}
        return replace(self, headers=headers, body=body, is_new=False)

    @property
    def may_be_repeated(self) -> bool:
        """Whether the server accepts it once, however often it is sent."""
        return IDEMPOTENCY_KEY in self.headers

    @property
    def how_to_look(self) -> str:
        """How people and programs find out what has become of it."""
        if self.task_id is None:
            return "get_tasks shows whether it has arrived"
        return (
            f"get_task({self.task_id!r}) and watch_task({self.task_id!r}) show whether it has arrived, "
            "as do mail task show and mail task watch"
        )

    def sent_by_clock_of(self, date: str | None) -> datetime:
        """When it was sent, at the latest, by the clock of a server that has just written this `Date` header."""
        try:
            now = _aware(parsedate_to_datetime(date or ""))
        except ValueError:
            now = datetime.now(UTC)
        return now - timedelta(seconds=time.monotonic() - self.at) - CLOCK_TOLERANCE

    def find(self, record: Mapping[str, Any], since: datetime) -> int | None:
        """Its place among the events of a task's record; None where it isn't there.

        The protocol has no mark to tell it by: it is what a person has written in the same words, at the earliest at
        `since`.
        """
        for place, event in enumerate(record["events"]):
            data = json.loads(event["data"])
            if self._is_about(event["event"], data):
                happened = _aware(datetime.fromisoformat(data["timestamp"]))
                if happened >= since:
                    return place
        return None

    def _is_about(self, kind: str, data: Mapping[str, Any]) -> bool:
        if self.body.get("resume_from") == "breakpoint_tool_call":
            return kind == "breakpoint_action_complete"
        message = (data.get("extra_data") or {}).get("full_message", {}).get("message")
        return (
            message is not None
            and message["sender"]["address_type"] in PEOPLE
            and message["body"] == self.body["body"]
        )


@dataclass(frozen=True, slots=True)
class Followed:
    """What a task was followed to.

    Attributes:
        response: the answer.
        events: what has happened, as answers to messages tell it; the last one holds the answer.
    """

    response: str
    events: list[JSONObject]

    def message(self, swarm: str) -> JSONObject:
        """The answer as the message that it came in.

        No event holds the one by which a swarm says that a task has failed or waits; it is written anew.
        """
        *before, end = self.events
        data = end["data"]
        last = before[-1]["data"].get("extra_data", {}).get("full_message") if before else None
        if last is not None and last["message"]["body"] == self.response:
            return dict(last)
        has_failed = end["event"] == "task_error"
        payload = {
            "task_id": data["task_id"],
            "broadcast_id": str(uuid4()),
            "sender": {"address_type": "system", "address": swarm},
            "sender_swarm": None,
            "recipients": [{"address_type": "agent", "address": "all"}],
            "recipient_swarms": None,
            "subject": "::task_error::" if has_failed else "::breakpoint_tool_call::",
            "body": self.response,
            "routing_info": None,
        }
        return {
            "id": str(uuid4()),
            "timestamp": data["timestamp"],
            "msg_type": "broadcast_complete",
            "message": payload,
        }


def _aware(when: datetime) -> datetime:
    """A time without an offset is read as UTC."""
    return when if when.tzinfo else when.replace(tzinfo=UTC)


async def follow(stream: EventStream) -> Followed:
    """Read a stream to its end. Raises ConnectionLost where it has no answer, or BadAnswer."""
    answer: str | None = None
    events: list[JSONObject] = []
    end = 0
    async with stream:
        async for event in stream:
            if event.event == PING:
                continue
            data = json.loads(event.data or "{}")
            events.append(
                {"event": event.event, "id": event.id, "data": data, "retry": event.retry, "comment": None}
            )
            if event.event in TERMINAL:
                answer, end = data["response"], len(events)
    if answer is None:
        raise ConnectionLost(f"the task {stream.task_id!r} has stopped without an answer to this message")
    return Followed(answer, events[:end])
