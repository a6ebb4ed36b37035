"""`MAILClient.get_usage`: all of it, however many answers it comes in."""

from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import pytest
from client_stage import CONFIG, Recorder, client_of
from starlette.requests import Request
from starlette.responses import JSONResponse
from support.processes.http_server import HTTPServer

from mail.client import BadAnswer, MAILClient
from mail.core.task.usage import Usage, report_usage
from mail.http.routes import usage as usage_routes
from mail.testing.agents import Call, View, build_swarm, complete

ONE = Usage(calls=1, input_tokens=10, output_tokens=1, cost=0.1)


def spend(_view: View) -> list[Call]:
    report_usage(ONE, "gpt-x")
    return [complete()]


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    async with HTTPServer(build_swarm({"supervisor": spend})) as server:
        yield server


async def test_of_a_server(server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with client_of(server) as client:
        for n in range(5):
            await client.post_message("hi", task_id=f"t{n}")
        whole = await client.get_usage(per_task=True)
        assert (whole["tasks"], whole["cursor"]) == (5, None)
        assert whole["total"] == {
            **asdict(ONE),
            "calls": 5,
            "input_tokens": 50,
            "output_tokens": 5,
            "cost": 0.5,
        }
        assert whole["agents"]["supervisor"] == whole["models"]["gpt-x"] == whole["total"]
        assert [each["task_id"] for each in whole["per_task"]] == ["t4", "t3", "t2", "t1", "t0"]
        assert (await client.get_usage(task_id="t0"))["total"]["calls"] == 1
        assert (await client.get_usage(until="2026-01-01"))["tasks"] == 0
        with pytest.raises(BadAnswer) as refused:
            await client.get_usage(caller="admin:root")
        assert refused.value.status == 403
    async with client_of(server, "admin") as client:
        assert (await client.get_usage(caller="user:ann"))["callers"].keys() == {"user:ann@example"}


async def test_pages_are_added_up() -> None:
    def page(cursor: str | None, agent: str) -> dict[str, Any]:
        usage = {agent: asdict(ONE), "both": asdict(ONE)}
        return {
            "tasks": 2, "total": asdict(ONE + ONE), "agents": usage, "models": {}, "callers": {},
            "since": None, "until": None, "cursor": cursor, "per_task": None,
        }  # fmt: skip

    pages = {None: page("a b", "first"), "a b": page("c", "second"), "c": page(None, "first")}

    def answer(request: Request) -> JSONResponse:
        return JSONResponse(pages[request.query_params.get("cursor")])

    recorder = Recorder(answer)
    async with recorder.serve() as url, MAILClient(url, config=CONFIG) as client:
        whole = await client.get_usage(since=datetime(2026, 1, 1, tzinfo=UTC))
    assert len(recorder.requests) == 3
    assert {request.query_params["since"][:10] for request in recorder.requests} == {"2026-01-01"}
    assert (whole["tasks"], whole["cursor"], whole["per_task"]) == (6, None, None)
    assert {name: usage["calls"] for name, usage in whole["agents"].items()} == {
        "first": 2,
        "both": 3,
        "second": 1,
    }
    assert whole["total"]["cost"] == 0.6


def test_the_server_looks_at_a_thousand_tasks_at_a_time() -> None:
    assert usage_routes.MAX_TASKS == 1000
    assert "a thousand tasks" in (MAILClient.get_usage.__doc__ or "")
