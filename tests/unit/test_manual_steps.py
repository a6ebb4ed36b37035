"""Manual mode in the engine: steps, what agents read in them, and what is left behind when one fails."""

import asyncio
from typing import Any

import pytest

from mail.core.decisions.manual import Step
from mail.core.engine.manual import TURNS_TO_RESPOND, ManualMode
from mail.core.protocol.message import MAILMessage
from mail.core.task.events import EventKind
from mail.core.task.limits import MAIL_PER_READING, READING_BYTES
from mail.core.task.ports import read_history
from mail.core.task.swarm import History, ToolChoice
from mail.core.task.task import TaskKey, TaskStatus
from mail.errors import BadRequest, StepFailed, TaskNotFound
from mail.testing.agents import (
    Call,
    View,
    acknowledge,
    broadcast,
    build_agent,
    build_swarm,
    call,
    complete,
    request,
    respond,
    wait,
)
from mail.testing.rig import Rig

TASK = "game"


class Player:
    """An agent that says its lines in turn, and remembers what it was shown."""

    def __init__(self, *lines: str | list[Call] | Exception) -> None:
        self.lines = list(lines)
        self.seen: list[History] = []
        self.choices: list[ToolChoice] = []

    def __call__(self, view: View) -> list[Call]:
        self.seen.append(view.history)
        self.choices.append(view.tool_choice)
        line = self.lines.pop(0)
        if isinstance(line, Exception):
            raise line
        return [call("text_output", content=line)] if isinstance(line, str) else line

    @property
    def read(self) -> str:
        """The newest user turn it was shown."""
        return str(self.seen[-1][-1]["content"])


def table(*players: tuple[str, Player], actions: dict[str, Any] | None = None, **settings: Any) -> Rig:
    return Rig(build_swarm(dict(players), actions=actions, **settings))


async def begin(rig: Rig, body: str = "the game begins") -> TaskKey:
    submitted = await rig.submit(body, msg_type="broadcast", task_id=TASK, manual=True)
    return submitted.key


async def step(rig: Rig, target: str, payload: str = "", **fields: Any) -> MAILMessage:
    key = TaskKey(str(rig.user), TASK)
    return await ManualMode(rig.runtime, rig.runtime.turns).take_step(
        key, Step(target, payload=payload, **fields)
    )


