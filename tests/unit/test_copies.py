"""Copies of an agent: each request is worked on in a history of its own, as many at once as there are copies."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from mail.core.decisions.cancel import cancel
from mail.core.decisions.conversation import Conversation
from mail.core.decisions.copies import hand_over
from mail.core.decisions.items import Mail, fold
from mail.core.decisions.items import Turn as TurnItem
from mail.core.decisions.turn import settle
from mail.core.engine.pacing import Pacer
from mail.core.engine.past_turn import read_turn
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SystemClock
from mail.core.task.change import InboxEntry, TaskChange, Turn
from mail.core.task.context import Cut
from mail.core.task.costs import Usage
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.leases import Lease
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.core.task.turn_state import Checkpoint
from mail.core.turns.context import current_context, report_usage
from mail.errors import ConfigurationError, Subject
from mail.testing.agents import (
    Call,
    View,
    broadcast,
    build_agent,
    build_swarm,
    call,
    complete,
    interrupt,
    output,
    request,
    respond,
    wait,
)
from mail.testing.changes import NOW, Maker
from mail.testing.clock import FakeClock
from mail.testing.rig import Outcome, Rig, ask_once

KEY = TaskKey("user:ann@example", "t")
CLOCK = FakeClock()


def quiet(view: View) -> Any:
    raise AssertionError("decisions call nobody")


def swarm_of(
    researcher: Any, *, asked: int, copies: int, math: Any = quiet, limit: int = 500, **settings: Any
) -> SwarmCore:
    """A supervisor that asks `researcher` so many questions in one turn, and lists all answers."""

    def supervisor(view: View) -> Any:
        if len(view.messages) == 1:
            return [request("researcher", f"question {n}", subject=f"q{n}") for n in range(asked)] + [wait()]
        answers = [each.body for each in view.messages[1:]]
        return [complete("; ".join(sorted(answers)))] if len(answers) == asked else [wait()]

    return build_swarm(
        {
            "supervisor": supervisor,
            "researcher": build_agent(
                researcher,
                targets=["supervisor", "math", "researcher"],
                copies=copies,
                actions=[*settings.get("actions", ())],
            ),
            "math": math,
        },
        task_message_limit=limit,
        **settings,
    )


def turn_of(task: Task, entry: InboxEntry) -> Turn:
    return Turn(task, entry, Lease("lease", NOW + 60), [], None)


def settled(swarm: SwarmCore, task: Task, entry: InboxEntry, *calls: Call) -> TaskChange:
    made = Checkpoint(text=None, calls=tuple(output(calls)), receipts=(None,) * len(calls))
    return settle(Draft(task, swarm, CLOCK), turn_of(task, entry), made)


def asking(swarm: SwarmCore, *calls: Call) -> TaskChange:
    """The change of a first turn, in which the supervisor makes these calls."""
    begun = Maker(CLOCK).begin(KEY)
    entry = replace(begun.deliveries[0], mailbox="supervisor")
    task = replace(begun.task, entrypoint="supervisor", pending={"supervisor": (0, 1, 0, 0, 0)})
    return settled(swarm, task, entry, *calls)


def mailboxes(change: TaskChange) -> list[str]:
    return [entry.mailbox for entry in change.deliveries]


SWARM = swarm_of(quiet, asked=0, copies=3)


# ------------------------------------------------------------------------------------------------- decisions


def test_each_request_goes_to_a_free_copy_and_the_rest_wait() -> None:
    change = asking(SWARM, *[request("researcher", f"{n}") for n in range(5)])
    assert mailboxes(change) == ["researcher~1", "researcher~2", "researcher~3", "researcher", "researcher"]
    assert [each.recipient for each in change.task.requests] == mailboxes(change)
    assert change.task.queued == ("researcher",)
    assert [mailbox for mailbox, _ in change.task.ready()] == ["researcher~1", "researcher~2", "researcher~3"]


def test_a_copy_that_ends_is_free_for_the_first_request_that_waits() -> None:
    asked = asking(SWARM, *[request("researcher", f"{n}") for n in range(5)])
    first, second, _, waits, _ = asked.deliveries
    awaiting = settled(SWARM, asked.task, first, request("math"), wait())
    assert awaiting.task.queued == ("researcher",)  # the copy waits for math
    answered = settled(SWARM, awaiting.task, second, respond("supervisor", "here"))
    assert answered.task.queued == ()
    handed = hand_over(Draft(answered.task, SWARM, CLOCK), turn_of(answered.task, waits))
    assert handed is not None
    assert handed.consumed == waits
    assert handed.deliveries == (replace(waits, mailbox="researcher~2"),)
    assert handed.task.queued == ("researcher",)  # the last one still waits
    assert handed.task.contexts["researcher~2"].cut == Cut(begin=2)
    assert [each.recipient for each in handed.task.requests] == [
        "researcher~1",
        "researcher~3",
        "researcher~2",
        "researcher",
        "math",
    ]
    assert handed.task.generation.turns == answered.task.generation.turns


def test_a_copy_with_a_reminder_takes_no_other_request() -> None:
    swarm = swarm_of(quiet, asked=0, copies=1)
    asked = asking(swarm, request("researcher", "a"), request("researcher", "b"))
    later = call("remind_me", note="look again", **{"in": "2h"})
    change = settled(swarm, asked.task, asked.deliveries[0], later, respond("supervisor", "soon"))
    assert change.task.queued == ("researcher",)
    [answer] = change.deliveries
    read = settled(swarm, change.task, answer, call("web_search_call"))
    assert read.task.pending.keys() == {"researcher"}
    assert read.task.is_asleep


def test_nothing_is_handed_over_while_all_copies_are_at_work() -> None:
    asked = asking(SWARM, *[request("researcher", f"{n}") for n in range(4)])
    turn = turn_of(asked.task, asked.deliveries[3])
    assert hand_over(Draft(asked.task, SWARM, CLOCK), turn) is None
    unaware = replace(asked.task, queued=())  # of a swarm that had more copies
    noted = hand_over(Draft(unaware, SWARM, CLOCK), turn)
    assert noted is not None
    assert (noted.task.queued, noted.consumed, noted.deliveries) == (("researcher",), None, ())


def test_nothing_is_handed_over_in_a_task_that_was_cancelled_meanwhile() -> None:
    asked = asking(SWARM, *[request("researcher", f"{n}") for n in range(4)])
    turn = turn_of(asked.task, asked.deliveries[3])
    ended = cancel(Draft(asked.task, SWARM, CLOCK), Principal.parse("user:ann@example"), "enough")
    assert ended is not None
    task = replace(ended.task, pending={"researcher": asked.task.pending["researcher"]}, queued=())
    change = hand_over(Draft(task, SWARM, CLOCK), turn)
    assert change is not None
    assert (change.consumed, change.deliveries, change.task.pending) == (None, (), task.pending)


def test_an_answer_finds_the_copy_that_asked() -> None:
    asked = asking(SWARM, request("researcher", "a"), request("researcher", "b"))
    one, two = asked.deliveries
    first = settled(SWARM, asked.task, one, request("math", "1 + 1"))
    second = settled(SWARM, first.task, two, request("math", "2 + 2"))
    [sum_of_two] = second.deliveries
    assert sum_of_two.message.sender.address == "researcher"
    answer = settled(SWARM, second.task, sum_of_two, respond("researcher", "4"))
    assert mailboxes(answer) == ["researcher~2"]
    assert answer.deliveries[0].message.message.recipients[0].address == "researcher"


def test_an_answer_that_no_copy_waits_for_reaches_nobody() -> None:
    asked = asking(SWARM, request("researcher", "a"), request("math", "1"))
    change = settled(SWARM, asked.task, asked.deliveries[1], respond("researcher", "4"))
    assert mailboxes(change) == []
    assert "nobody gets it" in change.histories[0].entries[-1]["content"]


@pytest.mark.parametrize("write", [interrupt, lambda _: broadcast("careful")])
def test_interrupts_and_broadcasts_are_for_the_copies_at_work(write: Any) -> None:
    asked = asking(SWARM, request("researcher", "a"), request("researcher", "b"), write("researcher"))
    assert [each for each in mailboxes(asked)[2:] if each != "math"] == ["researcher~1", "researcher~2"]
    [event] = [each for each in asked.events if each.message and each.message.msg_type != "request"]
    assert event.extra.as_json() == {"copies": ["researcher~1", "researcher~2"]}


def test_a_copy_interrupts_the_others_not_itself() -> None:
    asked = asking(SWARM, request("researcher", "a"), request("researcher", "b"))
    assert mailboxes(settled(SWARM, asked.task, asked.deliveries[0], interrupt("researcher"))) == [
        "researcher~2"
    ]


def test_an_interrupt_for_no_copy_is_an_error() -> None:
    change = asking(SWARM, interrupt("researcher"))
    assert "no copy of 'researcher' is at work" in change.histories[0].entries[-1]["content"]


def test_an_agent_may_ask_another_copy_of_itself() -> None:
    asked = asking(SWARM, request("researcher", "a"))
    change = settled(SWARM, asked.task, asked.deliveries[0], request("researcher", "b"))
    assert mailboxes(change) == ["researcher~2"]


@pytest.mark.parametrize(
    ("name", "settings", "error"),
    [
        ("re~searcher", {}, "none of '@', '#' and '~'"),
        ("researcher", {"copies": 65}, "from 0 to 64"),
        ("researcher", {"copies": -1}, "from 0 to 64"),
        ("researcher", {"copies": 2, "enable_entrypoint": True}, "copies are for agents that answer"),
        ("researcher", {"copies": 2, "can_complete_tasks": True}, "copies are for agents that answer"),
    ],
)
def test_a_swarm_that_makes_no_sense_is_refused(name: str, settings: Any, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        build_swarm({"supervisor": quiet, name: build_agent(quiet, **settings)})


# ----------------------------------------------------------------------------------------- on the real engine


def ends_of(outcome: Outcome) -> tuple[list[str], list[str]]:
    """The ids of the requests to the researcher, and of those that it has answered."""
    asked = [each.message.own_id for each in outcome.sent_to("researcher") if each.msg_type == "request"]
    answered = [
        each.message.own_id
        for each in outcome.messages
        if each.sender.address == "researcher" and each.msg_type == "response"
    ]
    return asked, answered


@pytest.mark.parametrize(("asked", "copies"), [(8, 4), (10, 8), (32, 32), (5, 1)])
async def test_requests_are_worked_on_side_by_side_each_alone_in_its_history(asked: int, copies: int) -> None:
    """As many begin together as there are copies: they wait for each other."""
    at_once, most, barrier = 0, 0, asyncio.Barrier(copies)
    seen: list[list[str]] = []

    async def researcher(view: View) -> Any:
        nonlocal at_once, most
        at_once, most = at_once + 1, max(most, at_once + 1)
        seen.append([each.body for each in view.messages])
        if len(seen) <= asked - asked % copies:
            await barrier.wait()
        at_once -= 1
        return [respond("supervisor", f"answer to {view.mail.body}")]

    outcome = await ask_once(swarm_of(researcher, asked=asked, copies=copies))
    assert outcome.answer == "; ".join(sorted(f"answer to question {n}" for n in range(asked)))
    assert most == copies
    assert sorted(seen) == sorted([f"question {n}"] for n in range(asked))
    ids, answered = ends_of(outcome)
    assert sorted(answered) == sorted(ids)
    assert len(set(answered)) == asked
    assert outcome.task.histories.keys() == {"supervisor", *(f"researcher~{n + 1}" for n in range(copies))}
    assert len(outcome.of(EventKind.COPY_ASSIGNED)) == asked - copies


async def test_a_fan_out_to_copies_takes_no_more_commits_than_one_to_as_many_agents() -> None:
    def worker(view: View) -> Any:
        return [respond("supervisor", view.mail.body)]

    def supervisor(view: View) -> Any:
        if len(view.messages) == 1:
            return [request(f"worker-{n}", f"{n}") for n in range(32)] + [wait()]
        return [complete("all")] if len(view.messages) == 33 else [wait()]

    agents: dict[str, Any] = {"supervisor": supervisor} | {f"worker-{n}": worker for n in range(32)}
    many = await ask_once(build_swarm(agents, task_message_limit=100))
    one = await ask_once(swarm_of(worker, asked=32, copies=32))
    assert one.task.version == many.task.version
    assert len(one.events) == len(many.events)


async def test_a_copy_that_waits_for_an_answer_gets_no_other_request_meanwhile() -> None:
    seen: dict[str, list[str]] = {}

    def researcher(view: View) -> Any:
        if len(view.messages) == 1:
            return [request("math", f"sum for {view.mail.body}"), wait()]
        seen[view.messages[0].body] = [each.body for each in view.messages]
        return [respond("supervisor", view.mail.body)]

    def math(view: View) -> Any:
        return [respond("researcher", f"{view.mail.body} is {len(view.messages)}")]

    async with Rig(swarm_of(researcher, asked=6, copies=2, math=math)) as rig:
        outcome = await rig.ask()
        assert [len(await rig.history(f"researcher~{n}", outcome.key)) for n in (1, 2)] == [21, 21]
        for question, read in seen.items():
            assert read[0] == question
            assert read[1].startswith(f"sum for {question} is ")
        assert len(seen) == 6
        turns = [each for each in outcome.events if each.extra.agent == "researcher~1"]
        past = await read_turn(rig.store, rig.swarm, outcome.key, turns[-1].seq, Pacer())
        shown = [entry["content"] for entry in past.history if entry.get("role") == "user"]
        assert len(shown) == 2
        assert past.setup is not None
        fork = await rig.runtime.fork(rig.user, outcome.key.task_id, at=turns[-1].seq)
        assert fork.task.contexts["researcher~1"].cut == outcome.task.contexts["researcher~1"].cut


async def test_a_copy_that_fails_answers_by_that_and_is_free() -> None:
    def researcher(view: View) -> Any:
        if view.mail.body == "question 0":
            raise RuntimeError("out of ideas")
        return [respond("supervisor", view.mail.body)]

    outcome = await ask_once(swarm_of(researcher, asked=3, copies=1))
    assert "question 1; question 2" in outcome.answer
    assert "agent 'researcher~1' has failed" in outcome.answer
    assert outcome.task.requests == ()


async def test_a_task_whose_copies_all_wait_in_vain_is_reported_as_stalled() -> None:
    def supervisor(view: View) -> Any:
        is_first = len(view.messages) == 1
        return [request("researcher") for _ in range(3)] if is_first else [call("web_search_call")]

    swarm = build_swarm(
        {
            "supervisor": supervisor,
            "researcher": build_agent(lambda view: [request("math")], targets=["math"], copies=2),
            "math": lambda view: [call("web_search_call")],
        }
    )
    outcome = await ask_once(swarm)
    assert outcome.subject == Subject.TASK_ERROR
    assert "stalled" in outcome.answer
    assert outcome.answer.count("supervisor waits for researcher;") == 3


async def test_costs_and_actions_are_of_the_agent_and_events_name_the_copy() -> None:
    callers: list[str] = []

    async def look_up(args: dict[str, Any]) -> str:
        callers.append(current_context().agent)
        report_usage(Usage(calls=1, input_tokens=10, cost=0.5), "model")
        return "found"

    def researcher(view: View) -> Any:
        return [call("look_up")] if len(view.messages) == 1 else [respond("supervisor", "done")]

    outcome = await ask_once(swarm_of(researcher, asked=2, copies=2, actions={"look_up": look_up}))
    assert callers == ["researcher", "researcher"]
    assert outcome.task.usage["researcher"].calls == 2
    assert {event.agent for event in outcome.of(EventKind.ACTION_COMPLETE)} == {
        "researcher~1",
        "researcher~2",
    }


async def test_a_conversation_and_its_spans_name_the_copies() -> None:
    def researcher(view: View) -> Any:
        return [respond("supervisor", view.mail.body)]

    async with Rig(swarm_of(researcher, asked=3, copies=2), clock=SystemClock()) as rig:
        outcome = await rig.ask()
    conversation = Conversation()
    items = fold([item for event in outcome.events for item in conversation.read(event)])
    mail = [(each.sender, *each.recipients) for each in items if isinstance(each, Mail)]
    assert mail[:3] == [
        ("supervisor", "researcher~1"),
        ("supervisor", "researcher~2"),
        ("supervisor", "researcher"),
    ]
    assert {each[0] for each in mail[3:]} == {"researcher~1", "researcher~2"}
    turns = [each for each in items if isinstance(each, TurnItem) and each.agent.startswith("researcher")]
    requests = [
        event.seq for event in outcome.events if event.message and event.message.msg_type == "request"
    ]
    assert sorted(each.cause or 0 for each in turns) == requests[-3:]


async def test_a_request_of_an_earlier_generation_does_not_keep_a_copy_busy() -> None:
    """The task ends while a copy works; it is resumed, and the next request finds all copies free."""

    def supervisor(view: View) -> Sequence[Call]:
        match len(view.messages):
            case 1:
                return [request("researcher", "first"), complete("early")]
            case 2:
                return [request("researcher", "second"), wait()]
        return [complete(view.mail.body)] if view.mail.body != "late" else [wait()]

    def researcher(view: View) -> Any:
        return [respond("supervisor", "late" if view.mail.body == "first" else "in time")]

    swarm = build_swarm(
        {"supervisor": supervisor, "researcher": build_agent(researcher, targets=["supervisor"], copies=2)}
    )
    async with Rig(swarm) as rig:
        first = await rig.ask()
        again = await rig.ask("again", task_id=first.key.task_id)
        assert (first.answer, again.answer) == ("early", "in time")


async def test_the_request_of_a_copy_that_failed_is_redriven_to_one_that_is_free() -> None:
    failures = ["once"]

    def supervisor(view: View) -> Any:
        match len(view.messages):
            case 1:
                return [request("researcher", "a"), wait()]
            case 2:
                return [complete(view.mail.body)]
        return [complete(f"then {view.mail.body}")]

    def researcher(view: View) -> Any:
        if failures:
            raise RuntimeError(failures.pop())
        return [respond("supervisor", f"b after {len(view.messages)}")]

    swarm = build_swarm(
        {"supervisor": supervisor, "researcher": build_agent(researcher, targets=["supervisor"], copies=1)}
    )
    async with Rig(swarm) as rig:
        outcome = await rig.ask()
        assert "has failed" in outcome.answer
        [redriven] = await rig.runtime.dead_letters.redrive(rig.user, outcome.key)
        assert redriven.letter.mailbox == "researcher~1"
        again = await rig.ask("and?", task_id=outcome.key.task_id)
        [sent] = [each for each in await rig.store.read_events(again.key) if each.is_redrive]
        assert sent.extra.as_json()["copies"] == ["researcher~1"]


async def test_a_copy_waits_for_the_approval_of_its_call() -> None:
    async def pay(args: dict[str, Any]) -> str:
        return "paid"

    def researcher(view: View) -> Any:
        if view.results:
            return [respond("supervisor", f"{view.messages[0].body}: {view.results[-1]}")]
        return [call("pay")] if view.mail.body == "question 0" else [respond("supervisor", "nothing to pay")]

    swarm = swarm_of(
        researcher, asked=2, copies=1, actions={"pay": ActionCore("pay", pay, needs_approval=True)}
    )
    async with Rig(swarm) as rig:
        paused = await rig.ask()
        assert paused.task.generation.breakpoint is not None
        assert paused.task.generation.breakpoint.agent == "researcher~1"
        assert paused.task.queued == ("researcher",)
        task_id = paused.key.task_id
        done = await rig.ask("", task_id=task_id, approvals=[{"decision": "approve"}])
        assert done.answer == "nothing to pay; question 0: SUCCESS: paid"
