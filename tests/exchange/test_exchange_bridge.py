"""`ExchangeBridge` and `exchange_actions`: agents of a swarm in an exchange, in memory and in SQLite."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from exchange_worlds import Awaited, World, arrives
from support.services.templates import agent, template

from mail import MAILAction, MAILSwarm
from mail.agentmail import HelpRequest, Parser
from mail.core.task.task import TaskKey
from mail.errors import BadRequest, PayloadTooLarge, StoreUnavailable
from mail.exchange import Exchange, ExchangeBridge, Mail, exchange_actions
from mail.exchange.bridge import agent_id, replies_to, settled
from mail.stdlib.agentmail.actions import ask_for_help
from mail.testing.agents import Rule, View, call, complete

ANN, LIZ = uuid4(), uuid4()


class Echo:
    """What an agent does: it answers with what it has read, and counts its turns."""

    def __init__(self) -> None:
        self.turns = 0
        self.answer = "heard: {}"

    def __call__(self, view: View) -> Any:
        self.turns += 1
        return [complete(self.answer.format(view.mail.body))]


def slow(gate: asyncio.Event, answer: str) -> Rule:
    """An agent that answers when the gate is opened."""

    async def policy(_: View) -> Any:
        await gate.wait()
        return [complete(answer)]

    return policy


@pytest.fixture(params=["memory", "sqlite"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return World(request.param, tmp_path)


@pytest.fixture
async def exchange(world: World) -> AsyncIterator[Any]:
    async with world.open() as exchange:
        yield exchange


def plain(exchange: Any) -> Any:
    """The exchange as a bridge takes it."""
    return exchange.exchange if isinstance(exchange, Awaited) else exchange


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def build(stack: AsyncExitStack, *agents: Any, **fields: Any) -> MAILSwarm:
    swarm = template(*agents, **fields).instantiate({"user_token": "x"}, "bridge")
    stack.push_async_callback(swarm.shutdown)
    return swarm


async def joined(exchange: Any, swarm: MAILSwarm, **options: Any) -> ExchangeBridge:
    """A bridge whose agents are in the exchange, and so is Ann, a person."""
    bridge = ExchangeBridge(plain(exchange), swarm, **options)
    await bridge.register()
    await exchange.register(ANN)
    return bridge


async def with_slow(
    exchange: Any, stack: AsyncExitStack, gate: asyncio.Event, **options: Any
) -> ExchangeBridge:
    """A bridge of an agent that answers at once, and of one that waits for the gate."""
    policies = {"echo": Echo(), "slow": slow(gate, "at last")}
    swarm = build(stack, *(agent(name, policy, supervises=True) for name, policy in policies.items()))
    return await joined(exchange, swarm, **options)


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def bridge(exchange: Any, echo: Echo, stack: AsyncExitStack) -> ExchangeBridge:
    swarm = build(stack, agent("echo", echo, supervises=True), agent("inner"))
    return await joined(exchange, swarm, people={"Ann": ANN})


def echo_id(bridge: ExchangeBridge) -> UUID:
    return bridge.agent_ids["echo"]


async def messages(bridge: ExchangeBridge, task_id: str) -> list[Any]:
    """What was submitted to a task."""
    runtime = bridge.swarm.runtime
    events = await runtime.engine.store.read_events(TaskKey(str(runtime.principal), task_id))
    return [
        event.message
        for event in events
        if event.message
        and event.message.sender.address_type == "user"
        and event.message.msg_type == "request"
    ]


class TestMail:
    async def test_a_mail_is_answered_on_its_channel(self, exchange: Any, bridge: ExchangeBridge) -> None:
        mail = await exchange.send(ANN, echo_id(bridge), "Hello!", "greetings")
        assert await bridge.step() == 1
        (answer,) = await exchange.receive(ANN)
        assert (answer.sender, answer.channel) == (echo_id(bridge), "greetings")
        assert "Hello!" in answer.content
        assert answer.metadata == {"in_reply_to": str(mail.id), "replies": 1}
        assert await exchange.receive(echo_id(bridge)) == []
        assert await bridge.step() == 0
        (message,) = await messages(bridge, bridge.task_id("echo", ANN, "greetings"))
        assert message.sender.address == "Ann"
        assert message.message.subject == "greetings"
        assert message.message.body == "Hello!"

    async def test_a_conversation_is_one_task(self, exchange: Any, bridge: ExchangeBridge) -> None:
        await exchange.register(LIZ)
        for sender, text, channel in (
            (ANN, "one", None),
            (ANN, "two", None),
            (ANN, "three", "other"),
            (LIZ, "four", None),
        ):
            await exchange.send(sender, echo_id(bridge), text, channel)
        assert await bridge.step() == 4
        tasks = [bridge.task_id("echo", *place) for place in ((ANN, None), (ANN, "other"), (LIZ, None))]
        assert len({UUID(task) for task in tasks}) == 3
        bodies = [[m.message.body for m in await messages(bridge, task)] for task in tasks]
        assert bodies == [["one", "two"], ["three"], ["four"]]

    @pytest.mark.parametrize(
        ("content", "body"),
        [({"task": ["ä"]}, '{"task": ["ä"]}'), (None, "null"), ("", '""'), (3, "3"), ("text", "text")],
    )
    async def test_content_that_is_no_text_is_read_as_json(
        self, exchange: Any, bridge: ExchangeBridge, content: Any, body: str
    ) -> None:
        await exchange.send(ANN, echo_id(bridge), content)
        await bridge.step()
        (message,) = await messages(bridge, bridge.task_id("echo", ANN))
        assert message.message.body == body

    async def test_a_broadcast_is_answered_to_its_sender(self, exchange: Any, bridge: ExchangeBridge) -> None:
        await exchange.register(LIZ)
        await exchange.send(ANN, None, "Hello, all!")
        await bridge.step()
        assert len(await exchange.receive(ANN)) == 1
        assert [mail.content for mail in await exchange.receive(LIZ)] == ["Hello, all!"]

    async def test_an_empty_answer_is_not_sent(
        self, exchange: Any, bridge: ExchangeBridge, echo: Echo
    ) -> None:
        echo.answer = " "
        await exchange.send(ANN, echo_id(bridge), "Hello!")
        assert await bridge.step() == 1
        assert await exchange.receive(ANN) == []
        assert await exchange.receive(echo_id(bridge)) == []

    async def test_an_answer_that_only_tells_of_a_failure_says_so(
        self, exchange: Any, stack: AsyncExitStack
    ) -> None:
        def fail(_: View) -> Any:
            raise RuntimeError("broken")

        bridge = await joined(exchange, build(stack, agent("echo", fail, supervises=True)))
        await exchange.send(ANN, echo_id(bridge), "Hello!")
        assert await bridge.step() == 1
        (answer,) = await exchange.receive(ANN)
        assert answer.metadata["failed"] is True

    async def test_two_agents_do_not_answer_each_other_forever(
        self, exchange: Any, stack: AsyncExitStack
    ) -> None:
        echoes = Echo(), Echo()
        swarm = build(
            stack, *(agent(name, echo, supervises=True) for name, echo in zip("ab", echoes, strict=True))
        )
        bridge = ExchangeBridge(plain(exchange), swarm, max_replies=3)
        await bridge.register()
        a, b = bridge.agent_ids.values()
        await exchange.send(a, b, "Hello!")
        while await bridge.step():
            pass
        assert [echo.turns for echo in echoes] == [2, 2]


class TestAgents:
    async def test_agents_that_users_may_write_to_take_part(self, bridge: ExchangeBridge) -> None:
        assert bridge.agent_ids == {"echo": agent_id("team", "echo")}

    async def test_ids_may_be_given(self, exchange: Any, bridge: ExchangeBridge) -> None:
        mine = uuid4()
        other = ExchangeBridge(plain(exchange), bridge.swarm, {"echo": mine})
        await other.register()
        assert await exchange.has(mine)
        assert ExchangeBridge(plain(exchange), bridge.swarm, ["echo"]).agent_ids == bridge.agent_ids

    async def test_an_agent_that_nobody_may_write_to_is_refused(self, bridge: ExchangeBridge) -> None:
        for name in ("inner", "nobody"):
            with pytest.raises(BadRequest, match="not an agent that users may write to"):
                ExchangeBridge(bridge.exchange, bridge.swarm, [name])

    async def test_registering_again_changes_nothing(self, exchange: Any, bridge: ExchangeBridge) -> None:
        await exchange.send(ANN, echo_id(bridge), "Hello!")
        await exchange.sync()
        await bridge.register()
        assert len(await exchange.receive(echo_id(bridge))) == 1


class TestSafety:
    async def test_mail_stays_in_the_inbox_until_it_is_answered(
        self, exchange: Any, stack: AsyncExitStack
    ) -> None:
        gate = asyncio.Event()
        swarm = build(stack, agent("echo", slow(gate, "done"), supervises=True))
        bridge = await joined(exchange, swarm, timeout=0.2)
        await exchange.send(ANN, echo_id(bridge), "Hello!")
        with pytest.raises(TimeoutError):
            await bridge.step()
        assert len(await exchange.receive(echo_id(bridge))) == 1
        gate.set()
        bridge._timeout = 60.0
        assert await bridge.step() == 1
        assert [mail.content for mail in await exchange.receive(ANN)] == ["done"]
        assert len(await messages(bridge, bridge.task_id("echo", ANN))) == 1

    @pytest.mark.parametrize("dies_at", ["send", "remove_mail"])
    async def test_what_was_submitted_before_a_death_is_not_submitted_again(
        self, dies_at: str, tmp_path: Path, stack: AsyncExitStack
    ) -> None:
        """A bridge dies over an answer; the next one, with a new swarm on the same file, takes over."""
        world = World("sqlite", tmp_path)
        exchange = await stack.enter_async_context(world.open())
        await exchange.register(ANN)
        echo = Echo()

        class Death(BaseException):
            pass

        async def die(*_: Any, **__: Any) -> Any:
            raise Death

        def new_swarm() -> MAILSwarm:
            return template(agent("echo", echo, supervises=True)).instantiate(
                {"user_token": "x"}, "bridge", database=str(tmp_path / "mail.db")
            )

        swarm = new_swarm()
        first = ExchangeBridge(exchange, swarm)
        await first.register()
        for n in range(2):  # the second one is not the first of its task
            mail = await exchange.send(ANN, echo_id(first), f"number {n}")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(exchange, dies_at, die)
                with pytest.raises(Death):
                    await first.step()
            await swarm.shutdown()
            swarm = new_swarm()
            first = ExchangeBridge(exchange, swarm)
            assert await first.step() == 1
            got = [mail for mail in await exchange.receive(ANN) if f"number {n}" in mail.content]
            assert len(got) == (1 if dies_at == "send" else 2)  # the answer may come again, and says to what
            assert {answer.metadata["in_reply_to"] for answer in got} == {str(mail.id)}
            assert len(await messages(first, first.task_id("echo", ANN))) == n + 1
            assert echo.turns == n + 1
        await swarm.shutdown()

    async def test_what_was_read_before_it_was_answered_is_not_answered_again(
        self, exchange: Any, stack: AsyncExitStack
    ) -> None:
        """One agent's inbox is read; while another's is, the first one answers."""
        gate, is_reading = asyncio.Event(), asyncio.Event()
        first = Echo()
        swarm = build(stack, agent("first", first, supervises=True), agent("second", Echo(), supervises=True))
        bridge = await joined(exchange, swarm)
        waiting = bridge._waiting

        async def read_slowly() -> Any:
            found = await waiting()
            is_reading.set()
            await gate.wait()
            return found

        await exchange.send(ANN, bridge.agent_ids["first"], "Hello!")
        await exchange.sync()
        bridge._waiting = read_slowly  # type: ignore[method-assign]
        one = asyncio.create_task(bridge.step())
        other = asyncio.create_task(bridge.step())
        await is_reading.wait()
        gate.set()
        assert await asyncio.wait_for(asyncio.gather(one, other), 60) == [1, 0]
        gate.clear()
        is_reading.clear()
        await exchange.send(ANN, bridge.agent_ids["first"], "Hello again!")
        await exchange.sync()
        bridge._waiting = waiting  # type: ignore[method-assign]
        (work,) = await bridge._start_work()
        bridge._waiting = read_slowly  # type: ignore[method-assign]
        late = asyncio.create_task(bridge.step())
        await is_reading.wait()
        assert await work == 1
        gate.set()
        assert await late == 0
        assert first.turns == 2
        assert len(await exchange.receive(ANN)) == 2

    async def test_a_step_that_is_cancelled_strands_no_mail(
        self, exchange: Any, bridge: ExchangeBridge
    ) -> None:
        await exchange.send(ANN, echo_id(bridge), "Hello!")
        await exchange.sync()
        (work,) = await bridge._start_work()
        work.cancel()  # before it has run
        with pytest.raises(asyncio.CancelledError):
            await work
        for n in range(5):
            await exchange.send(ANN, echo_id(bridge), "Hello!", str(n))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(bridge.step(), 0)
        while await bridge.step():
            pass
        assert await exchange.receive(echo_id(bridge)) == []
        assert len(await exchange.receive(ANN)) == 6

    async def test_a_slow_agent_keeps_nobody_elses_answer_back(
        self, exchange: Any, stack: AsyncExitStack
    ) -> None:
        gate = asyncio.Event()
        bridge = await with_slow(exchange, stack, gate, timeout=1.0)
        await exchange.send(ANN, None, "Hello!")
        with pytest.raises(TimeoutError):
            await bridge.step()
        assert len(await exchange.receive(ANN, bridge.agent_ids["echo"])) == 1
        gate.set()


class Stubborn:
    """Something that can't even be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no")


