"""Schedules over HTTP: who may do what with whose, what is refused, and what a run shows."""

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.processes.http_server import HTTPServer

from mail.core.task.schedules import FAILING, MAX_SCHEDULES
from mail.testing.agents import build_swarm, complete
from mail.testing.clock import FakeClock

MORNING = {"name": "morning", "cron": "30 8 * * mon-fri", "timezone": "Europe/Berlin", "body": "What is new?"}


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    swarm = build_swarm({"supervisor": lambda view: [complete(f"nothing, {view.mail.subject}")]})
    async with HTTPServer(swarm, clock=FakeClock()) as server:
        yield server


async def ask(
    server: HTTPServer, method: str, path: str, body: dict[str, Any] | None = None, role: str = "user"
) -> tuple[int, dict[str, Any]]:
    response = await server.client.request(method, path, headers=server.headers(role), json=body)
    return response.status_code, response.json()


async def pass_time(server: HTTPServer, seconds: float) -> None:
    clock = server.rig.clock
    assert isinstance(clock, FakeClock)
    clock.advance(seconds)
    await server.rig.runtime.sweep()
    await server.rig.workers.idle()


async def test_a_schedule_from_its_creation_to_its_end(
    server: HTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mail.audit")
    status, made = await ask(server, "POST", "/schedules", MORNING)
    assert status == 201
    caller = made["caller"]
    assert caller.startswith("user:")
    assert made == {
        **MORNING,
        "entrypoint": None,
        "subject": None,
        "caller": caller,
        "overlap": "skip",
        "missed": "once",
        "enabled": True,
        "declared": False,
        "changed_by": caller,
        "next": "2026-02-02T07:30:00+00:00",  # a Monday
        "failures": 0,
        "is_failing": False,
        "runs": [],
    }
    assert await ask(server, "GET", "/schedules") == (200, {"schedules": [made]})
    status, changed = await ask(
        server, "POST", "/schedules/morning", {"cron": "0 * * * *", "subject": "news", "name": "other"}
    )
    assert (status, changed["name"], changed["next"]) == (200, "morning", "2026-01-31T09:00:00+00:00")
    await pass_time(server, 3600)
    _, shown = await ask(server, "GET", "/schedules/morning")
    run = {
        "at": "2026-01-31T09:00:00+00:00",
        "task_id": "morning@2026-01-31T09:00Z",
        "state": "completed",
        "reason": "",
    }
    assert shown["runs"] == [run]
    assert (await server.task("morning@2026-01-31T09:00Z"))["title"] == "news"
    _, off = await ask(server, "POST", "/schedules/morning", {"enabled": False})
    assert (off["enabled"], off["next"]) == (False, None)
    await pass_time(server, 7)
    status, started = await ask(server, "POST", "/schedules/morning/run")
    assert (status, started["task_id"], started["state"]) == (202, "morning@2026-01-31T09:00:07Z", "running")
    assert await ask(server, "DELETE", "/schedules/morning") == (
        200,
        {"status": "deleted", "name": "morning"},
    )
    assert await ask(server, "GET", "/schedules") == (200, {"schedules": []})
    assert (await server.task("morning@2026-01-31T09:00:07Z"))["task_id"]
    acts = [getattr(record, "act", "") for record in caplog.records]
    assert acts == [
        *("create schedule", "change schedule", "change schedule", "run schedule", "delete schedule")
    ]


async def test_users_have_schedules_of_their_own_and_admins_those_of_all(server: HTTPServer) -> None:
    _, theirs = await ask(server, "POST", "/schedules", {**MORNING, "name": "theirs"}, role="admin")
    status, mine = await ask(
        server, "POST", "/schedules", {**MORNING, "caller": (await whoami(server))}, role="admin"
    )
    assert (status, mine["caller"].split("@")[0]) == (201, await whoami(server))
    assert mine["changed_by"] == theirs["caller"]
    status, problem = await ask(server, "GET", "/schedules/theirs")
    assert (status, problem["detail"]) == (404, "you have no schedule 'theirs'; GET /schedules lists yours")
    assert [each["name"] for each in (await ask(server, "GET", "/schedules"))[1]["schedules"]] == ["morning"]
    _, everything = await ask(server, "GET", "/schedules", role="admin")
    assert [each["name"] for each in everything["schedules"]] == ["morning", "theirs"]
    status, problem = await ask(
        server, "POST", "/schedules", {**MORNING, "name": "x", "caller": "admin:root"}
    )
    assert status == 403
    assert "only admins" in problem["detail"]
    status, problem = await ask(server, "POST", "/schedules", {**MORNING, "name": "theirs"})
    assert (status, problem["detail"]) == (
        409,
        "there is a schedule 'theirs' already; choose another name",
    )


async def whoami(server: HTTPServer) -> str:
    _, caller = await ask(server, "GET", "/whoami")
    return f"{caller['role']}:{caller['id']}"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"name": "a b"}, "name: String should match pattern"),
        ({"cron": "0 0 30 2 *"}, "bad day-of-month; write five fields"),
        ({"timezone": "Europe/Berln"}, "Did you mean 'Europe/Berlin'?"),
        ({"entrypoint": "supervisr"}, "Did you mean 'supervisor'?"),
        ({"overlap": "wait"}, "overlap: Input should be 'skip', 'queue' or 'cancel'"),
        ({"missed": "all"}, 'set overlap = "queue"'),
        ({"body": ""}, "body: String should have at least 1 character"),
        ({"body": "x" * 16_001}, "body: String should have at most 16000 characters"),
    ],
)
async def test_what_is_not_valid(server: HTTPServer, given: dict[str, Any], problem: str) -> None:
    status, answer = await ask(server, "POST", "/schedules", {**MORNING, **given})
    assert status == 400
    assert problem in answer["detail"]
    await ask(server, "POST", "/schedules", MORNING)
    if "name" not in given:
        status, answer = await ask(server, "POST", "/schedules/morning", given)
        assert status == 400
        assert problem in answer["detail"]


