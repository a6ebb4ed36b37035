"""Mail between swarms: what it does to the tasks at both ends (SPEC, section 7)."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.plugins.tiers import sized
from support.services.federation import Federation, Swallow

from mail.core.decisions import interswarm as outbound
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILResponse
from mail.core.task.events import EventKind
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskKey, TaskStatus
from mail.errors import PeerRefused, PeerUnavailable, Subject, SwarmNotFound
from mail.testing.agents import (
    View,
    acknowledge,
    build_agent,
    build_swarm,
    call,
    complete,
    interrupt,
    request,
    respond,
    turns,
    wait,
)
from mail.testing.rig import Rig


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries take no time."""
    for name in ("RETRY_SECONDS", "ANSWER_RETRY_SECONDS"):
        monkeypatch.setattr(outbound, name, (0.001,) * len(getattr(outbound, name)))


def asking(
    policy: Any, *targets: str, name: str = "a", answers: Any = None, agents: dict[str, Any] | None = None
) -> SwarmCore:
    """A swarm whose supervisor may write to agents elsewhere."""
    supervisor = build_agent(
        policy,
        targets=[*targets, *(agents or {})],
        supervises=True,
        enable_interswarm=True,
        name="supervisor",
    )
    return build_swarm({"supervisor": supervisor, **(agents or {})}, name=name)


def answering(policy: Any, name: str = "b", **options: Any) -> SwarmCore:
    """A swarm whose worker answers every message, without being able to write elsewhere by itself."""
    worker = build_agent(policy, targets=["supervisor"], name="worker", **options)
    supervisor = build_agent(
        turns([complete("never")]), targets=["worker"], supervises=True, name="supervisor"
    )
    return build_swarm({"supervisor": supervisor, "worker": worker}, name=name)


def echo(view: View) -> Any:
    return [respond(view.mail.sender, f"{view.mail.body}, said the worker")]


async def refuse(message: MAILInterswarmMessage) -> None:
    raise PeerRefused("401: no")


def ask_then_tell(*targets: str) -> Any:
    """Ask every target, and complete with what the last of them says."""

    def policy(view: View) -> Any:
        if len(view.messages) == 1:
            return [*(request(target, view.mail.body) for target in targets), wait()]
        if len(view.messages) <= len(targets):
            return [wait()]
        return [complete(" | ".join(letter.body for letter in view.messages[1:]))]

    return policy


class TestQuestionAndAnswer:
    @pytest.fixture
    async def pair(self) -> AsyncIterator[Federation]:
        async with Federation(asking(ask_then_tell("worker@b"), "worker@b"), answering(echo)) as both:
            yield both

    async def test_what_travels(self, pair: Federation) -> None:
        outcome = await pair["a"].ask("hello")
        await pair.settle()
        assert outcome.answer == "hello, said the worker"
        assert EventKind.AGENT_ERROR not in outcome.kinds
        assert list(outcome.task.peers) == ["b"]
        assert outcome.task.contributors == ("user:ann@a", "swarm:a@b")
        (question, q_back), (answer, a_back), (end, e_back) = pair.sent
        assert [q_back, a_back, e_back] == [False, True, True]
        assert question.task_contributors == ("user:ann@a",)
        assert answer.task_contributors == ("user:ann@a", "swarm:a@b")
        assert {message.task_owner for message, _ in pair.sent} == {"user:ann@a"}
        assert question.payload.sender.address == "supervisor@a"
        assert question.payload.recipients[0].address == "worker@b"
        assert (question.auth_token, question.metadata) == ("", {})
        assert isinstance(answer.payload, MAILResponse)
        assert answer.payload.request_id == question.payload["request_id"]
        assert (end.msg_type, end.payload.subject) == ("response", "::task_complete::")
        assert end.payload.recipients[0].address == "worker@b"
        task = await pair["b"].task(TaskKey("swarm:a@b", outcome.key.task_id))
        assert (task.status, task.owner, task.parent_swarm) == (TaskStatus.COMPLETED, "user:ann@a", "a")
        assert list(task.peers) == ["a"]

    async def test_what_the_reader_sees(self, pair: Federation) -> None:
        outcome = await pair["a"].ask("hello")
        await pair.settle()
        key = TaskKey("swarm:a@b", outcome.key.task_id)
        (letter, *_) = (
            entry for entry in await pair["b"].history("worker", key) if entry.get("role") == "user"
        )
        assert '<from type="agent">supervisor@a</from>' in letter["content"]
        assert '<address type="agent">worker</address>' in letter["content"]

    async def test_events_at_both_ends(self, pair: Federation) -> None:
        outcome = await pair["a"].ask("hello")
        sent, end = outcome.of(EventKind.INTERSWARM_MESSAGE_SENT)
        assert sent.text.startswith("sent interswarm message forward to swarm b:\n<incoming_message>")
        assert end.text.startswith("sent interswarm message back to swarm b:\n<incoming_message>")
        (received,) = outcome.of(EventKind.INTERSWARM_MESSAGE_RECEIVED)
        assert received.text == "received interswarm message from swarm b"
        assert sent.seq < received.seq < end.seq

    async def test_the_task_goes_on_and_reaches_the_same_task_there(self, pair: Federation) -> None:
        first = await pair["a"].ask("hello")
        second = await pair["a"].ask("again", task_id=first.key.task_id)
        assert second.answer.startswith("hello, said the worker")
        await pair.settle()
        task = await pair["b"].task(TaskKey("swarm:a@b", first.key.task_id))
        assert task.generation.number >= 1


