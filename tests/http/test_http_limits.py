"""429: callers who ask too often, have too many tasks, or write to an agent that has enough to read."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from support.processes.http_server import HTTPServer
from test_http_interswarm import wrapper

from mail.auth.keys import Caller
from mail.core.decisions.caller_limits import CallerLimits
from mail.core.task.task import TaskKey
from mail.errors import RateLimited
from mail.http.rates import KNOWN_CALLERS, RateLimiter
from mail.testing.agents import Call, View, build_swarm, complete


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class TestRateLimiter:
    def test_a_burst_then_the_rate(self) -> None:
        clock, ann = Clock(), Caller("user", "ann")
        limiter = RateLimiter(2.0, 3, clock=clock)
        for _ in range(3):
            limiter.admit(ann)
        with pytest.raises(RateLimited) as refusal:
            limiter.admit(ann)
        assert refusal.value.retry_after == 1
        clock.now += 0.5
        limiter.admit(ann)
        with pytest.raises(RateLimited):
            limiter.admit(ann)

    def test_retry_after_is_kept(self) -> None:
        clock, ann = Clock(), Caller("user", "ann")
        limiter = RateLimiter(0.1, 1, clock=clock)
        limiter.admit(ann)
        with pytest.raises(RateLimited) as refusal:
            limiter.admit(ann)
        clock.now += refusal.value.retry_after
        limiter.admit(ann)

    def test_who_waits_gets_no_more_than_a_burst(self) -> None:
        clock, ann = Clock(), Caller("user", "ann")
        limiter = RateLimiter(10.0, 2, clock=clock)
        clock.now += 3600
        limiter.admit(ann)
        limiter.admit(ann)
        with pytest.raises(RateLimited):
            limiter.admit(ann)

    def test_refusals_cost_nothing(self) -> None:
        clock, ann = Clock(), Caller("user", "ann")
        limiter = RateLimiter(1.0, 1, clock=clock)
        limiter.admit(ann)
        for _ in range(50):
            with pytest.raises(RateLimited):
                limiter.admit(ann)
        clock.now += 1
        limiter.admit(ann)

    def test_callers_differ_by_role_and_id(self) -> None:
        limiter = RateLimiter(1.0, 1, clock=Clock())
        for caller in (Caller("user", "ann"), Caller("admin", "ann"), Caller("user", "bob")):
            limiter.admit(caller)

    def test_it_remembers_so_many_callers(self) -> None:
        limiter = RateLimiter(1.0, 1, clock=Clock())
        for n in range(KNOWN_CALLERS + 10):
            limiter.admit(Caller("user", f"u{n}"))
        assert len(limiter._buckets) == KNOWN_CALLERS


def echo(view: View) -> list[Call]:
    return [complete(view.mail.body)]


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    """A server that lets each caller ask three times."""
    async with HTTPServer(build_swarm({"supervisor": echo}), rates=RateLimiter(0.01, 3)) as server:
        yield server


async def test_the_answer(server: HTTPServer) -> None:
    for _ in range(3):
        assert (await server.client.get("/whoami")).status_code == 200
    response = await server.post(task_id="t")
    assert response.status_code == 429
    assert response.headers["retry-after"] == "100"
    assert response.json() == {"detail": "more than 0.01 requests a second; try again later"}
    assert await server.rig.store.load(TaskKey(str(server.rig.user), "t")) is None


async def test_others_and_public_routes_are_let_through(server: HTTPServer) -> None:
    for _ in range(5):
        await server.client.get("/whoami")
    admin = await server.client.get("/whoami", headers=server.headers("admin"))
    assert admin.status_code == 200
    for _ in range(5):
        assert (await server.client.get("/health")).status_code == 200


async def test_unknown_keys_cost_nobody_anything(server: HTTPServer) -> None:
    for _ in range(5):
        refused = await server.client.get("/whoami", headers={"Authorization": "Bearer wrong"})
        assert refused.status_code == 401
    assert (await server.client.get("/whoami")).status_code == 200


async def test_in_openais_words() -> None:
    async with HTTPServer(
        build_swarm({"supervisor": echo}), rates=RateLimiter(0.01, 1), debug=True
    ) as server:
        await server.client.get("/whoami")
        response = await server.client.post("/responses", json={"input": "hi"})
        assert response.status_code == 429
        assert response.headers["retry-after"] == "100"
        error = response.json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")


async def test_tasks_at_once() -> None:
    gate = asyncio.Event()

    async def work(view: View) -> list[Call]:
        await gate.wait()
        return [complete(view.mail.body)]

    async with HTTPServer(build_swarm({"supervisor": work})) as server:
        server.rig.runtime.caller_limits = CallerLimits(running_tasks=1)
        now = {"Prefer": "respond-async"}
        assert (await server.post(task_id="1", headers=now)).status_code == 202
        refused = await server.post(task_id="2", headers={**now, "Idempotency-Key": "k"})
        assert refused.status_code == 429
        assert int(refused.headers["retry-after"]) >= 1
        gate.set()
        await server.rig.workers.idle()
        again = await server.post(task_id="2", headers={"Idempotency-Key": "k"})
        assert again.json()["response"] == "hello"


async def test_another_swarm_is_refused_as_well_and_may_come_again() -> None:
    gate = asyncio.Event()

    async def work(view: View) -> list[Call]:
        await gate.wait()
        return [complete(view.mail.body)]

    async with HTTPServer(build_swarm({"supervisor": echo, "worker": work})) as server:
        server.rig.runtime.caller_limits = CallerLimits(mailbox_depth=2)

        async def forward(n: int) -> int:
            body = {"message": wrapper(message_id=f"m-{n}")}
            answer = await server.client.post(
                "/interswarm/forward", json=body, headers=server.headers("agent")
            )
            return answer.status_code

        assert [await forward(n) for n in (1, 2, 3)] == [200, 200, 429]
        assert await forward(2) == 200  # known already, so nothing is added
        key = TaskKey("swarm:other@example", "t-1")
        task = await server.rig.store.load(key)
        assert task is not None
        assert len(task.received) == 2
        server.rig.runtime.caller_limits = CallerLimits()
        assert await forward(3) == 200
        gate.set()
