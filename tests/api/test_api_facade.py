"""`Agent` and `Swarm`: teams, conversations, dependencies, pauses and errors, on the real engine."""

import asyncio
import itertools
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.services.llm_stub import LLMStub, reply
from support.services.llm_stub import text as says

from mail import ActionContext, Agent, Answer, LiveEvent, MAILAction, MAILSwarmTemplate, Swarm, action
from mail.core.task.events import Event, EventKind
from mail.core.task.live import LiveKind
from mail.errors import (
    AgentUnavailable,
    BadRequest,
    ConfigurationError,
    DecisionTooLate,
    IdempotencyConflict,
    MAILError,
    TaskFailed,
    TaskNotFound,
)
from mail.factories.ports import close_clients
from mail.testing.agents import Rule, View, call, complete, output, request, respond, scripted, wait


@dataclass
class Deps:
    prices: dict[str, int]


@action
async def price(ctx: ActionContext[Deps], drink: str) -> dict[str, Any]:
    """Look up a price."""
    return {
        "price": ctx.deps.prices[drink],
        "agent": ctx.agent,
        "task": ctx.task_id,
        "by": ctx.caller,
        "id": ctx.call_id,
    }


def agent(name: str, policy: Rule, **settings: Any) -> Agent:
    return Agent(name, function=scripted(policy, tool_format="responses"), **settings)


def echo(view: View) -> list[Any]:
    return [complete(f"{len(view.history)}: {view.mail.body}")]


def ask_team(view: View) -> list[Any]:
    if view.mail.sender == "clerk":
        return [complete(view.mail.body)]
    return [request("clerk", view.mail.body), wait()]


def clerk(view: View) -> list[Any]:
    return [respond("lead", f"about {view.mail.body}")]


def pausing(view: View) -> list[Any]:
    return [complete("paid")] if "sure" in str(view.history) else [call("confirm", amount=3)]


@action
def confirm(amount: int) -> str:
    """Confirm a payment."""
    raise NotImplementedError


def targets(swarm: Swarm) -> dict[str, list[str]]:
    return {each.name: each.comm_targets for each in swarm.template.agents}


class TestTeams:
    def test_both_directions_and_shared_members(self) -> None:
        writer = agent("writer", echo)
        left, right = agent("left", echo, team=[writer]), agent("right", echo, team=[writer])
        swarm = Swarm(agent("lead", echo, team=[left, right]))
        assert targets(swarm) == {
            "lead": ["left", "right"],
            "left": ["lead", "writer"],
            "right": ["lead", "writer"],
            "writer": ["left", "right"],
        }
        assert isinstance(swarm.template, MAILSwarmTemplate)
        assert (swarm.name, swarm.template.entrypoint) == ("lead", "lead")
        assert [each.can_complete_tasks for each in swarm.template.agents] == [True, False, False, False]

    def test_circles(self) -> None:
        lead = agent("lead", echo)
        member = agent("member", echo, team=[lead])
        lead.team.append(member)
        assert targets(Swarm(lead)) == {"lead": ["member"], "member": ["lead"]}

    def test_two_agents_of_one_name(self) -> None:
        with pytest.raises(ConfigurationError, match="two agents are called 'a'"):
            Swarm(agent("lead", echo, team=[agent("a", echo), agent("a", echo)]))

    def test_an_action_of_two_agents(self) -> None:
        def ping() -> str:
            """Ping."""
            return "pong"

        shared = action(ping)
        swarm = Swarm(agent("lead", echo, actions=[shared], team=[agent("a", echo, actions=[shared])]))
        assert [each.name for each in swarm.template.to_core().actions.values()] == ["ping"]
        assert [each.name for each in Agent("b", model="openai/x", actions=[ping]).actions] == ["ping"]

    @pytest.mark.parametrize(
        ("settings", "problem"),
        [
            ({"actions": ["search"]}, "agent 'a': actions must be functions, not 'search'"),
            ({"team": ["writer"]}, "agent 'a': team must be agents, not 'writer'"),
        ],
    )
    def test_names_in_place_of_objects(self, settings: dict[str, Any], problem: str) -> None:
        with pytest.raises(ConfigurationError, match=problem):
            Agent("a", model="openai/x", **settings)

    @pytest.mark.filterwarnings("error")
    def test_a_database_of_no_known_kind(self) -> None:
        with pytest.raises(
            ConfigurationError, match=r"^database: postgre:// is not a known kind of database"
        ):
            Swarm(agent("lead", echo), database="postgre://x").ask("Hi")

    @pytest.mark.parametrize("settings", [{}, {"model": "openai/x", "function": scripted(echo)}])
    def test_one_kind_of_agent(self, settings: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match="agent 'a': give it one of model"):
            Agent("a", **settings)

    def test_an_agent_alone_writes_to_nobody(self) -> None:
        (alone,) = Swarm(Agent("lead", model="openai/x")).template.agents
        function: Any = alone.instantiate({}).function
        names = {tool["name"] for tool in function.tools}
        assert "task_complete" in names
        assert not {"send_request", "send_response", "send_interrupt", "send_broadcast"} & names

    def test_text_that_is_an_error(self) -> None:
        swarm = Swarm(agent("lead", echo, strict_tools=False, team=[agent("a", echo)]), strict_tools=True)
        agents = swarm.template.to_core().agents
        assert {name: each.strict_tools for name, each in agents.items()} == {"lead": False, "a": True}

    async def test_a_factory(self) -> None:
        def factory(name: str, greeting: str, **_wiring: Any) -> Any:
            return scripted(lambda view: [complete(f"{greeting} from {name}")], tool_format="responses")

        async with Swarm(Agent("lead", factory=factory, greeting="Hello")) as swarm:
            assert str(await swarm.aask("Hi")) == "Hello from lead"