@pytest.mark.parametrize("completes", [False, True])
async def test_the_record_ends_with_the_end(completes: bool) -> None:
    """Also that of the swarm that learns of the end, whether its own part has ended before or not."""

    def worker(view: View) -> Any:
        return [complete("done")] if completes else echo(view)

    async with Federation(
        asking(ask_then_tell("worker@b"), "worker@b"), answering(worker, supervises=True)
    ) as both:
        outcome = await both["a"].ask("hello")
        await both.settle()
        assert both.sent[-1][0].payload.subject == Subject.TASK_COMPLETE
        for name, key in (("a", outcome.key), ("b", TaskKey("swarm:a@b", outcome.key.task_id))):
            events = await both[name].store.read_events(key)
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
            assert [event.kind for event in events if event.is_terminal] == [events[-1].kind]
            task = await both[name].task(key)
            assert (task.seq, task.pending) == (len(events), {})
        assert len(task.received) == 2


async def test_an_agent_that_notes_its_error_fails_no_task() -> None:
    """It can't complete tasks, so all it can do with mail of the system is to note it."""

    def ask_again(view: View) -> Any:
        if len(view.messages) < 3:
            return [request("worker@b", "How are you?"), wait()]
        return [complete(" | ".join(letter.body for letter in view.messages[1:]))]

    def worker(view: View) -> Any:
        if view.mail.sender_type == "system":
            return [acknowledge("noted")]
        return [respond(view.mail.sender, "fine"), call("send_request")]

    alone = build_agent(worker, enable_entrypoint=True, name="worker")
    chief = build_agent(turns(), supervises=True, name="chief")
    other = build_swarm({"worker": alone, "chief": chief}, name="b")
    async with Federation(asking(ask_again, "worker@b"), other) as both:
        outcome = await both["a"].ask("hello")
        await both.settle()
        task = await both["b"].task(TaskKey("swarm:a@b", outcome.key.task_id))
    assert outcome.answer == "fine | fine"
    assert task.status is TaskStatus.COMPLETED


async def test_several_swarms_at_once() -> None:
    targets = ("worker@b", "worker@c")
    async with Federation(
        asking(ask_then_tell(*targets), *targets), answering(echo, "b"), answering(echo, "c")
    ) as three:
        outcome = await three["a"].ask("hello")
    assert outcome.answer == "hello, said the worker | hello, said the worker"
    assert sorted(outcome.task.peers) == ["b", "c"]


def relay(view: View) -> Any:
    if view.mail.sender.endswith("@a"):
        return [request("worker@c", view.mail.body), wait()]
    return [respond("supervisor@a", f"{view.mail.body} to b")]


async def test_a_chain() -> None:
    """A asks B, which asks C: answers come back the same way, and all three learn of the end."""

    middle = asking(relay, "worker@c", name="b")
    async with Federation(
        asking(ask_then_tell("supervisor@b"), "supervisor@b"), middle, answering(echo, "c")
    ) as all3:
        outcome = await all3["a"].ask("hello")
        await all3.settle()
        assert outcome.answer == "hello, said the worker to b"
        hops = {
            message.target_swarm: message.payload.routing_info["hops"]
            for message, back in all3.sent
            if not back
        }
        assert hops == {"b": 1, "c": 2}
        (end,) = [
            message
            for message, _ in all3.sent
            if message.target_swarm == "c" and message.msg_type == "response"
        ]
        assert end.payload.sender.model_dump() == {"address_type": "system", "address": "b"}
        for name, asker in (("b", "a"), ("c", "b")):
            task = await all3[name].task(TaskKey(f"swarm:{asker}@{name}", outcome.key.task_id))
            assert (task.status, task.owner) == (TaskStatus.COMPLETED, "user:ann@a")


