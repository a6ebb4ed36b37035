"""A task's events as spans: turns, model calls, actions and waits."""

from datetime import datetime, timedelta
from typing import Any

from mail.core.decisions.conversation import Conversation
from mail.core.decisions.items import Item, fold
from mail.core.protocol.address import MAILAddress, create_agent_address
from mail.core.protocol.clock import SystemClock
from mail.core.protocol.compose import compose_message
from mail.core.task.costs import Usage
from mail.core.task.events import Event, EventKind, read_extra

ZERO = datetime.fromisoformat("2026-01-01T00:00:00+00:00")
USAGE: dict[str, Any] = {"calls": 1, "input_tokens": 10, "output_tokens": 2, "cost": 0.1}
KIND = EventKind

Fact = tuple[EventKind, dict[str, Any]]


def iso(ms: float) -> str:
    return (ZERO + timedelta(milliseconds=ms)).isoformat()


def ms(item: Any) -> float:
    return (datetime.fromisoformat(item.time) - ZERO) / timedelta(milliseconds=1)


def read(*commits: tuple[float, list[Fact]]) -> list[Any]:
    """Return the items of commits, each a time in milliseconds and its events."""
    reader, items, seq = Conversation(), [], 0
    for at, facts in commits:
        for kind, extra in facts:
            seq += 1
            about = dict(extra)
            message, text = about.pop("message", None), about.pop("text", "")
            reader = reader.copy()
            items += reader.read(Event(seq, kind, iso(at), text, read_extra(kind, about), message))
    return fold(items)


def of(items: list[Item], *kinds: str) -> list[Any]:
    return [item for item in items if item.kind in kinds]


def mail(sender: str, to: str, kind: Any = "request", request: str = "r") -> Fact:
    message = compose_message(
        kind,
        task_id="t",
        sender=MAILAddress(address_type="user", address="ann")
        if sender == "ann"
        else create_agent_address(sender),
        recipients=[create_agent_address(to)],
        subject="S",
        body="B",
        clock=SystemClock(),
        request_id=request,
    )
    return KIND.NEW_MESSAGE, {"message": message}


def call(agent: str, tool: str, **about: Any) -> Fact:
    return KIND.TOOL_CALL, {"agent": agent, "tool_name": tool, "tool_args": {}, "tool_call_id": "c"} | about


def timing(began: float, seconds: float, **more: Any) -> dict[str, Any]:
    return {"began": iso(began), "seconds": seconds, **more}


def test_turns_model_calls_actions_and_waits() -> None:
    """ann asks boss, boss asks digger, digger runs an action and answers, boss completes the task."""
    model = {"model": "gpt", "after": 0.1, "seconds": 0.8, "attempts": 2}
    asks = call(
        "boss",
        "send_request",
        tool_args={"target": "digger"},
        usage=USAGE,
        timing=timing(10, 0.9, model_calls=[model]),
    )
    items = read(
        (0, [mail("ann", "boss")]),
        (1_000, [asks, (KIND.AWAIT_MESSAGE, {"agent": "boss"}), mail("boss", "digger", request="r2")]),
        (
            3_000,
            [
                call("digger", "dig", timing=timing(1_500, 1.4)),
                (KIND.ACTION_CALL, {"agent": "digger", "after": 0.2}),
                (KIND.ACTION_ERROR, {"agent": "digger", "seconds": 1.0, "text": "error:\nbroken"}),
            ],
        ),
        (3_100, [call("digger", "send_response"), mail("digger", "boss", "response", "r2")]),
        (4_000, [call("boss", "task_complete", timing=timing(3_200, 0.7)), (KIND.TASK_COMPLETE, {})]),
    )
    turns = of(items, "turn")
    assert [(turn.agent, turn.did, turn.seq, turn.last, ms(turn), turn.seconds) for turn in turns] == [
        ("boss", "asks digger", 2, 4, 10, 0.9),
        ("digger", "calls dig", 5, 7, 1_500, 1.4),
        ("digger", "answers ", 8, 9, 2_900, 0.2),
        ("boss", "completes the task", 10, 11, 3_200, 0.7),
    ]
    assert [(turn.state, turn.cause, turn.is_timed) for turn in turns] == [
        ("ok", 1, True),
        ("failed", 4, True),
        ("ok", None, False),
        ("ok", 9, True),
    ]
    assert (turns[0].queued, turns[0].usage) == (iso(0), Usage(**USAGE))
    [model_call], [action], [wait] = of(items, "model_call"), of(items, "action"), of(items, "wait")
    assert (model_call.turn, ms(model_call), model_call.seconds, model_call.attempts) == (
        turns[0].id,
        110,
        0.8,
        2,
    )
    assert model_call.usage == Usage(**USAGE)
    assert (action.turn, ms(action), action.seconds, action.seq, action.version) == (
        turns[1].id,
        1_700,
        1.0,
        6,
        7,
    )
    assert (wait.agent, wait.names, ms(wait), wait.seconds) == ("boss", ("digger",), 1_000, 2.2)