CYCLE: list[Any] = []
CYCLE.append(CYCLE)

DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]

UNREADABLE = {
    "a key": {(1, 2): 3},
    "a cycle": CYCLE,
    "deep": DEEP,
    "half a character": "\ud800",
    "half a character inside": ["\ud800"],
    "stubborn": Stubborn(),
}


class TestMailThatNobodyCanAnswer:
    @pytest.fixture
    async def memory(self, echo: Echo, stack: AsyncExitStack) -> ExchangeBridge:
        bridge = ExchangeBridge(Exchange(), build(stack, agent("echo", echo, supervises=True)))
        await bridge.register()
        for owner in (ANN, LIZ):
            await settled(bridge.exchange.register(owner))
        return bridge

    @pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
    async def test_its_sender_is_told_why_and_others_are_answered(
        self, memory: ExchangeBridge, content: Any
    ) -> None:
        exchange: Any = memory.exchange
        mail = exchange.send(ANN, echo_id(memory), content, "x")
        exchange.send(ANN, echo_id(memory), "good", "x")
        exchange.send(LIZ, echo_id(memory), "good")
        assert await memory.step() == 3
        failed, answer = exchange.receive(ANN)
        assert failed.metadata == {"in_reply_to": str(mail.id), "replies": 1, "failed": True}
        assert failed.content.startswith("echo can't answer: ")
        assert (failed.channel, answer.channel) == ("x", "x")
        assert "failed" not in answer.metadata
        assert len(exchange.receive(LIZ)) == 1
        assert exchange.receive(echo_id(memory)) == []
        assert await memory.step() == 0

    async def test_a_channel_that_is_no_text(self, memory: ExchangeBridge) -> None:
        exchange: Any = memory.exchange
        exchange.send(ANN, echo_id(memory), "hello", "\ud800")
        assert await memory.step() == 1
        (failed,) = exchange.receive(ANN)
        assert failed.metadata["failed"] is True

    @pytest.mark.parametrize("refused", [1, 2])
    async def test_an_answer_that_the_exchange_refuses(
        self, exchange: Any, bridge: ExchangeBridge, monkeypatch: pytest.MonkeyPatch, refused: int
    ) -> None:
        """It is too large; where not even the reason can be sent the mail is taken all the same."""
        send, tried = bridge.exchange.send, []

        def refuse(owner: UUID, *args: Any, **kwargs: Any) -> Any:
            if owner == echo_id(bridge):
                tried.append(args[1])
                if len(tried) <= refused:
                    raise PayloadTooLarge("a mail can have at most 350000 bytes")
            return send(owner, *args, **kwargs)

        monkeypatch.setattr(type(bridge.exchange), "send", lambda _, *args, **kwargs: refuse(*args, **kwargs))
        mail = await exchange.send(ANN, echo_id(bridge), "Hello!")
        await exchange.send(ANN, echo_id(bridge), "Hello again!")
        assert await bridge.step() == 2
        got = [
            (answer.metadata["in_reply_to"] == str(mail.id), answer.content)
            for answer in await exchange.receive(ANN)
        ]
        told = [(True, "echo can't answer: a mail can have at most 350000 bytes")]
        assert got[:-1] == (told if refused == 1 else [])
        assert "Hello again!" in got[-1][1]
        assert await exchange.receive(echo_id(bridge)) == []

    async def test_what_the_exchange_itself_fails_at_is_tried_again(
        self, exchange: Any, bridge: ExchangeBridge, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await exchange.send(ANN, echo_id(bridge), "Hello!")

        def fail(*_: Any, **__: Any) -> Any:
            raise StoreUnavailable

        with monkeypatch.context() as patch:
            patch.setattr(type(bridge.exchange), "send", fail)
            with pytest.raises(StoreUnavailable):
                await bridge.step()
        assert len(await exchange.receive(echo_id(bridge))) == 1
        assert await bridge.step() == 1
        assert len(await exchange.receive(ANN)) == 1


class TestRunning:
    async def test_run_answers_until_stop(self, exchange: Any, bridge: ExchangeBridge) -> None:
        running = asyncio.create_task(bridge.run(0.01))
        await exchange.send(ANN, echo_id(bridge), "Hello!")
        await arrives(exchange, ANN)
        bridge.stop()
        await asyncio.wait_for(running, 60)
        assert await exchange.receive(echo_id(bridge)) == []

    async def test_run_does_not_wait_for_the_slow(self, exchange: Any, stack: AsyncExitStack) -> None:
        gate = asyncio.Event()
        bridge = await with_slow(exchange, stack, gate)
        running = asyncio.create_task(bridge.run(0.01))
        await exchange.send(ANN, None, "Hello!")
        await arrives(exchange, ANN, bridge.agent_ids["echo"])
        bridge.stop()
        await asyncio.sleep(0.05)
        assert not running.done()
        gate.set()
        await asyncio.wait_for(running, 60)
        assert [m.content for m in await exchange.receive(ANN, bridge.agent_ids["slow"])] == ["at last"]

    async def test_what_fails_is_logged_and_tried_again(
        self, exchange: Any, bridge: ExchangeBridge, caplog: pytest.LogCaptureFixture
    ) -> None:
        wait, fails = bridge.swarm.runtime.wait, [True]

        async def fail_once(*args: Any) -> Any:
            if fails:
                fails.pop()
                raise TimeoutError("too slow")
            return await wait(*args)

        bridge.swarm.runtime.wait = fail_once  # type: ignore[method-assign]
        with caplog.at_level(logging.ERROR, "mail.exchange"):
            running = asyncio.create_task(bridge.run(0.01))
            await exchange.send(ANN, echo_id(bridge), "Hello!")
            await arrives(exchange, ANN)
            bridge.stop()
            await asyncio.wait_for(running, 60)
        assert "could not answer" in caplog.text
        assert len(await exchange.receive(ANN)) == 1
        assert len(await messages(bridge, bridge.task_id("echo", ANN))) == 1


HELP = {"issue_type": "STUCK", "problem": "Two specs.", "what_i_tried": "Both.", "question": "Which one?"}


def stuck(view: View) -> Any:
    """An agent that asks Ann about a bead, or lets her hold something."""
    match view.mail.body:
        case "Help yourself.":
            return [call("ask_for_help", bead_id="b-1", **HELP)]
        case "Help yourself twice.":
            return [call("ask_for_help", bead_id="b-1", **HELP), call("ask_for_help", bead_id="b-2", **HELP)]
        case "Hold it.":
            return [call("hold", what="the door")]
        case "Pay Bob.":
            return [complete(view.results[-1])] if view.results else [call("pay", to="Bob")]
        case body:
            return [complete(f"{view.mail.subject}: {body}")]


class TestQuestions:
    @pytest.fixture
    async def bridge(self, exchange: Any, stack: AsyncExitStack) -> ExchangeBridge:
        return await joined(exchange, self.swarm(stack), people={"Ann": ANN}, max_replies=2)

    def swarm(self, stack: AsyncExitStack, **place: Any) -> MAILSwarm:
        actions = [ask_for_help, MAILAction("hold", "Hold it.", {"what": "text"}, lambda what: what)]
        schema = {"type": "object", "properties": {"to": {"type": "string"}}}
        actions.append(
            MAILAction("pay", "Pay.", schema, lambda given: f"paid {given['to']}", needs_approval=True)
        )
        agents = agent("echo", stuck, supervises=True, actions=actions)
        swarm = template(agents, breakpoint_tools=["hold"]).instantiate(
            {"user_token": "x"}, "bridge", **place
        )
        stack.push_async_callback(swarm.shutdown)
        return swarm

    async def heard(self, exchange: Any) -> Mail:
        (mail,) = await exchange.receive(ANN)
        await exchange.remove_mail(ANN, mail)
        return mail

    async def test_a_question_is_text_and_the_next_mail_is_its_answer(
        self, exchange: Any, bridge: ExchangeBridge
    ) -> None:
        mail = await exchange.send(ANN, echo_id(bridge), "Help yourself.", "work")
        assert await bridge.step() == 1
        question = await self.heard(exchange)
        assert (question.channel, question.metadata["in_reply_to"]) == ("work", str(mail.id))
        (asks,) = question.metadata["asks"]
        assert (asks["name"], asks["subject"]) == ("ask_for_help", "[b-1] HELP_REQUEST")
        form = Parser(strict=True).parse({"subject": asks["subject"], "body": question.content}).parsed
        assert isinstance(form, HelpRequest)
        assert form.question == "Which one?"
        await exchange.send(ANN, echo_id(bridge), "Hello!", "elsewhere")
        await bridge.step()
        assert (await self.heard(exchange)).content == "elsewhere: Hello!"
        await exchange.send(ANN, echo_id(bridge), "The first.", "work")
        await exchange.send(ANN, echo_id(bridge), "Thanks.", "work")
        assert await bridge.step() == 2
        answers = await exchange.receive(ANN)
        assert [each.content for each in answers] == ["HELP_RESPONSE: The first.", "work: Thanks."]
        assert all("asks" not in each.metadata for each in answers)

    async def test_two_questions_get_the_same_answer(self, exchange: Any, bridge: ExchangeBridge) -> None:
        await exchange.send(ANN, echo_id(bridge), "Help yourself twice.")
        await bridge.step()
        question = await self.heard(exchange)
        assert [asks["subject"][:5] for asks in question.metadata["asks"]] == ["[b-1]", "[b-2]"]
        assert question.content.count("## Question") == 2
        await exchange.send(ANN, echo_id(bridge), "The first.")
        await bridge.step()
        assert "The first." in (await self.heard(exchange)).content

    async def test_another_breakpoint_tool_waits_for_its_result(
        self, exchange: Any, bridge: ExchangeBridge
    ) -> None:
        await exchange.send(ANN, echo_id(bridge), "Hold it.")
        await bridge.step()
        question = await self.heard(exchange)
        assert question.content == 'echo waits for the result of hold with {"what": "the door"}'
        await exchange.send(ANN, echo_id(bridge), {"held": True})
        await bridge.step()
        assert '{"held": true}' in (await self.heard(exchange)).content

    @pytest.mark.parametrize(
        ("reply", "result"),
        [(" Approve ", "SUCCESS: paid Bob"), ("No, he is rich.", "it was not run: No, he is rich.")],
    )
    async def test_a_call_is_approved_or_rejected_by_mail(
        self, exchange: Any, bridge: ExchangeBridge, reply: str, result: str
    ) -> None:
        await exchange.send(ANN, echo_id(bridge), "Pay Bob.")
        await bridge.step()
        question = (await self.heard(exchange)).content
        assert question == (
            'echo asks for approval of pay with {"to": "Bob"}. '
            "Reply 'approve' to run it; any other reply rejects it, as the reason."
        )
        await exchange.send(ANN, echo_id(bridge), reply)
        await bridge.step()
        assert (await self.heard(exchange)).content.endswith(result)

    async def test_a_question_that_is_not_sent_is_not_answered(
        self, exchange: Any, bridge: ExchangeBridge
    ) -> None:
        await exchange.send(ANN, echo_id(bridge), "Help yourself.", metadata={"replies": 2})
        assert await bridge.step() == 1
        assert await exchange.receive(ANN) == []
        await exchange.send(ANN, echo_id(bridge), "Hello!")
        await bridge.step()
        assert (await self.heard(exchange)).content == "New Message: Hello!"

    async def test_an_answer_is_not_given_twice_after_a_crash(
        self, tmp_path: Path, stack: AsyncExitStack
    ) -> None:
        exchange: Any = await stack.enter_async_context(World("sqlite", tmp_path).open())
        await exchange.register(ANN)
        place = {"database": str(tmp_path / "mail.db")}
        swarm = self.swarm(stack, **place)
        bridge = ExchangeBridge(exchange, swarm)
        await bridge.register()
        await exchange.send(ANN, echo_id(bridge), "Help yourself.")
        await bridge.step()
        await self.heard(exchange)
        await exchange.send(ANN, echo_id(bridge), "The first.")

        async def die(*_: Any, **__: Any) -> Any:
            raise asyncio.CancelledError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(exchange, "send", die)
            with pytest.raises(asyncio.CancelledError):
                await bridge.step()
        await swarm.shutdown()
        again = ExchangeBridge(exchange, self.swarm(stack, **place))
        assert await again.step() == 1
        assert (await self.heard(exchange)).content == "HELP_RESPONSE: The first."
        read = await again.swarm.runtime.read_messages(again.task_id("echo", ANN))
        assert [each.message.body for each in read].count("The first.") == 1


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": "x"},
        {"timeout": -1},
        {"timeout": float("nan")},
        *({"max_replies": n} for n in (None, -1, 1.5, "x")),
    ],
)
async def test_options_that_mean_nothing_are_refused(stack: AsyncExitStack, options: dict[str, Any]) -> None:
    swarm = build(stack, agent("echo", Echo(), supervises=True))
    with pytest.raises(BadRequest, match=f"{next(iter(options))} must be"):
        ExchangeBridge(Exchange(), swarm, **options)


