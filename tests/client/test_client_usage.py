"""`MAILClient.get_usage`: all of it, however many answers it comes in."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from client_stage import CONFIG, Recorder
from starlette.requests import Request
from starlette.responses import JSONResponse

from mail.client import MAILClient
from mail.core.task.usage import Usage
from mail.http.routes import usage as usage_routes

ONE = Usage(calls=1, input_tokens=10, output_tokens=1, cost=0.1)


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