async def test_a_supervisor_that_completes_answers_the_swarm_that_asked() -> None:
    helper = build_swarm({"boss": turns([complete("42")])}, name="b")
    async with Federation(asking(ask_then_tell("boss@b"), "boss@b"), helper) as both:
        outcome = await both["a"].ask("hello")
        await both.settle()
        assert outcome.answer == "42"
        answer = both.sent[1][0]
        assert (answer.msg_type, answer.payload.subject) == ("response", "::interswarm_task_complete::")
        assert answer.payload["request_id"] == both.sent[0][0].payload["request_id"]


async def test_a_part_that_fails_tells_the_swarm_that_asked() -> None:
    def broken(view: View) -> Any:
        raise RuntimeError("oh")

    async with Federation(asking(ask_then_tell("worker@b"), "worker@b"), answering(broken)) as both:
        outcome = await both["a"].ask("hello")
    assert "worker" in outcome.answer
    assert "failed" in outcome.answer


async def test_a_part_that_stalls_tells_the_swarm_that_asked() -> None:
    """The asked agent is silent: it is reminded, and then its part ends with an error, which is an answer."""

    lazy = build_swarm({"boss": lambda view: [wait()]}, name="b")
    async with Federation(asking(ask_then_tell("boss@b"), "boss@b"), lazy) as both:
        outcome = await both["a"].ask("hello")
    assert "boss" in outcome.answer


async def test_a_breakpoint_in_another_swarm_is_told_to_the_one_that_asked() -> None:
    helper = build_swarm(
        {
            "boss": lambda view: (
                [call("ask_human", question="really?")]
                if len(view.messages) == 1
                else [complete(f"human says: {view.mail.body}")]
            )
        },
        name="b",
        breakpoint_tools=frozenset({"ask_human"}),
    )

    def policy(view: View) -> Any:
        if len(view.messages) == 1:
            return [request("boss@b", "do it"), wait()]
        if view.mail.subject == Subject.BREAKPOINT_TOOL_CALL:
            return [request("boss@b", "yes, really"), wait()]
        return [complete(view.mail.body)]

    async with Federation(asking(policy, "boss@b"), helper) as both:
        outcome = await both["a"].ask("hello")
    assert outcome.answer == "human says: yes, really"


class TestFailure:
    async def test_an_unknown_swarm(self) -> None:
        async with Federation(asking(ask_then_tell("worker@z"), "worker@z")) as alone:
            outcome = await alone["a"].ask("hello")
        assert "could not be delivered to swarm z: swarm 'z' is not known" in outcome.answer
        assert outcome.task.requests == ()
        (event,) = outcome.of(EventKind.INTERSWARM_MESSAGE_ERROR)
        assert event.text == "can't send to swarm z: swarm 'z' is not known"

    async def test_no_connection_at_all(self) -> None:
        async with Federation(asking(ask_then_tell("worker@b"), "worker@b")) as alone:
            alone["a"].runtime.peers = None
            outcome = await alone["a"].ask("hello")
        assert "this server has no connection to other swarms" in outcome.answer

    async def test_an_unknown_agent(self) -> None:
        async with Federation(asking(ask_then_tell("worke@b"), "worke@b"), answering(echo)) as both:
            outcome = await both["a"].ask("hello")
        assert "has no agent 'worke'" in outcome.answer
        assert "Did you mean 'worker'?" in outcome.answer

    async def test_what_may_pass_is_tried_again(self) -> None:
        async with Federation(asking(ask_then_tell("worker@b"), "worker@b"), answering(echo)) as both:
            tries = 0

            async def trouble(message: MAILInterswarmMessage) -> None:
                nonlocal tries
                tries += 1
                if tries <= 5:
                    raise PeerUnavailable("503: busy")

            both.trouble = trouble
            outcome = await both["a"].ask("hello")
            assert outcome.answer == "hello, said the worker"
            errors = outcome.of(EventKind.INTERSWARM_MESSAGE_ERROR)
            assert len(errors) == 5
            assert "can't reach swarm b, and will try again" in errors[0].text
            task = await both["a"].task(outcome.key)
            assert task.peers["b"].failures == 0

    async def test_after_a_dozen_tries_it_comes_back(self) -> None:
        async with Federation(asking(ask_then_tell("worker@b"), "worker@b"), answering(echo)) as both:
            tries = 0

            async def trouble(message: MAILInterswarmMessage) -> None:
                nonlocal tries
                tries += 1
                raise PeerUnavailable("nobody there")

            both.trouble = trouble
            outcome = await both["a"].ask("hello")
        assert "no delivery after 12 tries: nobody there" in outcome.answer
        assert tries >= 12

    async def test_an_answer_that_was_lost_on_its_way_is_not_a_second_message(self) -> None:
        """The peer has taken the message, and the sender has not heard of it."""
        async with Federation(asking(ask_then_tell("worker@b"), "worker@b"), answering(echo)) as both:

            async def trouble(message: MAILInterswarmMessage) -> None:
                if both.taken[message.message_id] < 3:
                    raise PeerUnavailable("the line broke")

            both.after = trouble
            outcome = await both["a"].ask("hello")
            await both.settle()
            assert outcome.answer == "hello, said the worker"
            assert set(both.taken.values()) == {3}
            key = TaskKey("swarm:a@b", outcome.key.task_id)
            letters = [
                entry for entry in await both["b"].history("worker", key) if entry.get("role") == "user"
            ]
            assert len(letters) == 1


