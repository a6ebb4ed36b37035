"""What becomes of a task of MAIL 1.3.6."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from support.engines.mail_1_3_6 import (
    BEGAN,
    answered,
    event,
    message,
    sent,
    tool_call,
    tool_result,
    user_turn,
)

from mail.core.decisions.imports import INTERRUPTED, OldTask, import_task
from mail.core.decisions.receive import may_reach, receive
from mail.core.decisions.submit import ResumeFrom, Submission, admit
from mail.core.protocol.address import Principal
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.interswarm import Peer
from mail.core.task.task import TaskStatus
from mail.core.task.turn_state import Breakpoint, PausedCall
from mail.errors import BadRequest, Subject
from mail.factories.history import read_history, to_chat
from mail.testing.agents import build_swarm, complete, turns
from mail.testing.clock import FakeClock

ANN = Principal(role="user", id="ann", swarm="example")
SWARM = build_swarm({"supervisor": turns([complete()]), "weather": turns([complete()])})
CALL = json.dumps([{"arguments": '{"n": 1}', "name": "ask_human", "id": "ask-1"}])
ASKED = Breakpoint(
    agent="supervisor",
    tool_format="completions",
    calls=(PausedCall(call_id="ask-1", name="ask_human", arguments={"n": 1}),),
)
CLOCK = FakeClock()


def history(agent: str, *entries: dict[str, Any], tool_format: str = "completions") -> dict[str, Any]:
    return {"agent_name": agent, "tool_format": tool_format, "history": [*entries]}


def old(*events: tuple[str | None, str], **fields: Any) -> OldTask:
    rows = [{"event_type": kind, "event_data": data, "created_at": BEGAN} for kind, data in events]
    given = {
        "swarm_name": "example", "caller_role": "user", "caller_id": "ann", "task_id": "t",
        "task_owner": "user:ann@example", "task_contributors": ["user:ann@example"], "remote_swarms": [],
        "is_running": False, "completed": True, "start_time": BEGAN, "histories": [], "events": rows,
        "response": None,
    }  # fmt: skip
    return OldTask.model_validate({**given, **fields})


def imported(*events: tuple[str | None, str], entrypoint: str = "", **fields: Any) -> TaskChange:
    return import_task(old(*events, **fields), entrypoint, CLOCK)


def kinds(change: TaskChange) -> list[EventKind]:
    return [each.kind for each in change.events]


ENDED = event("t", "task_complete", "five", 9)
FAILED = event("t", "task_error", "no model", 9)
PAUSED = event("t", "breakpoint_tool_call", "agent supervisor used breakpoint tools ask_human", 1)
RESULT = event("t", "breakpoint_action_complete", "breakpoint action complete", 5)
QUESTION = answered("t", CALL, "::breakpoint_tool_call::")


class TestOutcome:
    @pytest.mark.parametrize(
        ("events", "fields", "status", "answer"),
        [
            ((ENDED,), {"response": answered("t", "five")}, TaskStatus.COMPLETED, "five"),
            ((), {"response": answered("t", "five")}, TaskStatus.COMPLETED, "five"),
            ((ENDED,), {}, TaskStatus.COMPLETED, "five"),
            ((), {}, TaskStatus.COMPLETED, ""),
            ((FAILED,), {}, TaskStatus.FAILED, "no model"),
            ((), {"completed": False}, TaskStatus.FAILED, INTERRUPTED),
            ((ENDED,), {"is_running": True, "completed": False}, TaskStatus.FAILED, INTERRUPTED),
            ((PAUSED,), {"response": QUESTION}, TaskStatus.PAUSED, CALL),
            ((), {"response": QUESTION}, TaskStatus.PAUSED, CALL),
            ((PAUSED, event("t", "task_complete", CALL, 2)), {}, TaskStatus.PAUSED, CALL),
            ((PAUSED,), {"response": QUESTION, "is_running": True}, TaskStatus.PAUSED, CALL),
            ((PAUSED, RESULT), {"response": QUESTION, "is_running": True}, TaskStatus.FAILED, INTERRUPTED),
        ],
    )
    def test_each(
        self, events: tuple[tuple[str, str], ...], fields: dict[str, Any], status: TaskStatus, answer: str
    ) -> None:
        change = imported(*events, **fields)
        assert change.task.status is status
        assert change.response is not None
        assert change.response.message.body == answer
        assert (change.events[-1].text, change.events[-1].is_terminal) == (answer, True)
        assert (
            change.ended == change.task.generation.number == sum(each.is_terminal for each in change.events)
        )
        assert change.task.generation.breakpoint == (ASKED if status is TaskStatus.PAUSED else None)
        resumed = admit(
            change.task, SWARM, ANN, Submission(body="on", resume_from=ResumeFrom.USER_RESPONSE), CLOCK
        )
        assert resumed.task.is_running
        assert resumed.task.pending.keys() == {"supervisor"}

    def test_a_result_in_a_history_is_an_answer(self) -> None:
        entries = (tool_call("ask-1", "ask_human", n=1), tool_result("ask-1", "yes"))
        change = imported(
            PAUSED, response=QUESTION, is_running=True, histories=[history("supervisor", *entries)]
        )
        assert change.task.status is TaskStatus.FAILED

    def test_the_agent_that_asked_is_found_in_the_histories(self) -> None:
        histories = [history("supervisor"), history("weather", tool_call("ask-1", "ask_human", n=1))]
        change = imported(PAUSED, response=QUESTION, histories=histories)
        assert change.task.generation.waiting_calls == ASKED.calls
        assert change.task.generation.breakpoint is not None
        assert change.task.generation.breakpoint.agent == "weather"

    @pytest.mark.parametrize("tool_format", ["completions", "responses"])
    def test_calls_that_a_history_lacks_are_added(self, tool_format: str) -> None:
        histories = [history("supervisor", user_turn("user:ann", "S", "x"), tool_format=tool_format)]
        change = imported(PAUSED, response=QUESTION, histories=histories)
        given = Submission(resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL, breakpoint_tool_call_result="yes")
        resumed = admit(change.task, SWARM, ANN, given, CLOCK)
        entries = [entry for each in (*change.histories, *resumed.histories) for entry in each.entries]
        *_, call, result = to_chat(read_history(entries), claude=False)
        assert call["tool_calls"][0]["id"] == result["tool_call_id"] == "ask-1"
        assert result["content"] == "yes"

    def test_an_unreadable_answer_is_refused(self) -> None:
        with pytest.raises(BadRequest, match="its response is not a message"):
            imported(response={"body": "five"})
        assert imported(ENDED, response={"body": "five"}).task.status is TaskStatus.COMPLETED


class TestTimeline:
    def test_repetitions_and_pings_are_left_out_and_order_is_that_of_time(self) -> None:
        first = sent(message("t", "request", "user:ann", "supervisor", "S", "x"), 0)
        later = event("t", "action_call", "agent weather executing", 3)
        ping = ("ping", json.dumps({"timestamp": BEGAN.isoformat(), "task_id": "t"}))
        change = imported(later, first, ping, first, ENDED, later)
        assert kinds(change) == [
            EventKind.IMPORTED, EventKind.NEW_MESSAGE, EventKind.ACTION_CALL, EventKind.TASK_COMPLETE
        ]  # fmt: skip
        assert [each.seq for each in change.events] == [1, 2, 3, 4]

    def test_unknown_kinds_are_kept(self) -> None:
        change = imported(event("t", "custom", "look", 1, {"n": 1}), (None, "plain text"), ENDED)
        facts = {
            (each.text, each.extra.as_json().get("event"))
            for each in change.events
            if each.kind is EventKind.IMPORTED
        }
        assert {("look", "custom"), ("plain text", "")} < facts
        assert change.events[2].extra.as_json() == {"n": 1, "event": "custom"}

    def test_times_without_a_zone_are_in_utc(self) -> None:
        data = json.dumps({"timestamp": "2025-11-03T09:31:00", "description": "x"})
        change = imported(("action_call", data), start_time=datetime(2025, 11, 3, 9, 30))  # noqa: DTZ001
        assert change.events[1].timestamp == "2025-11-03T09:31:00+00:00"
        assert change.task.started == datetime(2025, 11, 3, 9, 30, tzinfo=UTC).isoformat()

    def test_a_message_that_is_not_valid_stays_as_text(self) -> None:
        change = imported(event("t", "new_message", "words", 1, {"full_message": {"id": "m1"}}))
        assert (change.events[1].text, change.events[1].message) == ("words", None)

    def test_each_history_has_an_event(self) -> None:
        histories = [history("supervisor", {"role": "user", "content": "x"}), history("weather")]
        change = imported(histories=histories)
        assert kinds(change)[:2] == [EventKind.IMPORTED, EventKind.HISTORY_INHERITED]
        assert [(each.agent, each.n) for each in change.histories] == [("supervisor", 1)]


class TestEntrypoint:
    def test_it_is_the_agent_that_was_written_to(self) -> None:
        asked = sent(message("t", "request", "user:ann", "weather", "S", "x"), 0)
        assert imported(asked, entrypoint="supervisor").task.entrypoint == "weather"

    def test_or_that_of_the_swarm_or_the_first_one(self) -> None:
        histories = [history("chief", {"role": "user", "content": "x"})]
        to_all = sent(message("t", "broadcast", "user:ann", "all", "S", "x"), 0)
        assert imported(to_all, histories=histories, entrypoint="supervisor").task.entrypoint == "supervisor"
        assert imported(histories=histories).task.entrypoint == "chief"
        assert imported().task.entrypoint == "supervisor"


class TestOtherSwarms:
    def test_a_peer_keeps_the_agent_that_was_written_to(self) -> None:
        asked = sent(message("t", "request", "supervisor", "clerk@beta", "Q", "x"), 1)
        change = imported(asked, remote_swarms=["beta", "gamma"], task_contributors=["swarm:example@beta"])
        assert change.task.peers == {
            "beta": Peer(agent="clerk", has_task=True),
            "gamma": Peer(agent="all", has_task=True),
        }
        assert change.task.contributors == ("user:ann@example", "swarm:example@beta")

    def test_the_swarm_that_sent_the_task_can_continue_it(self) -> None:
        contributors = ["user:ann@alpha", "swarm:alpha@beta", "swarm:beta@example", "swarm:example@gamma"]
        task = imported(
            ENDED,
            caller_role="agent",
            caller_id="beta",
            task_owner=contributors[0],
            task_contributors=contributors,
        ).task
        assert (task.instance, task.parent_swarm, task.contributors) == (
            "swarm:beta@example",
            "beta",
            (*contributors,),
        )
        wrapper = MAILInterswarmMessage.model_validate(
            {
                "message_id": "0b5c1d8e-5f5b-4f5a-9a39-0d6f4f6f2a11", "source_swarm": "beta", "target_swarm": "example",
                "timestamp": BEGAN.isoformat(), "msg_type": "request", "auth_token": "", "metadata": {},
                "payload": message("t", "request", "clerk@beta", "supervisor", "Q", "more")["message"],
                "task_owner": contributors[0], "task_contributors": contributors,
            }
        )  # fmt: skip
        assert may_reach(task, SWARM, wrapper, caller_id="beta", is_known=True)
        change = receive(Draft(task, SWARM, CLOCK), wrapper)
        assert change is not None
        assert change.task.is_running
        assert [each.mailbox for each in change.deliveries] == ["supervisor"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"caller_id": "ann@example.org"}, "is not a caller"),
        ({"task_owner": "nobody"}, "is not a caller"),
        ({"task_contributors": ["nobody"]}, "is not a caller"),
    ],
)
def test_callers_that_cannot_exist_here_are_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        imported(**fields)


def test_the_subject_of_a_stopped_task_says_so() -> None:
    change = imported(is_running=True)
    assert change.response is not None
    assert change.response.message.subject == Subject.TASK_ERROR