class TestSteps:
    async def test_only_the_stepped_agent_speaks(self) -> None:
        gm, ann, bob = Player("welcome"), Player("hi all"), Player()
        async with table(("GM", gm), ("Ann", ann), ("Bob", bob)) as rig:
            key = await begin(rig)
            said = await step(rig, "GM", "Welcome them.")
            assert (said.msg_type, said.message.body, said.sender.address) == ("broadcast", "welcome", "GM")
            assert [to.address for to in said.message.recipients] == ["all"]
            await step(rig, "Ann", "Answer.")
            task = await rig.task(key)
            assert (task.status, task.generation.steps <= task.limits.steps) == (TaskStatus.RUNNING, True)
            assert {entry.mailbox for entry in await rig.inbox(key)} == {"GM", "Bob"}
        assert len(gm.seen) == len(ann.seen) == 1
        assert not bob.seen
        assert gm.choices == ["auto"]

    async def test_public_and_private(self) -> None:
        gm, ann, bob = Player("go on", "thanks"), Player("secret <b>", "loud"), Player("ok")
        async with table(("GM", gm), ("Ann", ann), ("Bob", bob)) as rig:
            await begin(rig)
            letter = await step(rig, "Ann", kind="response", audience=("GM",))
            assert letter.msg_type == "response"
            assert letter.message.recipients[0].address == "GM"
            await step(rig, "Ann")
            await step(rig, "GM", "What do you say?")
            public, private = gm.read.index("<public>"), gm.read.index("<private>")
            assert public < gm.read.index("the game begins") < private < gm.read.index("secret <b>")
            assert (
                gm.read.index("</private>") < gm.read.index("loud") < gm.read.index("<instructions>What do")
            )
            assert "heard by: everyone" in gm.read
            await step(rig, "Bob", audience=("Ann", "GM"))
            assert "secret" not in bob.read
            assert "heard by: Ann, GM" in bob.read
            await step(rig, "GM")
            assert "<private>" in gm.read  # said by Bob, to a group
            assert "<public>" not in gm.read

    @pytest.mark.parametrize("size", [1, READING_BYTES // 2])
    async def test_more_mail_than_a_commit_may_read_is_read_before(self, size: int) -> None:
        count = 2 * MAIL_PER_READING + 3 if size == 1 else 5
        ann, bob = Player("hi"), Player(*(f"line {n:03}{'x' * size}" for n in range(count)))
        async with table(("Ann", ann), ("Bob", bob)) as rig:
            key = await begin(rig)
            for _ in range(count):
                await step(rig, "Bob")
            assert (await step(rig, "Ann", "Answer.")).message.body == "hi"
            assert {entry.mailbox for entry in await rig.inbox(key)} == {"Bob"}
            records = await read_history(rig.store, key, "Ann")
        assert len(ann.seen) == 1
        shown = "".join(str(entry["content"]) for entry in ann.seen[0])
        places = [shown.index(f"line {n:03}") for n in range(count)]
        assert places == sorted(places)
        assert all(shown.count(f"line {n:03}") == 1 for n in range(count))
        assert "<instructions>Answer." in ann.read
        assert [entry["role"] for entry in records] == ["user"] * len(ann.seen[0]) + ["assistant"]
        assert len(ann.seen[0]) > 2

    async def test_a_response_to_several_goes_to_each(self) -> None:
        ann, bob, cid = Player("kill Bob"), Player(), Player()
        async with table(("Ann", ann), ("Bob", bob), ("Cid", cid)) as rig:
            key = await begin(rig)
            said = await step(rig, "Ann", kind="response", audience=("Bob", "Cid", "Ann"))
            mail = [entry for entry in await rig.inbox(key) if entry.message.sender.address == "Ann"]
            assert [(entry.mailbox, entry.message.msg_type) for entry in mail] == [
                ("Bob", "response"),
                ("Cid", "response"),
            ]
            assert said == mail[0].message

    async def test_request_and_its_answer(self) -> None:
        ann, bob = Player("your move?"), Player("pass")
        async with table(("Ann", ann), ("Bob", bob)) as rig:
            await begin(rig)
            asked = await step(rig, "Ann", kind="request", audience=("Bob",))
            answered = await step(rig, "Bob", kind="response", audience=("Ann",))
            assert answered.message["request_id"] == asked.message["request_id"]

    async def test_actions_come_first(self) -> None:
        scores: list[str] = []

        async def score(arguments: dict[str, Any]) -> str:
            scores.append(arguments["player"])
            return f"{arguments['player']} has a point"

        gm = Player([call("score", player="Ann")], [call("score", player="Bob")], "points for all")
        async with table(("GM", gm), ("Ann", Player()), actions={"score": score}) as rig:
            key = await begin(rig)
            said = await step(rig, "GM", "Score them.")
            assert said.message.body == "points for all"
            assert scores == ["Ann", "Bob"]
            assert "Bob has a point" in gm.read
            assert "heard by: everyone" in gm.read
            assert [entry.mailbox for entry in await rig.inbox(key)] == ["Ann", "Ann"]
            kinds = [event.kind for event in await rig.store.read_events(key)]
            assert kinds.count(EventKind.ACTION_COMPLETE) == 2

    @pytest.mark.parametrize(
        "calls",
        [
            [request("Ann", "listen", "Hear")],
            [respond("Ann", "listen", "Hear")],
            [broadcast("listen", "Hear")],
            [complete("listen")],
        ],
        ids=lambda calls: calls[0].tool,
    )
    async def test_whatever_writes_says(self, calls: list[Call]) -> None:
        gm = Player(calls, "again")
        async with table(("GM", gm), ("Ann", Player()), ("Bob", Player())) as rig:
            key = await begin(rig)
            said = await step(rig, "GM", audience=("Bob",), kind="response")
            assert said.message.body == "listen"
            heard = [entry.mailbox for entry in await rig.inbox(key) if entry.message.id == said.id]
            assert heard == ["Bob"]
            assert (await step(rig, "GM")).message.body == "again"  # even after task_complete

    @pytest.mark.parametrize("calls", [[wait()], [acknowledge()]], ids=["wait", "acknowledge"])
    async def test_saying_nothing(self, calls: list[Call]) -> None:
        async with table(("GM", Player(calls)), ("Ann", Player())) as rig:
            key = await begin(rig)
            said = await step(rig, "GM")
            assert said.message.body == ""
            assert len(await rig.inbox(key)) == 1

    @pytest.mark.parametrize("words", ["just words", " \n"])
    async def test_text_without_any_call(self, words: str) -> None:
        async def talk(history: History, choice: ToolChoice) -> Any:
            return words, []

        agent = build_agent(lambda _: [], supervises=True)
        swarm = build_swarm(
            {"GM": agent.__class__(function=talk, enable_entrypoint=True, can_complete_tasks=True)}
        )
        async with Rig(swarm) as rig:
            key = await begin(rig)
            assert (await step(rig, "GM")).message.body == words
            assert (await rig.history("GM", key))[-1] == {"role": "assistant", "content": words}

    async def test_breakpoint_tools_give_their_call(self) -> None:
        gm = Player([call("ask")], "then I go on")
        async with table(
            ("GM", gm), actions={"ask": lambda _: None}, breakpoint_tools=frozenset({"ask"})
        ) as rig:
            await begin(rig)
            said = await step(rig, "GM")
            assert said.message.subject == "::breakpoint_tool_call::"
            assert (await step(rig, "GM", "never mind")).message.body == "then I go on"


class TestFailures:
    async def test_no_agent_would_answer(self) -> None:
        async with table(("GM", Player())) as rig:
            await begin(rig)
            with pytest.raises(BadRequest, match="is in manual mode"):
                await rig.submit("anybody there?", task_id=TASK)

    async def test_names(self) -> None:
        async with table(("GM", Player()), ("Ann", Player())) as rig:
            with pytest.raises(TaskNotFound, match="submit a message with this task_id first"):
                await step(rig, "GM")
            await begin(rig)
            with pytest.raises(BadRequest, match=r"'Anne' is not an agent .*Did you mean 'Ann'"):
                await step(rig, "Anne")
            with pytest.raises(BadRequest, match="'Bob' is not an agent"):
                await step(rig, "GM", audience=("Bob",))
            with pytest.raises(BadRequest, match="response_targets is empty"):
                await step(rig, "GM", audience=())

    async def test_what_was_not_read_waits(self) -> None:
        gm = Player(RuntimeError("no model"), "here I am")
        async with table(("GM", gm), ("Ann", Player())) as rig:
            await begin(rig)
            with pytest.raises(StepFailed, match="'GM' gave no response: RuntimeError"):
                await step(rig, "GM", "first try")
            assert (await step(rig, "GM", "second try")).message.body == "here I am"
            assert "the game begins" in gm.read
            assert "first try" not in gm.read

    async def test_mistakes_are_told_and_count(self) -> None:
        gm = Player([call("no_such_tool")], "sorry")
        async with table(("GM", gm)) as rig:
            await begin(rig)
            assert (await step(rig, "GM")).message.body == "sorry"
            assert "there is no tool &#x27;no_such_tool&#x27;" in gm.read or "no_such_tool" in gm.read
            gm.lines = [[call("no_such_tool")]] * 9
            with pytest.raises(StepFailed, match=r"5 faulty turns in a row; the last: .*no_such_tool"):
                await step(rig, "GM")

    async def test_an_agent_that_never_ends(self) -> None:
        async def tick(_arguments: dict[str, Any]) -> str:
            return "tick"

        gm = Player(*[[call("tick")]] * 99)
        async with table(("GM", gm), actions={"tick": tick}) as rig:
            await begin(rig)
            with pytest.raises(StepFailed, match="no response within"):
                await step(rig, "GM")
        assert len(gm.seen) == TURNS_TO_RESPOND

    async def test_a_restart_wakes_nobody(self, tmp_path: Any) -> None:
        gm, ann = Player("one", "two"), Player("three")
        async with Rig(build_swarm({"GM": gm, "Ann": ann}), path=tmp_path / "mail.db") as rig:
            key = await begin(rig)
            await step(rig, "GM")
            await rig.restart()
            assert await rig.store.list_ready() == []
            before = await rig.inbox(key)
            await rig.runtime.run_turn(key, "Ann")
            assert await rig.inbox(key) == before
            await step(rig, "Ann")
            assert "one" in ann.read
            await rig.restart()
            assert [entry.message.message.body for entry in await rig.inbox(key)] == ["three"]


class TestDeath:
    async def test_an_action_is_not_repeated(self, tmp_path: Any) -> None:
        """The process dies in the middle of an action; the next step continues from there."""
        ran: list[str] = []
        reached, never = asyncio.Event(), asyncio.Event()

        async def score(arguments: dict[str, Any]) -> str:
            ran.append(arguments["player"])
            if arguments["player"] == "Bob" and not reached.is_set():
                reached.set()
                await never.wait()
            return "scored"

        gm = Player([call("score", player="Ann"), call("score", player="Bob")], "scores are in")
        swarm = build_swarm({"GM": gm, "Ann": Player()}, actions={"score": score})
        async with Rig(swarm, path=tmp_path / "mail.db") as rig:
            key = await begin(rig)
            dying = asyncio.create_task(step(rig, "GM", "Score them."))
            await reached.wait()
            dying.cancel()
            await asyncio.gather(dying, return_exceptions=True)
            await rig.restart()
            said = await step(rig, "GM", "Go on.")
            results = [entry["content"] for entry in await rig.history("GM", key) if entry["role"] == "tool"]
        assert said.message.body == "scores are in"
        assert ran == ["Ann", "Bob"]
        assert results[0] == "SUCCESS: scored"
        assert "the outcome is unknown" in results[1]
        assert "Go on." in str(gm.seen[-1])

    async def test_what_was_read_is_read_once(self, tmp_path: Any) -> None:
        """It dies before the model has answered: nothing is read, and the instructions still stand."""
        begun, never = asyncio.Event(), asyncio.Event()
        seen: list[str] = []

        async def gm(view: View) -> list[Call]:
            seen.append(str(view.history[-1]["content"]))
            if not begun.is_set():
                begun.set()
                await never.wait()
            return [call("text_output", content="welcome")]

        async with Rig(build_swarm({"GM": gm}), path=tmp_path / "mail.db") as rig:
            key = await begin(rig)
            dying = asyncio.create_task(step(rig, "GM", "first"))
            await begun.wait()
            dying.cancel()
            await asyncio.gather(dying, return_exceptions=True)
            await rig.restart()
            await step(rig, "GM", "second")
            assert await rig.inbox(key) == []
        assert seen[1].index("the game begins") < seen[1].index("first") < seen[1].index("second")

    async def test_somebody_else_steps_the_agent(self) -> None:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def gm(_view: View) -> list[Call]:
            begun.set()
            await go_on.wait()
            return [call("text_output", content="welcome")]

        async with Rig(build_swarm({"GM": gm})) as rig:
            await begin(rig)
            first = asyncio.create_task(step(rig, "GM"))
            await begun.wait()
            with pytest.raises(StepFailed, match="'GM' is busy"):
                await step(rig, "GM")
            go_on.set()
            assert (await first).message.body == "welcome"

    async def test_a_time_limit(self) -> None:
        async with table(("GM", Player("too late"))) as rig:
            await rig.submit("x", msg_type="broadcast", task_id=TASK, manual=True, timeout=5)
            rig.clock.advance(10)  # type: ignore[attr-defined]
            with pytest.raises(StepFailed, match="has stopped"):
                await step(rig, "GM")
            assert (
                await step(rig, "GM")
            ).message.body == "too late"  # a stopped task resumes, without its limit
