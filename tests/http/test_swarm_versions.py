"""Tasks while the swarm is replaced: each turn runs on the version that the rule says."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from support.processes.projects import entry, supervisor

from mail.bootstrap import local
from mail.bootstrap.system import LocalSystem
from mail.config import ServerConfig
from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.submit import ResumeFrom, Submission
from mail.core.engine.pacing import Pacer
from mail.core.engine.past_turn import read_turn, summarize_turns
from mail.core.engine.versions import MOST_VERSIONS
from mail.core.protocol.address import Principal
from mail.core.task.documents import Kind
from mail.core.task.swarm import AgentFunction, SwarmCore
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.testing.agents import Call, View, call, complete, request, respond, scripted

NAME = "versioned"
ANN = Principal(role="user", id="ann", swarm=NAME)

OnUpdate = Literal["switch", "finish"]


def lead(name: str, helper: str, mark: str, **_wiring: Any) -> AgentFunction:
    """An agent that asks a helper, first a person if told so, and answers with its own mark and the helper's."""

    def policy(view: View) -> Sequence[Call]:
        if view.mail.sender_type == "user" and view.mail.body == "ask":
            return [call("ask_human")]
        if view.mail.sender == helper:
            return [complete(f"{mark}{view.mail.body}")]
        return [request(helper, view.mail.body)]

    return scripted(policy)


def helper(name: str, mark: str, **_wiring: Any) -> AgentFunction:
    return scripted(lambda view: [call("pay") if view.mail.body == "pay" else respond("lead", mark)])


def pay() -> str:
    """Pay."""
    return "paid"


def swarm(mark: str, helper: str, on_update: OnUpdate) -> str:
    """A version whose agents answer with a mark."""
    return json.dumps(
        entry(
            NAME,
            supervisor(
                "lead",
                f"{__name__}:lead",
                comm_targets=[helper],
                actions=["ask_human"],
                agent_params={"helper": helper, "mark": mark},
                tool_format="completions",
            ),
            {
                "name": helper,
                "factory": f"python::{__name__}:helper",
                "comm_targets": ["lead"],
                "actions": ["pay"],
                "agent_params": {"mark": mark},
                "tool_format": "completions",
            },
            actions=[
                {"name": "ask_human", "description": "Ask."},
                {"name": "pay", "function": f"python::{__name__}:pay", "needs_approval": True},
            ],
            breakpoint_tools=["ask_human"],
            on_update=on_update,
        )
    )


@asynccontextmanager
async def system(path: Path, on_update: OnUpdate) -> AsyncIterator[LocalSystem]:
    """The system of a server with the first version, whose workers don't run yet."""
    source = path / "swarms.json"
    source.write_text(f"[{swarm('1', 'helper', on_update)}]", encoding="utf-8")
    config = ServerConfig().with_overrides(
        swarm_name=NAME, swarm_source=str(source), database=str(path / "mail.db")
    )
    settings = config.settings.model_copy(update={"allowed_imports": [__name__]})
    limits = config.limits.model_copy(update={"running_tasks": 0})
    made = local(config.model_copy(update={"settings": settings, "limits": limits}))
    try:
        yield made
    finally:
        await made.stop()


async def begin(system: LocalSystem, *bodies: str) -> list[str]:
    keys = [(await system.runtime.submit(ANN, Submission(body=body))).key for body in bodies]
    return [key.task_id for key in keys]


async def resume(system: LocalSystem, tasks: Sequence[str]) -> None:
    for task_id in tasks:
        answer = Submission(
            task_id=task_id,
            resume_from=ResumeFrom.BREAKPOINT_TOOL_CALL,
            breakpoint_tool_call_result="go on",
        )
        await system.runtime.submit(ANN, answer)


async def work(system: LocalSystem) -> None:
    """Run everything that waits, then stop the workers."""
    await system.start()
    await system.idle()
    workers, system._workers = system._workers, None
    assert workers is not None
    await workers.stop(5.0)


async def load(system: LocalSystem, task_id: str) -> Task:
    task = await system.store.load(TaskKey(str(ANN), task_id))
    assert task is not None
    return task


async def read(system: LocalSystem, task_id: str) -> tuple[Task, str | None, set[str]]:
    """A task, its answer, and the versions of its turns, which are looked up as they were."""
    key = TaskKey(str(ANN), task_id)
    task = await load(system, task_id)
    assert task.dead_letters == ()
    response = await system.store.read_response(key, task.generation.number)
    versions = set()
    for turn in summarize_turns(await system.store.read_events(key)):
        past = await read_turn(
            system.store, system.swarm, key, turn.first, Pacer(), versions=system.runtime.versions
        )
        assert past.setup is not None
        assert past.setup.version is not None
        versions.add(str(past.setup.agent.options["mark"]))
    return task, None if response is None else response.message.body, versions