class TestTools:
    async def test_an_interrupt(self) -> None:
        def policy(view: View) -> Any:
            if len(view.messages) == 1:
                return [request("worker@b", "work"), interrupt("worker@b", "hurry"), wait()]
            return [complete(view.mail.body)]

        def worker(view: View) -> Any:
            hurried = any(letter.subject == "Interrupt" for letter in view.messages)
            if view.mail.subject == "Interrupt":
                return [wait()]
            return [respond("supervisor@a", "in a hurry" if hurried else "at leisure")]

        async with Federation(asking(policy, "worker@b"), answering(worker)) as both:
            outcome = await both["a"].ask("hello")
        assert outcome.answer in ("in a hurry", "at leisure")

    @pytest.mark.parametrize("swarms", [["b", "c"], []])
    async def test_a_broadcast_to_other_swarms(self, swarms: list[str]) -> None:
        heard: list[str] = []

        def listen(name: str) -> Any:
            def policy(view: View) -> Any:
                heard.append(f"{name}: {view.mail.body} from {view.mail.sender}")
                return [call("acknowledge_broadcast")]

            return policy

        def policy(view: View) -> Any:
            if len(view.messages) == 1:
                told = call("send_interswarm_broadcast", subject="s", body="news", target_swarms=swarms)
                return [told, wait()]
            return [complete(view.mail.body)] if len(view.messages) == 3 else [wait()]

        def swarm(name: str) -> SwarmCore:
            return build_swarm({"boss": listen(name)}, name=name)

        async with Federation(asking(policy), swarm("b"), swarm("c")) as all3:
            submitted = await all3["a"].submit("hello")
            await all3.settle()
            all3["a"].clock.advance(61)  # type: ignore[attr-defined]
            outcome = await all3["a"].outcome(submitted)
            await all3.settle()
        assert "all@c has not answered in time" in outcome.answer
        assert sorted(heard) == ["b: news from supervisor@a", "c: news from supervisor@a"]

    async def test_discovery_is_an_action(self) -> None:
        def policy(view: View) -> Any:
            if len(view.messages) == 1:
                return [call("discover_swarms", discovery_urls=["http://one", "http://two"])]
            return [complete(view.mail.body)]

        async with Federation(asking(policy)) as alone:
            outcome = await alone["a"].ask("hello")
        assert outcome.answer == "discover_swarms: found 2"

    @pytest.mark.parametrize("tool", ["discover_swarms", "send_interswarm_broadcast"])
    async def test_only_supervisors_that_may_write_elsewhere(self, tool: str) -> None:
        def policy(view: View) -> Any:
            if len(view.messages) == 1:
                return [call(tool, discovery_urls=["http://one"], subject="s", body="b")]
            return [complete(view.mail.body)]

        async with Federation(build_swarm({"boss": policy}, name="a")) as alone:
            outcome = await alone["a"].ask("hello")
        assert outcome.answer == f"{tool} is only for supervisors that may write to other swarms"

    async def test_who_may_be_written_to(self) -> None:
        async with Federation(asking(ask_then_tell("worker@b"), "other@b"), answering(echo)) as both:
            outcome = await both["a"].ask("hello")
        assert "you can't write to 'worker@b'; you can write to other@b" in str(
            [event.text for event in outcome.of(EventKind.AGENT_ERROR)]
        )