class TestActions:
    async def test_an_agent_writes_by_itself(self, exchange: Any, stack: AsyncExitStack) -> None:
        me = agent_id("team", "writer")
        actions = exchange_actions(plain(exchange), me, people={"Ann": ANN, "Liz": LIZ})

        def write(view: View) -> Any:
            if "Hello" in view.mail.body:
                return [
                    call("send_group_mail", to="Liz", content="Ann says hello", channel="news"),
                    call("list_group"),
                ]
            return [complete("I have told Liz.")]

        bridge = ExchangeBridge(
            plain(exchange), build(stack, agent("writer", write, supervises=True, actions=actions))
        )
        await bridge.register()
        for owner in (ANN, LIZ):
            await exchange.register(owner)
        await exchange.send(ANN, me, "Hello!")
        await bridge.step()
        (got,) = await exchange.receive(LIZ)
        assert (got.sender, got.content, got.channel) == (me, "Ann says hello", "news")
        assert [mail.content for mail in await exchange.receive(ANN)] == ["I have told Liz."]

    async def test_all_is_everyone_else(self, exchange: Any) -> None:
        for owner in (ANN, LIZ):
            await exchange.register(owner)
        send, _ = exchange_actions(plain(exchange), ANN)
        assert await send({"to": "all", "content": "hello"}) == "sent to all"
        assert await exchange.sync() == 1
        (mail,) = await exchange.receive(LIZ, ANN)
        assert mail.is_broadcast

    async def test_ids_are_taken_as_well_as_names(self, exchange: Any) -> None:
        await exchange.register(ANN)
        send, _ = exchange_actions(plain(exchange), ANN)
        await send({"to": str(ANN), "content": "note"})
        assert await exchange.sync() == 1

    async def test_an_unknown_name_is_told_who_there_is(self, exchange: Any) -> None:
        await exchange.register(ANN)
        send, _ = exchange_actions(plain(exchange), ANN, people={"Liz": LIZ})
        with pytest.raises(BadRequest, match=r"no member is named 'Lisa'; members: Liz"):
            await send({"to": "Lisa", "content": "hello"})

    async def test_list_group_names_the_others(self, exchange: Any) -> None:
        stranger = uuid4()
        for owner in (ANN, LIZ, stranger):
            await exchange.register(owner)
        _, look = exchange_actions(plain(exchange), ANN, people={"Liz": LIZ})
        assert sorted(json.loads(await look({})), key=lambda one: one["name"] != "Liz") == [
            {"name": "Liz", "id": str(LIZ)},
            {"name": str(stranger), "id": str(stranger)},
        ]

    async def test_agents_that_thank_each_other_by_actions_come_to_an_end(
        self, exchange: Any, stack: AsyncExitStack
    ) -> None:
        ids = {name: agent_id("team", name) for name in "ab"}
        sent: list[str] = []

        def thank(name: str, other: str) -> Rule:
            def policy(view: View) -> Any:
                if view.mail.body not in ("Hello!", "Thank you!"):
                    return [complete("")]
                sent.append(name)
                return [call(f"{name}_send_group_mail", to=other, content="Thank you!")]

            return policy

        agents = [
            agent(
                name,
                thank(name, other),
                supervises=True,
                actions=exchange_actions(plain(exchange), ids[name], people=ids, prefix=f"{name}_"),
            )
            for name, other in ("ab", "ba")
        ]
        bridge = await joined(exchange, build(stack, *agents), max_replies=3)
        await exchange.send(ANN, ids["a"], "Hello!")
        for _ in range(20):
            if not await bridge.step():
                break
        assert sent == ["a", "b", "a", "b"]  # the last of them is not sent
        assert await exchange.receive(ids["a"]) == await exchange.receive(ids["b"]) == []

    async def test_nobody_can_be_called_all(self, exchange: Any) -> None:
        with pytest.raises(BadRequest, match="no entity may be named 'all'"):
            exchange_actions(plain(exchange), ANN, people={"all": LIZ})

    def test_a_prefix_tells_the_actions_of_agents_apart(self) -> None:
        names = [action.name for action in exchange_actions(Exchange(), ANN, prefix="ann_")]
        assert names == ["ann_send_group_mail", "ann_list_group"]


def test_replies_of_foreign_mail_may_be_anything() -> None:
    found = [replies_to(Mail(sender=ANN, metadata={"replies": value})) for value in (2, "x", None, -9)]
    assert found == [2, 0, 0, 0]
