"""docs/schedules.md: its numbers hold, its file is read, and its function posts each event of AWS once."""

import asyncio
import tomllib
from typing import Any

import pytest
from support.processes.document_samples import DOCS
from support.processes.http_server import HTTPServer

from mail.config import ServerConfig
from mail.core.decisions.schedules import LATE_SECONDS, LOOK_SECONDS, MAX_LOOK_SECONDS
from mail.core.task.schedules import FAILING, HISTORY, MAX_SCHEDULES, MAX_WAITING, Schedule
from mail.testing.agents import build_swarm, complete

TEXT = (DOCS / "schedules.md").read_text(encoding="utf-8")

UPLOAD = {
    "version": "0",
    "id": "17793124-05d4-b198-2fde-7ededc63b103",
    "detail-type": "Object Created",
    "source": "aws.s3",
    "time": "2026-03-27T07:30:00Z",
    "resources": ["arn:aws:s3:::my-bucket"],
    "detail": {"bucket": {"name": "my-bucket"}, "object": {"key": "report.pdf", "size": 5}},
}
ORDERS = {
    "Records": [
        {"messageId": f"059f36b4-87a3-44ab-83d2-66197503{n}", "body": f"order {n}", "eventSource": "aws:sqs"}
        for n in (1001, 1002)
    ]
}


def sample(language: str) -> str:
    return TEXT.partition(f"```{language}\n")[2].partition("```")[0]


def test_the_file() -> None:
    given = tomllib.loads(sample("toml"))["server"]
    [schedule] = ServerConfig.model_validate(given).schedules
    assert (schedule.name, schedule.timezone, schedule.caller) == ("morning", "Europe/Berlin", "user:ann")


def test_every_key() -> None:
    rows = [line for line in TEXT.splitlines() if line.startswith("| `")]
    named = [key.strip(" `") for row in rows for key in row.split("|")[1].split(",")]
    assert sorted(named) == sorted(Schedule.model_fields)


def test_every_number() -> None:
    words = {3: "three", 10: "ten", 5 * 60: "five minutes", 60: "a minute", 15 * 60: "15 minutes"}
    assert f"After {words[FAILING]} failures" in TEXT
    assert f"the last {words[HISTORY]} runs" in TEXT
    assert f"for {words[int(LATE_SECONDS)]}" in TEXT
    assert f"after {words[int(LOOK_SECONDS)]}, " in TEXT
    assert f"up to {words[int(MAX_LOOK_SECONDS)]}" in TEXT
    assert f"of up to {MAX_WAITING}" in TEXT
    assert f"the last {MAX_WAITING} of" in TEXT
    assert f"up to {MAX_SCHEDULES};" in TEXT


async def test_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    function: dict[str, Any] = {}
    exec(sample("python"), function)
    swarm = build_swarm({"supervisor": lambda view: [complete(f"read: {view.mail.body}")]})
    async with HTTPServer(swarm) as server:
        monkeypatch.setenv("MAIL_SERVER", server.uvicorn.url)
        monkeypatch.setenv("MAIL_TOKEN", server.keys["user"])
        for event in (UPLOAD, ORDERS, UPLOAD, ORDERS):  # AWS delivers at least once
            await asyncio.to_thread(function["handler"], event, None)
        response = await server.client.get("/tasks", headers=server.headers("user"))
        titles = sorted(task["title"] for task in response.json().values())
    assert len(titles) == 3
    assert titles[0].startswith('Object Created: {"bucket"')
    assert titles[1:] == ["order 1001", "order 1002"]