def test_times_agree_with_each_other_though_the_record_rounds_them_and_leaves_some_out() -> None:
    items = read(
        (0, [mail("ann", "boss")]),
        (20, [call("boss", "await_message"), mail("boss", "digger"), mail("boss", "digger", request="r3")]),
        (
            50,
            [
                call("digger", "dig", timing=timing(40, 0.002)),
                (KIND.ACTION_CALL, {"agent": "digger", "after": 0.002}),
                (KIND.ACTION_COMPLETE, {"agent": "digger", "seconds": 0.001}),
            ],
        ),
        (60, [call("digger", "send_response")]),
        (9_000, [call("boss", "await_message")]),
    )
    assert [(item.agent, item.kind, ms(item), item.seconds) for item in of(items, "turn", "action")] == [
        ("boss", "turn", 0, 0.02),
        ("digger", "turn", 40, 0.002),
        ("digger", "action", 41, 0.001),
        ("digger", "turn", 42, 0.018),  # its last turn ended then
        ("boss", "turn", 8_000, 1.0),  # a longer turn would have its times
    ]


def test_the_mail_that_an_agent_reads_is_the_most_urgent() -> None:
    items = read(
        (0, [mail("boss", "digger")]),
        (10, [mail("ann", "digger")]),
        (20, [call("digger", "await_message")]),
        (30, [call("digger", "await_message")]),
    )
    assert [(turn.cause, turn.did) for turn in of(items, "turn")] == [
        (2, "waits for mail"),
        (1, "waits for mail"),
    ]


def pause(*facts: Fact) -> list[Fact]:
    return [
        *facts,
        (KIND.BREAKPOINT_TOOL_CALL, {"agent": "boss"}),
        (KIND.TASK_COMPLETE, {"text": "[]", "question": "?"}),
    ]


def test_a_pause_is_a_wait_for_a_person() -> None:
    paused = [(0, [mail("ann", "boss")]), (5, pause(call("boss", "pay")))]
    [wait] = of(read(*paused), "wait")
    assert (wait.agent, wait.names, wait.seconds) == ("boss", (), None)
    [wait] = of(read(*paused, (900, [mail("ann", "boss")])), "wait")
    assert wait.seconds == 0.895


def test_a_decision_that_leaves_other_calls_waiting_is_no_turn() -> None:
    decision = (KIND.BREAKPOINT_ACTION_COMPLETE, {"agent": "boss"})
    items = read((0, [mail("ann", "boss")]), (5, pause(call("boss", "pay"))), (900, pause(decision)))
    assert [(item.kind, item.seq, item.seconds) for item in of(items, "turn", "wait")] == [
        ("turn", 2, 0.005),
        ("wait", 3, 0.895),
        ("wait", 6, None),
    ]


def test_what_an_agent_did_in_words() -> None:
    def did(*facts: Fact) -> str:
        [turn] = of(read((0, list(facts))), "turn")
        return str(turn.did)

    def ask(target: str) -> Fact:
        return call("boss", "send_request", tool_args={"target": target})

    error = (KIND.AGENT_ERROR, {"agent": "boss"})
    assert did(ask("a"), ask("b"), call("boss", "await_message")) == "asks a, asks b"
    assert did(call("boss", "a_tool_of_tomorrow"), error) == "calls a_tool_of_tomorrow, makes an error"
    assert did(error, (KIND.DEAD_LETTER, {"mailbox": "boss"})) == "fails"
    answer = {"agent": "boss", "taken_as": "send_response", "target": "a"}
    assert did((KIND.TEXT_ANSWER, answer)) == "answers a"
    assert did((KIND.TURN_DISCARDED, {"agent": "boss"})) == "is interrupted"
    cut = (KIND.CONTEXT_CUT, {"agent": "boss", "begin": 3, "references": 4})
    assert did(cut, ask("a")) == "shortens its context, asks a"
    refused = {"agent": "boss", "guards": ["strict"], "on": "message", "outcome": "refuse"}
    assert did((KIND.GUARD_DECISION, refused)) == "is refused by guard strict"
