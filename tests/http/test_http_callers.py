"""`caller` of `/dead-letters` and `/usage`: whom admins may name, on a store that swarms share."""

import logging
from collections.abc import AsyncIterator, Sequence

import pytest
from support.processes.http_server import HTTPServer

from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.task import Task, TaskKey
from mail.testing.agents import Call, View, build_swarm, complete

ANN_OF_BETA = Principal(role="user", id="ann", swarm="beta")
KEY = TaskKey(str(ANN_OF_BETA), "t")
PATHS = ("/dead-letters", "/usage")


def fail(_view: View) -> Sequence[Call]:
    raise RuntimeError("no model")


@pytest.fixture
async def server(caplog: pytest.LogCaptureFixture) -> AsyncIterator[HTTPServer]:
    """A server whose store also has a failed task of the swarm beta."""
    caplog.set_level(logging.CRITICAL, logger="mail")
    async with HTTPServer(build_swarm({"supervisor": lambda _view: [complete("done")]})) as server:
        rig = server.rig
        beta = Runtime(build_swarm({"supervisor": fail}, name="beta"), rig.store, rig.queue, rig.clock)
        await rig.workers.stop(grace=0)
        await beta.submit(ANN_OF_BETA, Submission(body="secret", task_id="t"))
        await beta.run_turn(KEY, "supervisor")
        assert (await task_of_beta(server)).dead_letters
        yield server


async def task_of_beta(server: HTTPServer) -> Task:
    return await server.rig.task(KEY)


@pytest.mark.parametrize("query", [{}, {"task_id": "t"}])
@pytest.mark.parametrize("path", PATHS)
async def test_other_swarms_callers_are_refused(server: HTTPServer, path: str, query: dict[str, str]) -> None:
    answer = await server.client.get(
        path, params={"caller": KEY.instance, **query}, headers=server.headers("admin")
    )
    assert answer.status_code == 400, answer.text
    assert "a caller of another swarm" in answer.json()["detail"]
    assert "secret" not in answer.text


@pytest.mark.parametrize("verb", ["redrive", "discard"])
@pytest.mark.parametrize("which", [{"task_id": "t"}, {"all": True}])
async def test_their_dead_letters_stay(server: HTTPServer, verb: str, which: dict[str, object]) -> None:
    before = await task_of_beta(server)
    body = {"caller": KEY.instance, **which}
    answer = await server.client.post(f"/dead-letters/{verb}", json=body, headers=server.headers("admin"))
    assert answer.status_code == 400, answer.text
    assert await task_of_beta(server) == before


@pytest.mark.parametrize("whose", ["user:ann", "user:ann@example", "admin:root"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_caller_is_named_with_or_without_the_swarm(server: HTTPServer, path: str, whose: str) -> None:
    answer = await server.client.get(path, params={"caller": whose}, headers=server.headers("admin"))
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("whose", ["ann", "robot:ann", "user:ann@", "@"])
@pytest.mark.parametrize("path", PATHS)
async def test_a_caller_that_is_none_is_refused(server: HTTPServer, path: str, whose: str) -> None:
    answer = await server.client.get(path, params={"caller": whose}, headers=server.headers("admin"))
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize(("whose", "status"), [("user:ann", 200), ("admin:root", 403), (KEY.instance, 403)])
@pytest.mark.parametrize("path", PATHS)
async def test_users_name_themselves_only(server: HTTPServer, path: str, whose: str, status: int) -> None:
    answer = await server.client.get(path, params={"caller": whose}, headers=server.headers("user"))
    assert answer.status_code == status, answer.text
