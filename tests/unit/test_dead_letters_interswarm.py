"""Dead letters between swarms: what could not be delivered, and answers for which nobody waits any more."""

from dataclasses import replace
from typing import Any

import pytest
from dead_letters import ended, letters, loaded
from support.services.federation import Federation

from mail.core.decisions import interswarm as outbound
from mail.core.decisions.dead_letters import read_dead_letters, redrive, with_messages
from mail.core.protocol.address import Principal
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.tool_schemas import AgentToolCall
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskKey, TaskStatus
from mail.errors import PeerRefused, PeerUnavailable
from mail.testing.agents import View, build_agent, build_swarm, call, complete, request, respond, wait

ADMIN = Principal(role="admin", id="root", swarm="a")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries take no time."""
    for name in ("RETRY_SECONDS", "ANSWER_RETRY_SECONDS"):
        monkeypatch.setattr(outbound, name, (0.001,) * len(getattr(outbound, name)))


def asking(policy: Any, *targets: str) -> SwarmCore:
    supervisor = build_agent(
        policy, targets=targets, supervises=True, enable_interswarm=True, name="supervisor"
    )
    return build_swarm({"supervisor": supervisor}, name="a")


def ask_then_tell(view: View) -> list[AgentToolCall]:
    if view.mail.body == "go on":
        return [wait()]
    if view.mail.sender_type == "user":
        return [request("worker@b", view.mail.body), wait()]
    return [complete(view.mail.body)]


def answering() -> SwarmCore:
    def worker(view: View) -> list[AgentToolCall]:
        if view.mail.sender_type == "system":
            return [wait()]
        return [respond(view.mail.sender, f"{view.mail.body}, said the worker")]

    agents = {
        "boss": build_agent(lambda view: [wait()], supervises=True, targets=["worker"], name="boss"),
        "worker": build_agent(worker, name="worker"),
    }
    return build_swarm(agents, entrypoint="boss", name="b")


class Line:
    """The way between swarms, which is broken until it is mended."""

    def __init__(self, error: Exception) -> None:
        self.error: Exception | None = error

    async def __call__(self, message: MAILInterswarmMessage) -> None:
        if self.error is not None:
            raise self.error


async def test_mail_that_went_well_leaves_none() -> None:
    async with Federation(asking(ask_then_tell, "worker@b"), answering()) as both:
        outcome = await both["a"].ask("hello")
        await both.settle()
        there = await loaded(both["b"], TaskKey("swarm:a@b", outcome.key.task_id))
    assert outcome.answer == "hello, said the worker"
    assert outcome.task.dead_letters == there.dead_letters == ()


async def test_what_a_swarm_that_was_down_did_not_get_is_answered_once_it_is_back() -> None:
    async with Federation(asking(ask_then_tell, "worker@b"), answering()) as both:
        line = both.trouble = Line(PeerUnavailable("nobody there"))
        rig = both["a"]
        first = await rig.ask("hello")
        assert "no delivery after 12 tries" in first.answer
        (letter,) = await letters(rig, first.key)
        assert (letter.mailbox, letter.attempts, letter.sender) == ("@b", 12, "supervisor")
        line.error = None
        (redriven,) = await rig.runtime.dead_letters.redrive(ADMIN, first.key, letter.seq)
        assert not redriven.waits
        await both.settle()
        task = await loaded(rig, first.key)
        assert task.status is TaskStatus.COMPLETED  # its answer waits there until the task resumes
        assert task.pending.keys() == {"supervisor"}
        assert task.dead_letters == ()
        assert task.peers["b"].failures == 0
        later = await rig.ask("go on", task_id=first.key.task_id)
    assert later.answer == "hello, said the worker"


async def test_a_persons_task_that_failed_goes_on_and_is_answered() -> None:
    async with Federation(asking(ask_then_tell), answering()) as both:
        line = both.trouble = Line(PeerUnavailable("nobody there"))
        rig = both["a"]
        outcome = await rig.ask("hello", targets=("worker@b",))
        assert outcome.task.status is TaskStatus.FAILED
        line.error = None
        (redriven,) = await rig.runtime.dead_letters.redrive(ADMIN, outcome.key)
        assert redriven.letter.attempts == 12
        assert await ended(rig, outcome.key, 2) == "hello, said the worker"
        await both.settle()
        task = await loaded(rig, outcome.key)
    assert task.status is TaskStatus.COMPLETED
    assert task.dead_letters == ()
    assert task.requests == ()


async def test_nothing_is_asked_of_others_for_a_cancelled_task() -> None:
    async with Federation(asking(ask_then_tell, "worker@b"), answering()) as both:
        both.trouble = Line(PeerRefused("403: not you"))
        rig = both["a"]
        outcome = await rig.ask("hello")
        task = await loaded(rig, outcome.key)
        events = await rig.store.read_events(outcome.key)
        dead = with_messages(read_dead_letters(task, events), events)
        cancelled = replace(task, status=TaskStatus.CANCELLED)
        change, (refused,) = redrive(Draft(cancelled, rig.swarm, rig.clock), dead, ADMIN)
        assert change is None
        assert "was cancelled" in refused.refusal
        change, (redriven,) = redrive(Draft(task, rig.swarm, rig.clock), dead, ADMIN)
        assert change is not None
        assert redriven.seq == change.deliveries[0].seq


async def test_what_a_swarm_has_refused_may_be_refused_again() -> None:
    async with Federation(asking(ask_then_tell, "worker@b"), answering()) as both:
        both.trouble = Line(PeerRefused("403: not you"))
        rig = both["a"]
        outcome = await rig.ask("hello")
        (first,) = await letters(rig, outcome.key)
        await rig.runtime.dead_letters.redrive(ADMIN, outcome.key)
        await both.settle()
        (second,) = await letters(rig, outcome.key)
    assert (first.attempts, first.reason) == (1, "403: not you")
    assert second.seq > first.seq
    assert second.reason == first.reason


async def test_what_a_swarm_has_taken_unheard_it_takes_once() -> None:
    """It has taken the message, and the sender has never heard of it: redriven, it is known by its id."""
    async with Federation(asking(ask_then_tell, "worker@b"), answering()) as both:
        line = both.after = Line(PeerUnavailable("the line broke"))
        rig = both["a"]
        outcome = await rig.ask("hello")
        key = TaskKey("swarm:a@b", outcome.key.task_id)
        line.error = None
        await rig.runtime.dead_letters.redrive(ADMIN, outcome.key)
        await both.settle()
        heard = [entry for entry in await both["b"].history("worker", key) if entry.get("role") == "user"]
    assert len(heard) == 1


async def test_an_answer_for_which_nobody_waits_any_more() -> None:
    def hasty(view: View) -> list[AgentToolCall]:
        if view.mail.body == "hello":
            return [request("worker@b", "hello"), complete("never mind")]
        return [wait()] if view.mail.sender_type == "user" else [complete(view.mail.body)]

    async with Federation(asking(hasty, "worker@b"), answering()) as both:
        rig = both["a"]
        outcome = await rig.ask("hello")
        await both.settle()
        (letter,) = await letters(rig, outcome.key)
        assert (letter.mailbox, letter.sender, letter.msg_type) == ("supervisor", "worker@b", "response")
        assert letter.message_seq == letter.seq
        assert "after the task had stopped" in letter.reason
        (redriven,) = await rig.runtime.dead_letters.redrive(ADMIN, outcome.key)
        assert redriven.waits
        task = await loaded(rig, outcome.key)
        assert task.pending.keys() == {"supervisor"}
        assert task.status is TaskStatus.COMPLETED
        later = await rig.ask("what did he say?", task_id=outcome.key.task_id)
    assert later.answer == "hello, said the worker"


async def test_word_of_the_end_for_a_swarm_that_has_never_heard_of_it_is_none() -> None:
    def hasty(view: View) -> list[AgentToolCall]:
        return [request("worker@b"), complete("never mind")]

    async with Federation(asking(hasty, "worker@b"), answering()) as both:
        both.trouble = Line(PeerRefused("403: not you"))
        outcome = await both["a"].ask("hello")
        await both.settle()
        found = await letters(both["a"], outcome.key)
        events = await both["a"].store.read_events(outcome.key)
    assert [letter.msg_type for letter in found] == ["request"]
    moot = [event for event in events if event.kind is EventKind.INTERSWARM_MESSAGE_ERROR]
    assert any("no part in the task" in event.text for event in moot)


async def test_news_for_all_swarms_where_there_is_none() -> None:
    def policy(view: View) -> Any:
        if view.mail.sender_type == "user":
            return [call("send_interswarm_broadcast", subject="News", body="news")]
        return [complete(view.mail.body)]

    async with Federation(asking(policy)) as alone:
        outcome = await alone["a"].ask("hello")
        (letter,) = await letters(alone["a"], outcome.key)
        assert (letter.mailbox, letter.subject) == ("@", "News")
        (redriven,) = await alone["a"].runtime.dead_letters.redrive(ADMIN, outcome.key)
        assert not redriven.refusal