class TestAsking:
    def test_a_team_and_a_conversation(self) -> None:
        swarm = Swarm(agent("lead", ask_team, team=[agent("clerk", clerk)]))
        answer = swarm.ask("tea")
        assert (str(answer), f"{answer}", answer.text) == ("about tea",) * 3
        again = swarm.ask("milk", task_id=answer.task_id)
        assert (again.text, again.task_id) == ("about milk", answer.task_id)
        assert swarm.ask("x", task_id="mine").task_id == "mine"

    def test_callers_in_several_threads(self) -> None:
        swarm = Swarm(agent("lead", ask_team, team=[agent("clerk", clerk)]))
        with ThreadPoolExecutor(4) as threads:
            assert [str(each) for each in threads.map(swarm.ask, "abcd")] == [
                f"about {each}" for each in "abcd"
            ]

    async def test_in_a_running_loop(self) -> None:
        swarm = Swarm(agent("lead", echo))
        with pytest.raises(MAILError, match=re.escape("await swarm.aask(...)")):
            swarm.ask("Hi")
        assert (await swarm.aask("Hi")).text == "1: Hi"

    async def test_events_and_the_answer(self) -> None:
        async with Swarm(agent("lead", ask_team, team=[agent("clerk", clerk)])) as swarm:
            *events, answer = [piece async for piece in swarm.stream("tea")]
        assert isinstance(answer, Answer)
        assert answer.text == "about tea"
        kinds = [event.kind for event in events if isinstance(event, Event)]
        assert (kinds[0], kinds[-1]) == (EventKind.NEW_MESSAGE, EventKind.TASK_COMPLETE)

    @pytest.mark.soak
    @pytest.mark.parametrize("works_before", [True, False])
    async def test_the_model_is_heard_while_it_works(
        self, monkeypatch: pytest.MonkeyPatch, works_before: bool
    ) -> None:
        with LLMStub() as stub:
            for name, value in stub.environ.items():
                monkeypatch.setenv(name, value)
            stub.script(reply(says("Agents that send each other mail.")))
            swarm = Swarm(Agent("lead", model="openai/gpt-5-mini"))
            if works_before:
                await swarm.running.runtime.start()
            pieces = [piece async for piece in swarm.stream("What is MAIL?")]
            await swarm.aclose()
            await close_clients()
        live = [piece for piece in pieces if isinstance(piece, LiveEvent)]
        assert (
            "".join(event.delta for event in live) == str(pieces[-1]) == "Agents that send each other mail."
        )
        kinds = [event.kind for event in live if not event.delta]
        assert kinds == [
            LiveKind.TURN_STARTED,
            LiveKind.MODEL_CALL_STARTED,
            LiveKind.MODEL_CALL_ENDED,
            LiveKind.TURN_ENDED,
        ]
        ended = next(n for n, piece in enumerate(pieces) if isinstance(piece, Event) and piece.is_terminal)
        assert all(pieces.index(event) < ended for event in live if event.delta)

    def test_a_database(self, tmp_path: Path) -> None:
        database = str(tmp_path / "mail.db")
        first = Swarm(agent("lead", echo), database=database)
        answer = first.ask("one")
        first.close()
        second = Swarm(agent("lead", echo), database=database)
        again = second.ask("two", task_id=answer.task_id)
        second.close()
        assert int(again.text.partition(":")[0]) > int(answer.text.partition(":")[0])

    def test_a_program_that_runs_again_asks_once(self, tmp_path: Path) -> None:
        database = str(tmp_path / "mail.db")

        def pay(view: View) -> list[Any]:
            return [complete("paid")] if view.results else [call("price", drink="tea")]

        def begin() -> Swarm[Answer]:
            costly = MAILAction("price", "A price.", {"type": "object"}, lambda _: "2", needs_approval=True)
            return Swarm(agent("lead", pay, actions=[costly]), database=database)

        def run() -> Answer:
            swarm = begin()
            try:
                answer = swarm.ask("Buy tea.", idempotency_key="order-7")
                while answer.is_paused:
                    answer = swarm.approve(answer)
                assert swarm.wait(answer) == answer
                return answer
            finally:
                swarm.close()

        first = begin()
        waiting = first.ask("Buy tea.", idempotency_key="order-7")
        assert first.ask("Buy tea.", idempotency_key="order-7") == waiting == first.wait(waiting.task_id)
        first.close()
        assert str(run()) == "paid"
        assert run() == run()

        again = begin()
        mail = asyncio.run(again.running.runtime.read_messages(waiting.task_id))
        assert [each.message.body for each in mail if each.sender.address_type == "user"] == ["Buy tea."]
        with pytest.raises(IdempotencyConflict, match="'order-7' was used for another request"):
            again.ask("Buy coffee.", idempotency_key="order-7")
        with pytest.raises(BadRequest, match="idempotency_key must not be empty"):
            again.ask("Buy coffee.", idempotency_key="")
        with pytest.raises(TaskNotFound):
            again.wait("unknown")
        again.close()

    async def test_a_task_is_waited_for_while_it_runs(self) -> None:
        gate = asyncio.Event()

        async def answer(view: View) -> list[Any]:
            await gate.wait()
            return [complete("done")]

        async with Swarm(agent("lead", answer)) as swarm:
            with pytest.raises(TimeoutError):
                await swarm.aask("Go.", task_id="t", timeout=0.01)
            with pytest.raises(TimeoutError, match=r"task 't' gave no answer within 0\.01 seconds"):
                await swarm.await_("t", timeout=0.01)
            waiting = asyncio.create_task(swarm.await_("t"))
            await asyncio.sleep(0)
            gate.set()
            assert str(await waiting) == "done"

    async def test_a_fork_asks_before_its_actions_run(self) -> None:
        paid: list[str] = []

        @action
        def pay(amount: int) -> str:
            """Pay."""
            paid.append(f"paid {amount}")
            return paid[-1]

        def act(view: View) -> list[Any]:
            return [complete(view.results[-1])] if view.results else [call("pay", amount=len(paid))]

        async with Swarm(agent("lead", act, actions=[pay])) as swarm:
            first = await swarm.aask("Pay.")
            asks = await swarm.afork(first, at=1, run=True, actions="ask")
            paused = await swarm.await_(asks)
            assert [each.name for each in paused.pending] == ["pay"]
            assert str(await swarm.aapprove(paused)) == "SUCCESS: paid 1"
            waits = await swarm.afork(asks, at=1)
            with pytest.raises(BadRequest, match="has no answer yet"):
                await swarm.await_(waits)
            with pytest.raises(BadRequest, match="actions must be 'run', 'ask' or 'refuse', not 'never'"):
                await swarm.afork(first, actions="never")  # type: ignore[arg-type]

    async def test_actions_have_context_and_dependencies(self) -> None:
        def policy(view: View) -> list[Any]:
            return (
                [complete(str(view.history))]
                if "price" in str(view.history)
                else [call("price", drink="tea")]
            )

        lead = agent("lead", policy, actions=[price])
        async with Swarm(lead, deps=Deps({"tea": 2}), user_id="ann") as swarm:
            text = (await swarm.aask("How much?", task_id="t1")).text
        for part in ('"price":2', '"agent":"lead"', '"task":"t1"', '"by":"user:ann@lead"'):
            assert part in text
        with pytest.raises(ConfigurationError, match="needs dependencies of type Deps"):
            Swarm(lead)


