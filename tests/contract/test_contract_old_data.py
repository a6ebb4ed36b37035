"""A database that an earlier version has written is read, and worked with, as if this version had written it."""

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from support.adapters import StoreAdapter
from support.old_data import OLD_DATA

from mail.adapters.local.queue import LocalQueue
from mail.auth.keys import Caller
from mail.auth.tokens import TokenAuthenticator
from mail.core.decisions.submit import Submission
from mail.core.engine.dead_letters import redrive_dead_letters
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.documents import ClaimedKey
from mail.core.task.mailboxes import goes_out
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.testing.agents import View, build_swarm, call, complete, request, respond, wait
from mail.testing.clock import FakeClock

ANN = Principal(role="user", id="ann", swarm="example")


def key(task_id: str) -> TaskKey:
    return TaskKey(str(ANN), task_id)


def supervise(view: View) -> Any:
    if view.mail.sender_type == "system":
        return [complete(view.results[-1])]
    if view.mail.sender == "helper":
        return [complete(view.mail.body)]
    if view.mail.body == "consult":
        return [request("helper", "please"), wait()]
    if view.mail.body == "approve":
        return [call("approve", city="Oslo")]
    if view.mail.body == "act":
        return [call("look", at="sky")]
    return [complete(view.mail.body)]


async def never(_: Any) -> str:
    raise AssertionError("an action whose outcome is unknown is not repeated")


SWARM = build_swarm(
    {"supervisor": supervise, "helper": lambda view: [respond(view.mail.sender, "helped")]},
    actions={"approve": never, "look": never},
    breakpoint_tools=frozenset({"approve"}),
)


@pytest.fixture(params=sorted(OLD_DATA))
async def old(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[StoreAdapter]:
    adapter = OLD_DATA[request.param](tmp_path)
    await adapter.open()
    yield adapter
    await adapter.close()


@pytest.fixture
def runtime(old: StoreAdapter) -> Runtime:
    return Runtime(SWARM, old.store, LocalQueue(), FakeClock(run=1))


async def finish(runtime: Runtime, task_id: str) -> Task:
    """Run the turns of a task until none is left."""
    while ready := [each for each in (await loaded(runtime, task_id)).ready() if not goes_out(each[0])]:
        await runtime.run_turn(key(task_id), ready[0][0])
    return await loaded(runtime, task_id)


async def loaded(runtime: Runtime, task_id: str) -> Task:
    task = await runtime.store.load(key(task_id))
    assert task is not None
    return task


async def answer(runtime: Runtime, task: Task) -> str:
    response = await runtime.store.read_response(task.key, task.generation.number)
    assert response is not None
    return response.message.body


async def test_all_tasks_are_listed(old: StoreAdapter) -> None:
    page = await old.store.list_tasks(str(ANN))
    assert {task.task_id: task.status for task in page.tasks} == {
        "done": TaskStatus.COMPLETED,
        "running": TaskStatus.RUNNING,
        "paused": TaskStatus.PAUSED,
        "cancelled": TaskStatus.CANCELLED,
        "failed": TaskStatus.FAILED,
        "dead": TaskStatus.FAILED,
        "hooked": TaskStatus.COMPLETED,
        "acting": TaskStatus.RUNNING,
    }
    assert await old.store.count_running(str(ANN), upto=10) == 2
    assert [task.task_id for task in (await old.store.list_dead(str(ANN))).tasks] == ["dead"]
    ready = {(wake_up.key.task_id, goes_out(wake_up.mailbox)) for wake_up in await old.store.list_ready()}
    assert ready == {("running", False), ("acting", False), ("hooked", True)}


async def test_an_ended_task_is_read_as_it_was_at_every_event(old: StoreAdapter, runtime: Runtime) -> None:
    task = await loaded(runtime, "done")
    events = await old.store.read_events(task.key)
    assert [event.seq for event in events] == list(range(1, task.seq + 1))
    assert await answer(runtime, task) == "helped"
    assert {agent: len(await old.store.read_history(task.key, agent)) > 0 for agent in SWARM.agents} == {
        "supervisor": True,
        "helper": True,
    }
    for event in events:
        snapshot = await old.store.read_snapshot(task.key, event.seq)
        assert snapshot.task.seq >= event.seq
    waiting = (await old.store.read_snapshot(task.key, 1)).mail
    assert [(entry.mailbox, entry.message.message.body) for entry in waiting] == [("supervisor", "consult")]


async def test_a_running_task_finishes(runtime: Runtime) -> None:
    task = await finish(runtime, "running")
    assert (task.status, await answer(runtime, task)) == (TaskStatus.COMPLETED, "helped")


async def test_an_unfinished_turn_resumes_from_its_checkpoint(runtime: Runtime) -> None:
    task = await finish(runtime, "acting")
    assert task.status is TaskStatus.COMPLETED
    assert "unknown" in await answer(runtime, task)


async def test_a_paused_task_resumes(runtime: Runtime) -> None:
    result = Submission(
        task_id="paused", resume_from="breakpoint_tool_call", breakpoint_tool_call_result="sunny"
    )
    await runtime.submit(ANN, result)
    task = await finish(runtime, "paused")
    assert task.status is TaskStatus.COMPLETED
    assert "sunny" in await answer(runtime, task)


@pytest.mark.parametrize("task_id", ["done", "cancelled", "failed", "hooked"])
async def test_an_ended_task_continues(runtime: Runtime, task_id: str) -> None:
    await runtime.submit(ANN, Submission(task_id=task_id, body="more", resume_from="user_response"))
    task = await finish(runtime, task_id)
    assert task.status is TaskStatus.COMPLETED
    assert task.generation.number > 1


async def test_a_dead_letter_is_redriven(runtime: Runtime, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="mail")
    (redriven,) = await redrive_dead_letters(runtime, ANN, key("dead"))
    assert redriven.letter.mailbox == "supervisor"
    task = await finish(runtime, "dead")
    assert (task.status, task.dead_letters, await answer(runtime, task)) == (TaskStatus.COMPLETED, (), "fail")


async def test_documents(old: StoreAdapter) -> None:
    documents = old.records
    assert await TokenAuthenticator(documents).authenticate("mail_user_678eebb") == Caller("user", "ann")
    assert await documents.has_tokens()
    assert [token.id for token in await documents.tokens()] == ["ann"]
    assert await documents.health() == "degraded"
    swarm = await documents.loaded_swarm()
    assert swarm is not None
    assert (swarm.text, swarm.replaces) == ('{"name": "example"}', "e" * 64)
    beta, gamma = await documents.peers()
    assert (beta.base_url, beta.auth_token) == ("https://beta.example", "${SWARM_AUTH_TOKEN_BETA}")
    assert (gamma.volatile, gamma.expires) == (True, 4102444800.0)
    assert {name: health.is_active for name, health in (await documents.peers_health()).items()} == {
        "beta": True
    }
    again = await documents.claim_key("user:ann@example", "order-1", ClaimedKey("f" * 64, "x", 1.0), now=0.0)
    assert again == ClaimedKey("d" * 64, "done", 4102444800.0)
    assert [hook.url for hook in await documents.webhooks("user:bob@example")] == ["https://bob.example/hook"]


async def test_the_last_token_of_an_earlier_version_leaves_a_marker(old: StoreAdapter) -> None:
    (token,) = await old.records.tokens()
    assert await old.records.remove_token(token.digest)
    assert await old.records.tokens() == []
    assert await old.records.has_tokens()