@pytest.mark.parametrize(
    ("on_update", "answers", "versions"),
    [
        ("finish", ("11", "11", "22", "22", "11"), ({"1"}, {"1"}, {"2"}, {"2"}, {"1"})),
        ("switch", ("22", "22", "11", "11", "11"), ({"2"}, {"1", "2"}, {"1"}, {"2", "1"}, {"1"})),
    ],
)
@pytest.mark.parametrize("count", [5, pytest.param(500, marks=[pytest.mark.soak, pytest.mark.timeout(900)])])
async def test_every_turn_runs_on_the_version_that_the_rule_says(
    tmp_path: Path,
    on_update: OnUpdate,
    answers: Sequence[str],
    versions: Sequence[set[str]],
    count: int,
) -> None:
    """Tasks wait and pause while a version with another helper is loaded, and again while the first one returns."""
    async with system(tmp_path, on_update) as made:
        paused = await begin(made, *["ask"] * count)
        await work(made)
        waiting = await begin(made, *["hi"] * count)
        await made.served.load(swarm("2", "aide", on_update))
        await resume(made, paused)
        await work(made)
        later_paused = await begin(made, *["ask"] * count)
        await work(made)
        later = await begin(made, *["hi"] * count)
        await made.served.load(swarm("1", "helper", on_update))
        await resume(made, later_paused)
        newest = await begin(made, *["hi"] * count)
        await work(made)
        for group, answer, ran_on in zip(
            (waiting, paused, later, later_paused, newest), answers, versions, strict=True
        ):
            found = [await read(made, task_id) for task_id in group]
            assert {task.status for task, _, _ in found} == {TaskStatus.COMPLETED}
            assert {text for _, text, _ in found} == {answer}
            assert all(each == ran_on for _, _, each in found)


async def test_a_process_that_starts_later_builds_a_kept_version_again(tmp_path: Path) -> None:
    async with system(tmp_path, "finish") as first:
        await first.served.load(swarm("2", "aide", "finish"))
        paused = await begin(first, "ask")
        await work(first)
        await first.served.load(swarm("3", "third", "finish"))
    async with system(tmp_path, "finish") as second:
        await second.served.refresh()
        await resume(second, paused)
        await work(second)
        task, answer, versions = await read(second, paused[0])
    assert (task.status, answer, versions) == (TaskStatus.COMPLETED, "22", {"2"})


async def test_a_process_has_only_some_versions_at_hand_and_closes_none_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    async def close(swarm: SwarmCore) -> None:
        closed.append(swarm.digest)

    async with system(tmp_path, "finish") as made:
        paused = []
        monkeypatch.setattr(SwarmCore, "aclose", close)
        for n in range(2, MOST_VERSIONS + 5):
            paused += await begin(made, "ask")
            await work(made)
            await made.served.load(swarm(str(n), "helper", "finish"))
            assert made.runtime.versions is not None
            assert len(made.runtime.versions._built) <= MOST_VERSIONS
        await resume(made, paused)
        await work(made)
        assert len(made.runtime.versions._built) == MOST_VERSIONS
        ends = [await read(made, task_id) for task_id in paused]
    assert [versions for _, _, versions in ends] == [{str(n)} for n in range(1, MOST_VERSIONS + 4)]
    assert len(closed) == 1  # the present one, at the end


async def test_a_server_without_requests_runs_what_another_one_has_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.adapters.local.workers.SWEEP_SECONDS", 0.01)
    async with system(tmp_path, "switch") as made:
        await made.start()
        before = made.runtime.swarm.digest
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(made.served, "_adopt", lambda *_: None)
            await made.served.load(swarm("2", "aide", "switch"))
        assert made.runtime.swarm.digest == before
        made.served._fresh_until = 0.0
        async with asyncio.timeout(60):
            while made.runtime.swarm.digest == before:  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.001)


async def test_a_version_that_is_not_known_any_more_is_switched_from(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with system(tmp_path, "finish") as first:
        await first.served.load(swarm("2", "aide", "finish"))
        paused = await begin(first, "ask")
        await work(first)
        await first.served.load(swarm("3", "third", "finish"))
        await first._backend.documents.delete(
            Kind.SWARM_VERSION, (await load(first, paused[0])).generation.versions[0]
        )
    async with system(tmp_path, "finish") as second:
        await second.served.refresh()
        await resume(second, paused)
        await work(second)
        task = await load(second, paused[0])
        response = await second.store.read_response(task.key, task.generation.number)
        assert response is not None
        assert response.message.body == "33"
        assert task.generation.versions[1:] == (second.swarm.digest,)
    assert f"version {task.generation.versions[0]} of swarm {NAME} is not kept" in caplog.text


async def test_an_approval_that_finds_its_agent_gone_ends_the_task_as_failed(tmp_path: Path) -> None:
    async with system(tmp_path, "switch") as made:
        [task_id] = await begin(made, "pay")
        await work(made)
        assert (await load(made, task_id)).status is TaskStatus.PAUSED
        await made.served.load(swarm("2", "aide", "switch"))
        approval = GivenApproval(decision="approve")
        await made.runtime.submit(ANN, Submission(task_id=task_id, approvals=(approval,)))
        await work(made)
        task = await load(made, task_id)
        response = await made.store.read_response(task.key, task.generation.number)
    assert task.status is TaskStatus.FAILED
    assert response is not None
    assert response.message.body == (
        "the call of pay by agent 'helper' was approved, but the swarm no longer has this agent. The task was ended."
    )
