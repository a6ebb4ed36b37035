"""`GET /usage`: what tasks have cost, by agent, model and caller."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from support.processes.http_server import HTTPServer

from mail.core.task.stored import write_task
from mail.core.task.usage import NO_USAGE, Usage, report_usage
from mail.http.routes import usage as usage_routes
from mail.testing.agents import Call, View, build_swarm, complete, request, respond, wait
from mail.testing.clock import EPOCH, FakeClock

CHEAP = Usage(calls=1, input_tokens=100, output_tokens=10, cost=0.01)
DEAR = Usage(calls=1, input_tokens=50, cached_tokens=20, output_tokens=20, reasoning_tokens=5, cost=0.25)
UNPRICED = Usage(calls=1, input_tokens=7, output_tokens=3, unpriced_calls=1)


def supervise(view: View) -> Sequence[Call]:
    """`free` costs nothing; else it asks the clerk, whose model has no price."""
    if view.mail.sender == "clerk":
        report_usage(DEAR, "gpt-dear")
        return [complete()]
    if view.mail.body == "free":
        return [complete()]
    report_usage(CHEAP, "gpt-cheap")
    return [request("clerk"), wait()]


def clerk(_view: View) -> Sequence[Call]:
    report_usage(UNPRICED, "house-model")
    report_usage(CHEAP, "gpt-cheap")
    return [respond("supervisor")]


TASK = CHEAP + DEAR + UNPRICED + CHEAP


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def server(clock: FakeClock) -> AsyncIterator[HTTPServer]:
    async with HTTPServer(build_swarm({"supervisor": supervise, "clerk": clerk}), clock=clock) as server:
        yield server


async def get(server: HTTPServer, role: str = "user", status: int = 200, **query: Any) -> dict[str, Any]:
    response = await server.client.get("/usage", params=query, headers=server.headers(role))
    assert response.status_code == status, response.text
    answer: dict[str, Any] = response.json()
    return answer


def spent(usages: dict[str, Any]) -> dict[str, Usage]:
    return {name: Usage(**usage) for name, usage in usages.items()}


def total(answer: dict[str, Any]) -> Usage:
    return Usage(**answer["total"])


async def test_by_the_day_on_which_tasks_began(server: HTTPServer, clock: FakeClock) -> None:
    await server.ask(task_id="a")
    first = clock.now().date().isoformat()
    clock.advance(24 * 3600)
    await server.ask(task_id="b")
    await server.ask(task_id="free", body="free")
    second = clock.now().date().isoformat()
    assert spent((await get(server))["days"]) == {first: TASK, second: TASK}


async def test_by_the_version_of_the_swarm_with_which_the_last_run_began(server: HTTPServer) -> None:
    await server.ask(task_id="a")
    (digest,) = (versions := (await get(server))["versions"])
    assert spent(versions) == {digest: TASK}
    assert total(await get(server, version=digest)) == TASK
    for other in ("0" * len(digest), digest[:3]):
        answer = await get(server, version=other)
        assert (answer["tasks"], total(answer), answer["versions"]) == (0, NO_USAGE, {})


async def test_by_agent_model_and_caller(server: HTTPServer) -> None:
    await server.ask(task_id="a")
    await server.ask(task_id="b")
    await server.ask(body="free", task_id="c")
    answer = await get(server)
    assert answer["tasks"] == 3
    assert total(answer) == TASK + TASK
    assert spent(answer["agents"]) == {
        "supervisor": CHEAP + DEAR + CHEAP + DEAR,
        "clerk": CHEAP + UNPRICED + CHEAP + UNPRICED,
    }
    assert spent(answer["models"]) == {
        "gpt-cheap": CHEAP + CHEAP + CHEAP + CHEAP,
        "gpt-dear": DEAR + DEAR,
        "house-model": UNPRICED + UNPRICED,
    }
    assert spent(answer["callers"]) == {"user:ann@example": TASK + TASK}
    assert (answer["since"], answer["until"], answer["cursor"], answer["per_task"]) == (
        None,
        None,
        None,
        None,
    )


async def test_one_task(server: HTTPServer) -> None:
    await server.ask(task_id="a")
    await server.ask(task_id="b")
    answer = await get(server, task_id="a")
    assert (answer["tasks"], total(answer)) == (1, TASK)
    assert "no task 'c'" in (await get(server, task_id="c", status=404))["detail"]


async def test_the_task_record_tells_it_too(server: HTTPServer) -> None:
    await server.ask(task_id="a")
    usage = (await server.task("a"))["usage"]
    assert spent(usage["models"]) == {"gpt-cheap": CHEAP + CHEAP, "gpt-dear": DEAR, "house-model": UNPRICED}
    assert Usage(**usage["total"]) == TASK


async def test_admins_see_everybodys(server: HTTPServer) -> None:
    await server.ask(task_id="a")
    await server.ask(task_id="a", headers=server.headers("admin"))
    everybody = await get(server, "admin")
    assert everybody["tasks"] == 2
    assert spent(everybody["callers"]) == {"user:ann@example": TASK, "admin:root@example": TASK}
    for name in ("user:ann", "user:ann@example"):
        anns = await get(server, "admin", caller=name)
        assert spent(anns["callers"]) == {"user:ann@example": TASK}
    assert spent((await get(server, "admin", caller="admin:root"))["callers"]) == {"admin:root@example": TASK}
    assert (await get(server, "admin", caller="user:nobody"))["tasks"] == 0
    assert spent((await get(server, "admin", task_id="a"))["callers"]) == {"admin:root@example": TASK}
    hers = await get(server, "admin", task_id="a", caller="user:ann")
    assert spent(hers["callers"]) == {"user:ann@example": TASK}


async def test_users_see_their_own_only(server: HTTPServer) -> None:
    await server.ask(task_id="a", headers=server.headers("admin"))
    assert (await get(server))["tasks"] == 0
    assert (await get(server, caller="user:ann"))["tasks"] == 0
    await get(server, caller="admin:root", status=403)
    await get(server, task_id="a", status=404)


async def test_a_period(server: HTTPServer, clock: FakeClock) -> None:
    for task_id in ("first", "second", "third"):
        await server.ask(task_id=task_id)
        clock.advance(24 * 3600)
    day = [EPOCH + timedelta(days=n) for n in range(3)]
    for since, until, expected in (
        (None, None, ["third", "second", "first"]),
        (day[1], None, ["third", "second"]),
        (None, day[1], ["first"]),
        (day[1], day[2], ["second"]),
        (day[2] + timedelta(seconds=1), None, []),
    ):
        asked = {"since": since and since.isoformat(), "until": until and until.isoformat()}
        answer = await get(server, per_task="true", **{key: text for key, text in asked.items() if text})
        assert [each["task_id"] for each in answer["per_task"]] == expected
        assert answer["tasks"] == len(expected)
        assert {key: answer[key] for key in asked} == asked


async def test_a_date_is_its_first_moment_in_utc(server: HTTPServer) -> None:
    answer = await get(server, since="2026-01-31")
    assert answer["since"] == "2026-01-31T00:00:00+00:00"


@pytest.mark.parametrize(
    "moment", ["yesterday", "", "7d", "2026-13-01", "2026-01-01T00:00:00 01:00", "1700000000000"]
)
async def test_a_time_that_is_none_is_refused(server: HTTPServer, moment: str) -> None:
    assert "ISO 8601" in (await get(server, since=moment, status=400))["detail"]
    assert "until" in (await get(server, until=moment, status=400))["detail"]


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"])
async def test_the_ends_of_time(server: HTTPServer, moment: str) -> None:
    await server.ask(task_id="a")
    tasks = [(await get(server, **{name: moment}))["tasks"] for name in ("since", "until")]
    assert sorted(tasks) == [0, 1]


async def test_pages_add_up_to_the_whole(server: HTTPServer) -> None:
    for n in range(5):
        await server.ask(task_id=f"t{n}")
    sums, tasks, query = NO_USAGE, [], {}
    while True:
        answer = await get(server, limit=2, per_task="true", **query)
        assert answer["tasks"] <= 2
        sums += total(answer)
        tasks += [each["task_id"] for each in answer["per_task"]]
        if answer["cursor"] is None:
            break
        query = {"cursor": answer["cursor"]}
    assert tasks == ["t4", "t3", "t2", "t1", "t0"]
    assert sums == sum([TASK] * 5, NO_USAGE)
    await get(server, cursor="nonsense", status=400)
    await get(server, limit=1001, status=400)


async def test_what_is_older_than_the_period_is_not_looked_at(
    server: HTTPServer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage_routes, "BATCH", 1)
    for n in range(4):
        await server.ask(task_id=f"t{n}")
        clock.advance(3600)
    newest = (await server.rig.store.list_tasks("user:ann@example", limit=1)).tasks[0]
    looks: list[int] = []
    list_tasks = type(server.rig.store).list_tasks

    async def counting(self: Any, *arguments: Any, **options: Any) -> Any:
        looks.append(1)
        return await list_tasks(self, *arguments, **options)

    monkeypatch.setattr(type(server.rig.store), "list_tasks", counting)
    answer = await get(server, since=newest.started)
    assert (answer["tasks"], answer["cursor"]) == (1, None)
    assert len(looks) == 2


async def test_tasks_of_other_swarms_in_the_same_store_are_not_theirs(server: HTTPServer) -> None:
    await server.ask(task_id="a")
    task = (await server.rig.store.list_tasks(None)).tasks[0]
    sql = server.rig.database.connection
    sql.execute("UPDATE tasks SET instance = 'user:ann@elsewhere'")
    sql.execute(
        "UPDATE commits SET state = ?",
        (write_task(replace(task, instance="user:ann@elsewhere")),),
    )
    assert (await get(server, "admin"))["tasks"] == 0