class TestPauses:
    def test_a_pause_is_answered(self) -> None:
        swarm = Swarm(agent("lead", pausing, actions=[confirm]), breakpoint_tools=["confirm"])
        answer = swarm.ask("Pay")
        assert answer.is_paused
        assert str(answer) == "lead waits for the result of confirm(amount: 3)"
        (pending,) = answer.pending
        assert (pending.name, pending.arguments) == ("confirm", {"amount": 3})
        assert str(swarm.reply(answer, "sure")) == "paid"
        second = swarm.ask("Pay")
        assert str(swarm.reply(second.task_id, {second.pending[0].call_id: "sure"})) == "paid"
        with pytest.raises(BadRequest, match="no call waits for a result"):
            swarm.reply(second, "sure")


class TestErrors:
    def test_a_task_that_fails_raises_its_cause(self) -> None:
        async def broken(_history: Any, _choice: Any) -> Any:
            raise AgentUnavailable("the model is on holiday")

        swarm = Swarm(Agent("lead", function=broken))
        with pytest.raises(TaskFailed, match="the model is on holiday") as raised:
            swarm.ask("Hi", task_id="t1")
        assert (raised.value.task_id, raised.value.status) == ("t1", "failed")

    def test_a_timeout_leaves_the_task_alone(self) -> None:
        release = asyncio.Event()

        async def slow(history: Any, _choice: Any) -> Any:
            await release.wait()
            return None, output([complete("late")], tool_format="responses", prefix=f"call{len(history)}")

        swarm = Swarm(Agent("lead", function=slow))
        with pytest.raises(TimeoutError):
            swarm.ask("Hi", task_id="t1", timeout=0.01)
        assert swarm._home is not None
        swarm._home._loop.call_soon_threadsafe(release.set)
        assert str(swarm.ask("Well?", task_id="t1")) == "late"

    async def test_a_stream_that_takes_too_long(self) -> None:
        release = asyncio.Event()

        async def slow(_history: Any, _choice: Any) -> Any:
            await release.wait()
            return None, output([complete("late")], tool_format="responses", prefix="call")

        async with Swarm(Agent("lead", function=slow)) as swarm:
            with pytest.raises(TimeoutError):
                async for _ in swarm.stream("Hi", timeout=0.01):
                    pass
            release.set()

    async def test_questions_at_the_same_time(self) -> None:
        swarm = Swarm(agent("lead", ask_team, team=[agent("clerk", clerk)]))
        answers = await asyncio.gather(*(swarm.aask(each) for each in "abcd"))
        assert [str(each) for each in answers] == [f"about {each}" for each in "abcd"]

    def test_options_of_a_function(self) -> None:
        with pytest.raises(ConfigurationError, match="a function takes no options, but got: temperature"):
            Agent("a", function=scripted(echo), temperature=0)


