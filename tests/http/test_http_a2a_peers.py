"""Two swarms of ours that know each other by A2A only, one of them behind a running server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.processes.http_server import HTTPServer
from support.services.messages import wrapped

from mail.core.decisions import remote_tasks
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.files import File
from mail.core.task.limits import Budget
from mail.core.task.task import Task
from mail.errors import Forbidden
from mail.net import InterswarmRouter, SwarmRegistry
from mail.testing.agents import View, build_agent, build_swarm, call, complete, request, wait
from mail.testing.rig import Rig

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
TASKS = 12


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polls follow each other at once."""
    monkeypatch.setattr(remote_tasks, "POLL_SECONDS", (0.01,))


def help_others(view: View) -> Any:
    """Ask what the city is if a message says so; else answer, with the files that it has."""
    if view.history[-1]["role"] == "tool":
        return [complete(f"sunny in {view.results[-1]}")]
    if view.mail.body == "weather":
        return [call("ask_user", question="Which city?")]
    files = " ".join(f"file:{each['id']}" for each in view.history[-1].get("files", ()))
    return [complete(f"beta: {view.mail.body} {files}".strip())]


def ask_others(view: View) -> Any:
    """Ask beta, answer its question, and complete with its answer."""
    mail = view.mail
    if mail.sender_type == "user":
        return [request("helper@beta", mail.body), wait()]
    if mail.subject == "::breakpoint_tool_call::":
        return [request("helper@beta", "Oslo"), wait()]
    files = " ".join(f"file:{each['id']}" for each in view.history[-1].get("files", ()))
    return [complete(f"{mail.body} {files}".strip())]


@pytest.fixture
async def beta() -> AsyncIterator[HTTPServer]:
    async def ask_user(_arguments: dict[str, Any]) -> str:
        raise AssertionError

    helper = build_agent(help_others, supervises=True, actions=["ask_user"], name="helper")
    swarm = build_swarm(
        {"helper": helper},
        name="beta",
        actions={"ask_user": ask_user},
        breakpoint_tools=frozenset({"ask_user"}),
    )
    async with HTTPServer(swarm, clock=SYSTEM_CLOCK) as server:
        yield server


@pytest.fixture
async def alpha(beta: HTTPServer) -> AsyncIterator[Rig]:
    registry = SwarmRegistry("alpha", "http://127.0.0.1:8000")
    card = f"{beta.uvicorn.url}/.well-known/agent-card.json"
    await registry.register_swarm("beta", card, beta.keys["user"])
    desk = build_agent(
        ask_others, targets=["helper@beta"], supervises=True, enable_interswarm=True, name="desk"
    )
    async with Rig(build_swarm({"desk": desk}, name="alpha"), clock=SYSTEM_CLOCK) as rig:
        rig.runtime.peers = InterswarmRouter(registry, "alpha", clock=SYSTEM_CLOCK)
        yield rig
    await registry.stop()


async def tasks_of(beta: HTTPServer) -> list[Task]:
    return (await beta.rig.store.list_tasks("user:ann@beta", limit=100)).tasks


async def test_every_task_is_answered_once(alpha: Rig, beta: HTTPServer) -> None:
    submitted = [await alpha.submit(f"task {n}") for n in range(TASKS)]
    for n, each in enumerate(submitted):
        assert (await alpha.outcome(each)).answer == f"beta: task {n}"
    assert sorted(task.title or "" for task in await tasks_of(beta)) == sorted(
        f"task {n}" for n in range(TASKS)
    )


async def test_a_question_and_its_answer_are_one_task(alpha: Rig, beta: HTTPServer) -> None:
    assert (await alpha.ask("weather")).answer == "sunny in Oslo"
    [task] = await tasks_of(beta)
    assert task.generation.run == 1


async def test_files_go_both_ways(alpha: Rig, beta: HTTPServer) -> None:
    """Those sent are parts with bytes; those of the answer are fetched by their URLs."""
    ref = await alpha.runtime.caller_files.put(str(alpha.user), File(PNG, "plot.png"))
    outcome = await alpha.ask(f"see file:{ref.id}", files=(ref.id,))
    [task] = await tasks_of(beta)
    assert await beta.rig.runtime.caller_files.read("user:ann@beta", ref.id) == PNG
    assert [*await beta.rig.runtime.caller_files.of_task(task.key)] == [ref.id]
    assert outcome.answer == f"beta: see file:{ref.id} file:{ref.id} file:{ref.id}"


async def test_the_budget_goes_along(alpha: Rig, beta: HTTPServer) -> None:
    await alpha.ask("hello", steps=5, budget=Budget(tokens=1000, cost=2.0))
    [task] = await tasks_of(beta)
    assert task.limits.steps == 4
    assert (task.limits.budget.tokens, task.limits.budget.cost) == (1000, 2.0)


async def test_a_person_asks_it_directly(alpha: Rig) -> None:
    outcome = await alpha.ask("hello", targets=("helper@beta",))
    assert outcome.answer == "beta: hello"


async def test_nobody_sends_mail_in_its_name(alpha: Rig) -> None:
    message = wrapped(source_swarm="beta", target_swarm="alpha")
    for caller in ("beta", "agent", "other"):
        with pytest.raises(Forbidden, match="called by A2A"):
            await alpha.runtime.receive(caller, message, back=False)
