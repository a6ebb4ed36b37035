"""Logs for programs: JSON lines that name task, agent and message, and hold neither bodies nor keys."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from support.processes.http_server import HTTPServer
from support.services.federation import Swallow

from mail.adapters.telemetry.json_log import ActivityLog, JSONFormatter
from mail.core.turns.context import leave_task
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, wait

SECRET = "swordfish"


class Log:
    """What `mail` has logged at INFO and above, as JSON."""

    def __init__(self) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(JSONFormatter())

    @property
    def text(self) -> str:
        return self._stream.getvalue()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def log() -> Iterator[Log]:
    log, logger = Log(), logging.getLogger("mail")
    before = logger.level
    logger.addHandler(log.handler)
    logger.setLevel(logging.INFO)
    yield log
    logger.removeHandler(log.handler)
    logger.setLevel(before)


def supervise(view: View) -> list[Call]:
    if view.mail.sender in ("worker", "user"):
        return [complete(f"{SECRET} answer")]
    if view.mail.sender_type == "system":
        return [complete(f"{SECRET} in the end")]
    if "abroad" in view.mail.body:
        return [call("send_request", target=f"{SECRET}-agent@b", subject=SECRET, body=SECRET)]
    if "nonsense" in view.mail.body:
        return [call("no_such_tool", word=SECRET)]
    return [request("worker", SECRET, SECRET), wait(SECRET)]


def work(view: View) -> list[Call]:
    if view.mail.sender_type == "system":
        return [respond("supervisor", SECRET)]
    return [call("look_up", word=SECRET), call("fail", word=SECRET)]


async def look_up(arguments: dict[str, Any]) -> str:
    return str(arguments)


async def fail(arguments: dict[str, Any]) -> str:
    raise LookupError(f"there is no {arguments}")


async def test_a_busy_run_leaks_nothing(log: Log) -> None:
    activity = ActivityLog()
    swarm = build_swarm({"supervisor": supervise, "worker": work}, actions={"look_up": look_up, "fail": fail})
    async with HTTPServer(swarm, observers=(activity,), debug=True) as server:
        server.rig.runtime.observers = (activity,)
        server.rig.runtime.peers = Swallow()
        for n, body in enumerate((SECRET, f"{SECRET} abroad", f"{SECRET} nonsense")):
            answer = {"Prefer": "wait=5", "Idempotency-Key": f"{SECRET}-{n}"}
            await server.post(body=body, subject=SECRET, task_id=f"task-{n}", headers=answer)
        await server.stream(body=SECRET, task_id="stream")
        for path in ("/task", "/task/stream", f"/{SECRET}"):
            await server.client.get(path, params={"task_id": "none", "word": SECRET})
        await server.client.post("/message", content=f"{{{SECRET}".encode())
        await server.client.post("/responses", json={"input": SECRET})
        await server.client.get("/whoami", headers={"Authorization": f"Bearer {SECRET}"})
        await server.client.post(
            "/interswarm/message",
            json={"user_token": SECRET, "body": SECRET, "targets": ["a@b"]},
            headers={"Prefer": "respond-async"},
        )
        await server.client.post(
            "/swarms",
            json={"name": "b", "base_url": "http://127.0.0.1:9", "auth_token": SECRET},
            headers=server.headers("admin"),
        )
        await server.rig.workers.idle()
        keys = list(server.keys.values())
    assert len(log.lines) > 25
    assert {line["level"] for line in log.lines} >= {"INFO"}
    assert SECRET not in log.text
    for key in keys:
        assert key not in log.text


async def test_the_lines_of_a_task(log: Log) -> None:
    activity = ActivityLog()
    swarm = build_swarm({"supervisor": lambda _view: [complete("done")]})
    async with HTTPServer(swarm, observers=(activity,)) as server:
        server.rig.runtime.observers = (activity,)
        await server.ask(task_id="t")
        await server.rig.workers.idle()
    said = [line["message"] for line in log.lines if line["logger"] == "mail.activity"]
    assert sorted(said) == ["request", "task begun", "task completed", "turn committed"]
    (turn,) = [line for line in log.lines if line["message"] == "turn committed"]
    assert (turn["task_id"], turn["agent"], turn["level"]) == ("t", "supervisor", "INFO")
    assert len(turn["message_id"]) == 36
    assert turn["seconds"] > 0
    (asked,) = [line for line in log.lines if line["message"] == "request"]
    assert (asked["method"], asked["route"], asked["status"]) == ("POST", "/message", 200)


async def test_agents_lines_name_what_they_are_about(log: Log) -> None:
    def say(view: View) -> list[Call]:
        logging.getLogger("mail.test").info("hello")
        return [complete("done")]

    async with HTTPServer(build_swarm({"supervisor": say})) as server:
        await server.ask(task_id="t")
    (line,) = [line for line in log.lines if line["logger"] == "mail.test"]
    assert (line["task_id"], line["agent"]) == ("t", "supervisor")
    assert len(line["message_id"]) == 36


def test_one_line_for_whatever_is_logged(log: Log) -> None:
    leave_task()
    logger = logging.getLogger("mail.test")
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        logger.exception("it\nbroke", extra={"value": object(), "count": 3})
    (line,) = log.lines
    assert line["message"] == "it\nbroke"
    assert line["count"] == 3
    assert line["exception"].endswith("ValueError: first\nsecond")
    assert "task_id" not in line
    assert line["timestamp"].endswith("+00:00")
