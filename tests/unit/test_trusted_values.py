"""Values that are made without a check are those that a check would let through, field by field."""

import json
import pickle
from dataclasses import fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from mail.core.protocol.address import create_agent_address, create_user_address
from mail.core.protocol.mail_tools import (
    MAILTool,
    SendBroadcast,
    SendInterrupt,
    SendInterswarmBroadcast,
    SendRequest,
    SendResponse,
    TaskComplete,
    write_message,
)
from mail.core.protocol.message import MAILBroadcast, MAILMessage, MAILRequest, MAILResponse
from mail.core.task.draft import Draft
from mail.core.task.idempotency import Remembered
from mail.core.task.stored import read_task
from mail.core.task.task import Task
from mail.core.task.turn_state import Breakpoint, Resumption
from mail.testing.agents import build_swarm
from mail.testing.clock import FakeClock

TASKS = Path(__file__).parent.parent / "fixtures" / "tasks.json"

VALUES: dict[str, Any] = {
    "task_id": "task-1",
    "sender": create_user_address("ann"),
    "subject": "Wëather",
    "body": "12 °C & rain",
    "request_id": "r-1",
    "broadcast_id": "b-1",
    "recipient": create_agent_address("analyst"),
    "recipients": (create_agent_address("analyst"), create_agent_address("all")),
}
REQUEST = MAILRequest(
    **{name: VALUES[name] for name in ("task_id", "sender", "subject", "body", "request_id", "recipient")}
)
ENVELOPE: dict[str, Any] = {
    "timestamp": "2026-01-31T08:00:00+00:00",
    "msg_type": "request",
    "message": REQUEST,
}
ID = "5b1c8a0e-64e1-4a6c-9a5e-0d8d9ef5c111"


def assert_same(trusted: BaseModel, checked: BaseModel) -> None:
    """Compare all that pydantic keeps of a model, and what it makes of that."""
    assert type(trusted) is type(checked)
    assert list(vars(trusted).items()) == list(vars(checked).items())
    assert list(vars(trusted)) == list(type(trusted).model_fields)
    assert trusted.model_extra is checked.model_extra is None
    assert trusted.__pydantic_private__ is checked.__pydantic_private__ is None
    assert trusted == checked
    assert repr(trusted) == repr(checked)
    assert trusted.model_dump() == checked.model_dump()
    assert trusted.model_dump_json() == checked.model_dump_json()
    assert type(trusted).model_validate_json(trusted.model_dump_json()) == trusted
    assert pickle.loads(pickle.dumps(trusted)) == trusted
    assert trusted.model_copy() == trusted
    with pytest.raises(ValueError, match="frozen"):
        trusted.subject = "another"  # type: ignore[attr-defined]


@pytest.mark.parametrize("shape", [MAILRequest, MAILResponse, MAILBroadcast])
def test_a_payload(shape: Any) -> None:
    given = {name: VALUES[name] for name in signature(shape.trusted).parameters}
    assert_same(shape.trusted(**given), shape(**given))


def test_a_message() -> None:
    trusted, checked = MAILMessage.trusted(message_id=ID, **ENVELOPE), MAILMessage(id=ID, **ENVELOPE)
    assert_same(trusted, checked)
    assert hash(trusted.sender) == hash(checked.sender)


@pytest.mark.parametrize("field", ["subject", "body"])
@pytest.mark.parametrize("shape", [MAILRequest, MAILResponse, MAILBroadcast])
def test_text_that_utf_8_cannot_encode_is_refused(shape: Any, field: str) -> None:
    given = {name: VALUES[name] for name in signature(shape.trusted).parameters}
    with pytest.raises(ValueError, match="surrogates not allowed"):
        shape.trusted(**{**given, field: "half a character: \ud800"})


@pytest.mark.parametrize("routing_info", [None, {"bead": "b-1"}])
@pytest.mark.parametrize(
    "tool",
    [
        SendRequest(target="analyst", subject="s", body="b"),
        SendResponse(target="analyst@beta", subject="s", body="b"),
        SendInterrupt(target="analyst", subject="s", body="b"),
        SendBroadcast(subject="s", body="b"),
        SendInterswarmBroadcast(subject="s", body="b", target_swarms=["beta"]),
        SendInterswarmBroadcast(subject="s", body="b"),
        TaskComplete(finish_message="done"),
    ],
    ids=repr,
)
def test_what_a_tool_sends(tool: MAILTool, routing_info: dict[str, Any] | None) -> None:
    clock = FakeClock()
    sent = write_message(
        tool, "supervisor", "task-1", clock, clock.now().isoformat(), routing_info=routing_info
    )
    assert_same(sent, MAILMessage.model_validate(sent.model_dump()))
    assert_same(sent.message, type(sent.message).model_validate(sent.message.model_dump()))
    assert sent.message.routing_info == routing_info


def test_the_routing_info_of_a_form_is_checked() -> None:
    clock = FakeClock()
    tool = SendRequest(target="analyst", subject="s", body="b")
    wrong: Any = {1: "a key that is no text"}
    with pytest.raises(ValueError, match="routing_info"):
        write_message(tool, "supervisor", "t", clock, clock.now().isoformat(), routing_info=wrong)


def test_a_commit_keeps_every_field_that_its_decision_leaves_alone() -> None:
    """The draft names each field of a task; one that it forgot would get its default back."""
    stored = max(json.loads(TASKS.read_text()), key=len)  # the one with every field
    full = replace(
        read_task(json.dumps(stored)),
        histories={"supervisor": 2},
        submitted=(Remembered(key="k", digest="d", until=9e9, generation=1, after=0, seq=1),),
        stored_bytes=7,
        history_bytes=5,
        resumptions=(Resumption(seq=1, agent="supervisor", portions=1),),
        approved_calls=(Breakpoint(agent="supervisor", tool_format="completions", calls=()),),
    )
    names = {field.name for field in fields(Task) if field.init}
    blank = Task(
        instance="", task_id="", status=full.status, owner="", contributors=(), entrypoint="", started="",
        limits=full.limits,
    )  # fmt: skip
    same = {name for name in names if getattr(full, name) == getattr(blank, name)}
    # `queued` follows from the pending mail at each commit
    assert same <= {"status", "limits", "queued"}, "every other field needs a value of its own here"
    sealed = Draft(full, build_swarm({"supervisor": lambda _: []}), FakeClock()).seal().task
    stored = full.stored_bytes + len("[]")  # the list of its events
    assert sealed == replace(full, updated=sealed.updated, version=full.version + 1, stored_bytes=stored)
    assert sealed.key == full.key
