"""Runs of a task, as its events tell them."""

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import pytest

from mail.core.decisions.runs import Run, after
from mail.core.protocol.address import create_agent_address, create_user_address
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.compose import compose_message
from mail.core.protocol.message import MAILMessage
from mail.core.task.events import Event, EventKind
from mail.core.task.extras import EndExtra, Extra, MessageExtra
from mail.core.task.task import TaskStatus
from mail.http.runs import Progress
from mail.testing.agents import Call, View, build_swarm, call, complete, wait
from mail.testing.rig import Rig


def mail(*, by_person: bool) -> MAILMessage:
    return compose_message(
        "request",
        task_id="t",
        sender=create_user_address("ann") if by_person else create_agent_address("desk"),
        recipients=[create_agent_address("annex")],
        subject="s",
        body="b",
        clock=SYSTEM_CLOCK,
    )


ASKED = (EventKind.NEW_MESSAGE, {"message": mail(by_person=True)})
TOLD = (EventKind.NEW_MESSAGE, {"message": mail(by_person=False)})
REDRIVEN = (EventKind.NEW_MESSAGE, {"message": mail(by_person=True), "extra": MessageExtra(redrives=1)})
TURN = (EventKind.TOOL_CALL, {})
DONE = (EventKind.TASK_COMPLETE, {})
DONE_WITH_UNREAD = (EventKind.TASK_COMPLETE, {"extra": EndExtra(unread_from=2)})
PAUSE = (EventKind.TASK_COMPLETE, {"extra": EndExtra(question="which?")})
REPLY = (EventKind.BREAKPOINT_ACTION_COMPLETE, {})
ERROR = (EventKind.TASK_ERROR, {})
CANCELLED = (EventKind.TASK_CANCELLED, {})
REDRIVE = (EventKind.DEAD_LETTER_REDRIVEN, {})
SENT = (EventKind.WEBHOOK_DELIVERED, {})

Told = tuple[EventKind, dict[str, Extra | MAILMessage]]


def read(*told: Told) -> Run:
    events = [
        Event(seq=seq, kind=kind, timestamp=f"t{seq}", **about)  # type: ignore[arg-type]
        for seq, (kind, about) in enumerate(told, 1)
    ]
    run = reduce(after, events, None)
    assert run is not None
    return run


RUNNING, PAUSED, COMPLETED = TaskStatus.RUNNING, TaskStatus.PAUSED, TaskStatus.COMPLETED


@pytest.mark.parametrize(
    ("told", "number", "first", "status", "since"),
    [
        ([ASKED], 1, 1, RUNNING, 1),
        ([ASKED, TURN, TOLD], 1, 1, RUNNING, 1),
        ([ASKED, TURN, DONE], 1, 1, COMPLETED, 3),
        ([ASKED, DONE, SENT, TOLD], 1, 1, COMPLETED, 2),
        ([ASKED, DONE, ASKED], 2, 3, RUNNING, 3),
        ([ASKED, DONE, ASKED, DONE, ASKED, ERROR], 3, 5, TaskStatus.FAILED, 6),
        ([ASKED, ASKED, DONE_WITH_UNREAD], 1, 1, RUNNING, 1),
        ([ASKED, ASKED, DONE_WITH_UNREAD, DONE], 1, 1, COMPLETED, 4),
        ([ASKED, PAUSE], 1, 1, PAUSED, 2),
        ([ASKED, PAUSE, SENT], 1, 1, PAUSED, 2),
        ([ASKED, PAUSE, REPLY], 1, 1, RUNNING, 3),
        ([ASKED, PAUSE, ASKED], 1, 1, RUNNING, 3),
        ([ASKED, PAUSE, REPLY, DONE, ASKED], 2, 5, RUNNING, 5),
        ([ASKED, CANCELLED, ERROR], 1, 1, TaskStatus.CANCELLED, 2),
        ([ASKED, PAUSE, CANCELLED], 1, 1, TaskStatus.CANCELLED, 3),
        ([ASKED, CANCELLED, ERROR, TURN, ASKED], 2, 5, RUNNING, 5),
        ([ASKED, ERROR, REDRIVE, REDRIVEN], 1, 1, RUNNING, 3),
        ([ASKED, DONE, REDRIVE, REDRIVEN], 1, 1, COMPLETED, 2),
    ],
)
def test_a_run(told: Sequence[Told], number: int, first: int, status: TaskStatus, since: int) -> None:
    assert read(*told) == Run(number=number, first=first, status=status, since=f"t{since}")


async def test_the_last_run_is_read_from_where_it_began() -> None:
    """Of the runs before, which may be long, nothing is read; what is shown is the same."""

    def desk(view: View) -> Sequence[Call]:
        match view.mail.body:
            case "ask":
                return [call("choose", what="tea")]
            case "look":
                return [call("look"), complete("seen")]
        return [complete(f"{view.mail.body}!")]

    async def look(_arguments: Mapping[str, Any]) -> str:
        return "a look"

    swarm = build_swarm({"desk": desk}, actions={"look": look}, breakpoint_tools=frozenset({"choose"}))
    async with Rig(swarm) as rig:
        key = (await rig.ask("one", task_id="t")).key
        for body in ("look", "ask", "look", "ask"):
            await rig.pass_time(1)
            await rig.ask(body, task_id="t", drop_question=True)
            task = await rig.task(key)
            events = await rig.store.read_events(key)
            whole, last = Progress("t"), Progress("t", present=task.generation, begins=True)
            for event in events:
                whole.read(event)
            begin = last.after
            for event in events[begin:]:
                last.read(event)
            assert (last.run, last.began, last.last) == (whole.run, whole.began, whole.last)
            assert last.items == whole.items
            assert begin == whole.found.first - 1
        assert begin > 0
        forked = await rig.runtime.fork(rig.user, "t", at=1)
        assert forked.task.generation.run_began is None, "it began in another task"


async def test_of_long_texts_the_last_ones_are_kept_and_what_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def desk(view: View) -> Sequence[Call]:
        return [wait()] if view.mail.body.startswith("x") else [call("choose", what="tea")]

    async with Rig(build_swarm({"desk": desk}, breakpoint_tools=frozenset({"choose"}))) as rig:
        for _ in range(5):
            await rig.submit("x" * 1000, task_id="t")
        key = (await rig.ask("ask", task_id="t")).key
        events = await rig.store.read_events(key)

    def shown(limit: int) -> list[str]:
        monkeypatch.setattr("mail.http.runs.RUN_BYTES", limit)
        progress = Progress("t")
        for event in events:
            progress.read(event)
        return [item.kind for item in progress.items]

    whole, part = shown(1_000_000), shown(5_000)
    assert whole.count("message") == 6
    assert 1 < part.count("message") < 6
    assert part == whole[-len(part) :]
    assert "question" in shown(1)