class TestLimits:
    async def test_hops(self) -> None:
        federation = Federation(asking(ask_then_tell("worker@b"), "worker@b"), answering(echo))
        federation.hop_limit = 0
        async with federation as both:
            outcome = await both["a"].ask("hello")
        assert "the task has passed through 1 swarms, and the limit is 0" in outcome.answer

    async def test_steps_of_the_asker(self) -> None:
        async with Federation(asking(ask_then_tell("worker@b"), "worker@b"), answering(echo)) as both:
            outcome = await both["a"].ask("hello", steps=3)
            task = await both["b"].task(TaskKey("swarm:a@b", outcome.key.task_id))
        assert task.limits.steps == 2


class TestPeople:
    async def test_one_target(self) -> None:
        async with Federation(asking(turns()), answering(echo)) as both:
            outcome = await both["a"].ask("hello", targets=("worker@b",))
            assert outcome.answer == "hello, said the worker"
            assert outcome.response.msg_type == "response"
            assert outcome.response.message.sender.address == "worker@b"
            await both.settle()
            assert both.sent[0][0].payload.sender.model_dump() == {"address_type": "user", "address": "ann@a"}
            end = both.sent[-1][0].payload
            assert end.subject == "::task_complete::"
            assert end.sender.model_dump() == {"address_type": "user", "address": "ann@a"}

    async def test_several(self) -> None:
        async with Federation(asking(turns()), answering(echo, "b"), answering(echo, "c")) as all3:
            outcome = await all3["a"].ask("hi", targets=("worker@b", "worker@c"), msg_type="broadcast")
        assert sorted(outcome.answer.split("\n\n")) == [
            "worker@b: hi, said the worker",
            "worker@c: hi, said the worker",
        ]

    async def test_one_that_cannot_be_reached(self) -> None:
        async with Federation(asking(turns()), answering(echo)) as both:
            both.trouble = refuse
            outcome = await both["a"].ask("hello", targets=("worker@b",))
        assert outcome.task.status is TaskStatus.FAILED
        assert "could not be delivered to swarm b" in outcome.answer

    async def test_it_goes_on(self) -> None:
        async with Federation(asking(turns()), answering(echo)) as both:
            first = await both["a"].ask("one", targets=("worker@b",))
            second = await both["a"].ask("two", targets=("worker@b",), task_id=first.key.task_id)
        assert second.answer == "two, said the worker"


class TestChaos:
    """Messages that don't arrive, answers that are lost, and messages that arrive twice, all at random."""

    @pytest.mark.parametrize("seed", range(sized(fast=2, full=2, soak=200)))
    async def test_every_task_ends_with_its_answer(self, seed: int) -> None:
        luck = random.Random(seed)

        targets = ("supervisor@b", "worker@c")
        middle = asking(relay, "worker@c", name="b")
        async with Federation(
            asking(ask_then_tell(*targets), *targets), middle, answering(echo, "c")
        ) as all3:

            async def trouble(message: MAILInterswarmMessage) -> None:
                await asyncio.sleep(luck.random() / 1_000)
                if luck.random() < 0.2:
                    raise PeerUnavailable("lost on its way")

            async def lost_answer(message: MAILInterswarmMessage) -> None:
                if luck.random() < 0.2:
                    raise PeerUnavailable("taken, but the sender does not know")

            all3.trouble, all3.after = trouble, lost_answer
            outcomes = await asyncio.gather(*(all3["a"].ask(f"hello {n}") for n in range(50)))
            for n, outcome in enumerate(outcomes):
                answers = sorted(outcome.answer.split(" | "))
                assert answers == [f"hello {n}, said the worker", f"hello {n}, said the worker to b"]
            await all3.settle()
            assert max(all3.taken.values()) > 1
            for rig in all3.rigs.values():
                for outcome in outcomes:
                    for instance in ("user:ann@a", "swarm:a@b", "swarm:a@c", "swarm:b@c"):
                        task = await rig.store.load(TaskKey(instance, outcome.key.task_id))
                        assert task is None or (task.pending, task.is_running) == ({}, False)