SERVER = """
from mail import Agent, Swarm
from mail.testing.agents import complete, scripted

function = scripted(lambda view: [complete("served")], tool_format="responses")
Swarm(Agent("lead", function=function), database="ours.db").serve(port=0)
"""


@pytest.mark.full
def test_a_swarm_is_served_on_its_database(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        (line,) = itertools.islice((each for each in process.stdout if "listens on" in each), 1)
        url = next(word for word in line.split() if word.startswith("http://"))
        assert httpx2.get(f"{url}/", timeout=60).json()["swarm"]["name"] == "lead"
        assert (tmp_path / "ours.db").is_file()
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_what_an_agent_does_is_in_its_swarm_and_in_the_prompts_of_its_team() -> None:
    finder = Agent("finder", "You search.", model="openai/gpt-5-mini", description="finds books")
    other = Agent("other", "You help.", model="openai/gpt-5-mini")
    lead = Agent("lead", "You answer.", model="openai/gpt-5-mini", team=[finder, other])
    agents = {agent.name: agent for agent in Swarm(lead).template.agents}
    assert {name: agent.spec.description for name, agent in agents.items()} == {
        "lead": "",
        "finder": "finds books",
        "other": "",
    }
    assert agents["lead"].agent_params["system"].endswith("\n- finder: finds books\n- other")


async def test_a_task_that_has_failed_has_nothing_to_approve() -> None:
    async def broken(*_: Any) -> Any:
        raise AgentUnavailable("no key")

    async with Swarm(Agent("clerk", function=broken)) as swarm:
        with pytest.raises(TaskFailed, match="no key"):
            await swarm.aask("Refund order 7.", task_id="t")
        with pytest.raises(DecisionTooLate, match="task 't' has failed; no call waits for a result"):
            await swarm.aapprove("t")
