"""Payloads of every kind, as JSON objects and as Hypothesis strategies, for the protocol tests."""

from datetime import date
from typing import Any

from hypothesis import strategies as st

from mail.core.protocol.message import MAILMessage

KINDS = ("request", "response", "broadcast", "interrupt", "broadcast_complete")
PLURAL = frozenset({"broadcast", "interrupt", "broadcast_complete"})
ID_FIELDS = {
    "request": "request_id",
    "response": "request_id",
    "broadcast": "broadcast_id",
    "interrupt": "interrupt_id",
    "broadcast_complete": "broadcast_id",
}
OPTIONAL_FIELDS = {
    kind: ("sender_swarm", "recipient_swarms" if kind in PLURAL else "recipient_swarm", "routing_info")
    for kind in KINDS
}

UUID = "3f2b8c1e-8f4d-4a58-9a77-0d6b1f2c3e4a"
MOMENT = "2026-03-02T09:15:00.120000+00:00"


def address(text: str) -> dict[str, str]:
    """`agent:weather` as an address."""
    kind, _, name = text.partition(":")
    return {"address_type": kind, "address": name}


def payload(kind: str, **changes: Any) -> dict[str, Any]:
    """A payload of that kind without its optional fields; `changes` add or replace fields."""
    recipients = (
        {"recipients": [address("agent:weather")]}
        if kind in PLURAL
        else {"recipient": address("agent:weather")}
    )
    return {
        "task_id": "task-1",
        ID_FIELDS[kind]: "id-1",
        "sender": address("agent:supervisor"),
        **recipients,
        "subject": "Weather",
        "body": "Is it raining?",
        **changes,
    }


def envelope(kind: str, **changes: Any) -> dict[str, Any]:
    """A message of that kind around `payload`."""
    return {
        "id": UUID,
        "timestamp": MOMENT,
        "msg_type": kind,
        "message": payload(kind, **changes),
    }


def message(kind: str, **changes: Any) -> MAILMessage:
    """The same, validated."""
    return MAILMessage.model_validate(envelope(kind, **changes))


texts = st.text(st.characters(codec="utf-8"))
"""Anything that UTF-8 can hold, characters that XML can't hold among them."""

addresses = st.builds(
    lambda kind, name: {"address_type": kind, "address": name},
    st.sampled_from(["admin", "agent", "user", "system"]),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
)


@st.composite
def envelopes(draw: st.DrawFn) -> dict[str, Any]:
    """Valid messages of every kind, with awkward texts."""
    kind = draw(st.sampled_from(KINDS))
    changes: dict[str, Any] = {"sender": draw(addresses), "subject": draw(texts), "body": draw(texts)}
    if kind in PLURAL:
        changes["recipients"] = draw(st.lists(addresses, min_size=1, max_size=4))
    else:
        changes["recipient"] = draw(addresses)
    return envelope(kind, **changes) | {"timestamp": draw(timestamps())}


@st.composite
def timestamps(draw: st.DrawFn) -> str:
    """RFC 3339 moments with any offset and any number of digits behind the second."""
    day = draw(st.dates(date(2, 1, 1), date(9998, 12, 31)))
    clock = draw(st.times()).isoformat("seconds")
    digits = draw(st.text("0123456789", max_size=9))
    hours, minutes = draw(st.integers(0, 23)), draw(st.integers(0, 59))
    offset = draw(st.sampled_from(["Z", f"+{hours:02}:{minutes:02}", f"-{hours:02}:{minutes:02}"]))
    return f"{day}T{clock}" + (f".{digits}" if digits else "") + offset