class TestManyAtOnce:
    """Several questions of one swarm to another, in one task."""

    async def test_each_is_answered_where_the_other_end_completes(self) -> None:
        """What is asked while the other end works on the first is a generation of its own there."""

        def policy(view: View) -> Any:
            if len(view.messages) == 1:
                return [request("boss@b", "one"), request("boss@b", "two"), wait()]
            return (
                [complete(" ".join(letter.body for letter in view.messages[1:]))]
                if len(view.messages) == 3
                else [wait()]
            )

        async with Federation(
            asking(policy, "boss@b"),
            build_swarm({"boss": lambda view: [complete(f"done {view.mail.body}")]}, name="b"),
        ) as both:
            outcome = await both["a"].ask("hello")
        assert sorted(outcome.answer.split(" done ")) in (["done one", "two"], ["done two", "one"])

    async def test_agents_of_one_swarm_asked_by_a_person(self) -> None:
        worker = build_agent(echo, name="worker")
        helper = build_agent(echo, name="helper")
        boss = build_agent(turns(), supervises=True, name="boss")
        b = build_swarm({"boss": boss, "worker": worker, "helper": helper}, name="b")
        async with Federation(asking(turns()), b) as both:
            outcome = await both["a"].ask("hi", targets=("worker@b", "helper@b"), msg_type="broadcast")
        assert outcome.answer.count("hi, said the worker") == 2

    async def test_agents_of_a_swarm_that_nobody_knows(self) -> None:
        async with Federation(asking(turns())) as alone:
            with pytest.raises(SwarmNotFound, match="swarm 'z' is not registered here"):
                await alone["a"].ask("hi", targets=("x@z", "y@z"), msg_type="broadcast")
            assert (await alone["a"].store.list_tasks("user:ann@a")).tasks == []

    async def test_agents_of_one_swarm_that_refuses_both(self) -> None:
        async with Federation(asking(turns()), answering(echo)) as both:
            both.trouble = refuse
            outcome = await both["a"].ask("hi", targets=("x@b", "y@b"), msg_type="broadcast")
        assert outcome.answer.count("could not be delivered to swarm b") == 2


class TestEnds:
    async def test_word_of_the_end_reaches_who_was_asked_in_the_last_turn(self) -> None:
        policy = turns([request("worker@b"), complete("never mind")])
        async with Federation(asking(policy, "worker@b"), answering(echo)) as both:
            outcome = await both["a"].ask("hello")
            await both.settle()
            task = await both["b"].task(TaskKey("swarm:a@b", outcome.key.task_id))
        assert task.status is TaskStatus.COMPLETED

    async def test_word_of_a_failure_comes_after_what_was_asked_before(self) -> None:
        def policy(view: View) -> Any:
            if len(view.messages) == 1:
                return [request("worker@b"), wait()]
            raise AssertionError("unreachable")

        release = asyncio.Event()

        async def hold(message: MAILInterswarmMessage) -> None:
            await release.wait()

        async with Federation(asking(policy, "worker@b"), answering(echo)) as both:
            both.trouble = hold
            submitted = await both["a"].submit("hello", timeout=5)
            await asyncio.sleep(0.05)
            both["a"].clock.advance(10)  # type: ignore[attr-defined]
            outcome = await both["a"].outcome(submitted)
            assert outcome.task.status is TaskStatus.FAILED
            release.set()
            await both.settle()
            task = await both["b"].task(TaskKey("swarm:a@b", outcome.key.task_id))
        assert task.status is TaskStatus.COMPLETED

    async def test_an_agent_cannot_end_another_swarms_part(self) -> None:
        def policy(view: View) -> Any:
            if len(view.messages) == 1:
                return [
                    respond("worker@b", "nothing", subject="::task_complete::"),
                    request("worker@b", "please"),
                    wait(),
                ]
            return [complete(view.mail.body)]

        def worker(view: View) -> Any:
            return [respond(view.mail.sender, "done")] if view.mail.body == "please" else [wait("more")]

        async with Federation(asking(policy, "worker@b"), answering(worker)) as both:
            outcome = await both["a"].ask("hello")
            assert {m.payload.subject for m, _ in both.sent[:1]} == {"task_complete"}
        assert "done" in outcome.answer or "worker" in outcome.answer

    async def test_nobody_waits_for_ever(self) -> None:
        """The other end has lost the task: after an hour the asking agent gets an error."""

        def policy(view: View) -> Any:
            return [request("worker@b"), wait()] if len(view.messages) == 1 else [complete(view.mail.body)]

        async with Rig(asking(policy, "worker@b")) as rig:
            rig.runtime.peers = Swallow()
            submitted = await rig.submit("hello")
            await rig.workers.idle()
            rig.clock.advance(3_601)  # type: ignore[attr-defined]
            outcome = await rig.outcome(submitted)
        assert outcome.answer == "worker@b has not answered in time. A later answer still reaches you."