async def test_a_declared_schedule_is_changed_in_its_file(server: HTTPServer) -> None:
    _, made = await ask(server, "POST", "/schedules", MORNING)
    schedules = server.rig.runtime.schedules
    await schedules.declare([(await schedules.read("morning")).spec])
    for method, path in (("POST", "/schedules/morning"), ("DELETE", "/schedules/morning")):
        status, problem = await ask(server, method, path, {"enabled": False} if method == "POST" else None)
        assert (status, problem["detail"]) == (
            409,
            "schedule 'morning' is declared in the server's mail.toml; change it there",
        )
    _, shown = await ask(server, "GET", "/schedules/morning")
    assert shown == {**made, "declared": True, "changed_by": "mail.toml"}
    assert (await ask(server, "POST", "/schedules/morning/run"))[0] == 202


async def test_a_declared_schedule_leaves_that_of_another_caller(
    server: HTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    _, made = await ask(server, "POST", "/schedules", MORNING)
    schedules = server.rig.runtime.schedules
    mine = (await schedules.read("morning")).spec
    await schedules.declare([mine.of_caller(f"user:someone@{server.rig.runtime.swarm.name}")])
    assert f"morning of the configuration does not run, as {made['caller']} has one" in caplog.text
    assert (await ask(server, "GET", "/schedules/morning")) == (200, made)
    await schedules.declare([mine.model_copy(update={"body": "from the file"})])
    assert f"morning of the configuration replaces that of {made['caller']}" in caplog.text
    assert (await ask(server, "GET", "/schedules/morning"))[1]["body"] == "from the file"


async def test_a_schedule_is_no_task_of_any_caller(server: HTTPServer) -> None:
    await ask(server, "POST", "/schedules", MORNING)
    assert await ask(server, "GET", "/tasks?all=true&fields=summary", role="admin") == (200, {})
    assert (await ask(server, "GET", "/usage?all=true", role="admin"))[1]["tasks"] == 0
    _, run = await ask(server, "POST", "/schedules/morning/run")
    _, tasks = await ask(server, "GET", "/tasks?all=true&fields=summary", role="admin")
    assert [each["task_id"] for each in tasks.values()] == [run["task_id"]]


async def test_a_session_of_a_browser_makes_nothing_that_outlives_it(server: HTTPServer) -> None:
    await ask(server, "POST", "/schedules", MORNING, role="admin")
    _, link = await ask(server, "POST", "/sign-in-links", role="admin")
    _, session = await ask(server, "POST", "/sign-in", {"code": link["code"]}, role="admin")
    headers = {"Authorization": f"Bearer {session['token']}"}
    for path, body, status in (
        ("/schedules", {**MORNING, "name": "new"}, 403),
        ("/schedules/morning", {"body": "other"}, 403),
        ("/schedules/morning", {"enabled": False}, 200),
        ("/schedules/morning", {"enabled": True}, 200),
        ("/schedules/morning/run", None, 202),
    ):
        response = await server.client.post(path, headers=headers, json=body)
        assert response.status_code == status
    assert (
        "mail schedule create"
        in (await server.client.post("/schedules", headers=headers, json={**MORNING, "name": "new"})).json()[
            "detail"
        ]
    )


async def test_a_schedule_that_fails_is_reported(
    server: HTTPServer, caplog: pytest.LogCaptureFixture
) -> None:
    await ask(server, "POST", "/schedules", {**MORNING, "cron": "0 * * * *"})
    server.rig.runtime.swarm = build_swarm({"chief": lambda _view: [complete()]})
    await ask(
        server, "POST", "/schedules", {**MORNING, "name": "other", "entrypoint": "chief", "cron": "0 * * * *"}
    )
    server.rig.runtime.swarm = server.rig.swarm
    for _ in range(FAILING):
        await pass_time(server, 3600)
    _, shown = await ask(server, "GET", "/schedules/other")
    assert (shown["failures"], shown["is_failing"]) == (FAILING, True)
    assert {run["state"] for run in shown["runs"]} == {"failed"}
    assert "entrypoint must be one of: supervisor; not 'chief'" in shown["runs"][0]["reason"]
    lines = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert f"schedule other: the run for 2026-01-31T11:00:00+00:00 failed, {FAILING} in a row" in "\n".join(
        lines
    )
    _, fine = await ask(server, "GET", "/schedules/morning")
    assert (fine["failures"], fine["is_failing"], len(fine["runs"])) == (0, False, FAILING)


async def test_a_caller_has_so_many_schedules(server: HTTPServer) -> None:
    for n in range(MAX_SCHEDULES):
        assert (await ask(server, "POST", "/schedules", {**MORNING, "name": f"s{n}"}))[0] == 201
    status, problem = await ask(server, "POST", "/schedules", MORNING)
    assert status == 400
    assert f"{MAX_SCHEDULES} schedules, the maximum" in problem["detail"]
    assert (await ask(server, "POST", "/schedules", MORNING, role="admin"))[0] == 201
