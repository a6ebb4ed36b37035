"""`/interswarm/*` over HTTP: who may call it, what it takes, what it answers."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

import httpx2
import pytest
from support.processes.http_server import HTTPServer, eventually
from support.services.federation import Swallow

from mail.core.decisions import interswarm as outbound
from mail.core.task.task import TaskKey
from mail.errors import PeerUnavailable
from mail.testing.agents import View, build_agent, build_swarm, complete, respond, wait


def wrapper(**changes: Any) -> dict[str, Any]:
    """A new task of swarm `other`."""
    return {
        "message_id": "m-1",
        "source_swarm": "other",
        "target_swarm": "example",
        "timestamp": "2026-01-31T08:00:00Z",
        "payload": {
            "task_id": "t-1",
            "request_id": "r-1",
            "sender": {"address_type": "agent", "address": "boss@other"},
            "recipient": {"address_type": "agent", "address": "worker@example"},
            "subject": "Request",
            "body": "please",
            "sender_swarm": None,
            "recipient_swarm": None,
            "routing_info": None,
        },
        "msg_type": "request",
        "auth_token": "",
        "metadata": {},
        "task_owner": "user:zoe@other",
        "task_contributors": ["user:zoe@other"],
        **changes,
    }


def worker(view: View) -> Any:
    return [respond(view.mail.sender, "done")]


def keep_asking(view: View) -> Any:
    return [complete("42")] if view.mail.sender_type != "system" else [wait()]


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    """A swarm that takes mail of others, and whose own mail to others goes nowhere."""
    clerk = build_agent(worker, targets=["supervisor"], enable_entrypoint=True)
    swarm = build_swarm({"supervisor": keep_asking, "worker": worker, "clerk": clerk})
    async with HTTPServer(swarm, heartbeat=0.02) as running:
        running.rig.runtime.peers = Swallow()
        yield running


async def send(server: HTTPServer, path: str, message: Any) -> httpx2.Response:
    return await server.client.post(path, json={"message": message}, headers=server.headers("agent"))


class TestForward:
    async def test_the_answer(self, server: HTTPServer) -> None:
        response = await send(server, "/interswarm/forward", wrapper())
        assert (response.status_code, response.json()) == (
            200,
            {
                "swarm": "example",
                "task_id": "t-1",
                "status": "success",
                "local_runner": "swarm:other@example",
            },
        )
        task = await server.rig.task(TaskKey("swarm:other@example", "t-1"))
        assert task.owner == "user:zoe@other"

    async def test_back_for_a_known_task(self, server: HTTPServer) -> None:
        contributors = ["user:zoe@other", "swarm:other@example"]
        again = wrapper(message_id="m-2", task_contributors=contributors)
        assert (await send(server, "/interswarm/back", again)).status_code == 404
        await send(server, "/interswarm/forward", wrapper())
        assert (await send(server, "/interswarm/back", again)).status_code == 200


class TestRefusals:
    @pytest.mark.parametrize(
        ("changes", "says"),
        [
            ({"auth_token": None}, "auth_token must be text"),
            ({"metadata": None}, "metadata must be an object"),
            ({"metadata": []}, "metadata"),
            ({"surprise": 1}, "surprise"),
            ({"task_owner": "user:bob@other"}, "task_owner must be among task_contributors"),
            ({"task_owner": "nobody"}, "task_owner"),
            ({"target_swarm": "elsewhere"}, "this is swarm 'example'"),
            ({"timestamp": "yesterday"}, "timestamp"),
            ({"msg_type": "response", "payload": {}}, "payload"),
        ],
    )
    async def test_what_is_wrong_is_said(
        self, server: HTTPServer, changes: dict[str, Any], says: str
    ) -> None:
        response = await send(server, "/interswarm/forward", wrapper(**changes))
        assert response.status_code == 400
        assert says in response.json()["detail"]
        assert (await server.rig.store.list_tasks("swarm:other@example")).tasks == []


class TestPeople:
    async def ask(self, server: HTTPServer, **fields: Any) -> httpx2.Response:
        body = {"user_token": "", "body": "hello", "targets": ["expert@other"], **fields}
        return await server.client.post("/interswarm/message", json=body)

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"targets": []}, "targets"),
            ({"targets": ["a@other", "b@other"]}, "a request has exactly one target"),
            ({"targets": ["expert", "a@other"], "msg_type": "broadcast"}, "is not of the form agent@swarm"),
            (
                {"targets": ["a@other", "worker@example"], "msg_type": "broadcast"},
                "POST /message writes to its",
            ),
            ({"targets": ["expert"]}, "target must be one of: supervisor, clerk; not 'expert'"),
            ({"targets": ["worker"]}, "target must be one of: supervisor, clerk; not 'worker'"),
            ({"targets": ["worker@example"], "msg_type": "broadcast"}, "supervisor, clerk; not 'worker'"),
            ({"targets": [f"{'x' * 600}@other"]}, "is not of the form agent@swarm"),
            ({"body": ""}, "body"),
            ({"msg_type": "interrupt"}, "msg_type"),
        ],
    )
    async def test_what_is_wrong_is_said(self, server: HTTPServer, fields: dict[str, Any], says: str) -> None:
        response = await self.ask(server, **fields)
        assert response.status_code == 400
        assert says in response.json()["detail"]

    @pytest.mark.parametrize("target", ["supervisor", "supervisor@example"])
    async def test_an_agent_of_this_swarm(self, server: HTTPServer, target: str) -> None:
        response = await self.ask(server, targets=[target])
        assert response.status_code == 200
        assert response.json()["response"]["message"]["body"] == "42"

    @pytest.mark.parametrize("msg_type", ["request", "broadcast"])
    async def test_an_agent_that_can_not_complete_tasks(self, server: HTTPServer, msg_type: str) -> None:
        """Its response is the answer, as for other swarms."""
        response = await self.ask(server, targets=["clerk@example"], msg_type=msg_type)
        assert response.status_code == 200
        message = response.json()["response"]["message"]
        assert message["sender"] == {"address_type": "agent", "address": "clerk"}
        assert message["body"] == "done"

    async def test_what_a_task_waits_for(self, server: HTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
        """An answer, and before that a delivery: the record and the event say until when."""
        is_down = True

        async def deliver(_: Swallow, message: object, *, back: bool, **more: object) -> str | None:
            if is_down:
                raise PeerUnavailable("503 later")
            return None

        monkeypatch.setattr(Swallow, "deliver", deliver)
        monkeypatch.setattr(outbound, "RETRY_SECONDS", (0.05,) * 400)
        asking = asyncio.create_task(self.ask(server, task_id="t-9"))
        (retried,) = await self.waiting(server, lambda each: each["attempts"] > 0)
        assert (retried["swarm"], retried["agent"], retried["asked_by"]) == ("other", "expert@other", None)
        assert retried["problem"] == "503 later"
        assert retried["next_attempt"] <= retried["until"]
        record = (await server.client.get("/task", params={"task_id": "t-9"})).json()
        (error, *_) = [each for each in record["events"] if each["event"] == "interswarm_message_error"]
        said = json.loads(error["data"])["description"]
        assert re.fullmatch(
            r"can't reach swarm other, and will try again in 0.05 s, until 20\S+: 503 later", said
        )
        is_down = False
        (awaited,) = await self.waiting(server, lambda each: not each["attempts"])
        assert (awaited["agent"], awaited["next_attempt"], awaited["problem"]) == ("expert@other", None, None)
        hour = datetime.fromisoformat(awaited["until"]) - datetime.fromisoformat(record["start_time"])
        assert timedelta(minutes=59) < hour < timedelta(minutes=61)
        asking.cancel()

    async def waiting(self, server: HTTPServer, check: Callable[[Any], bool]) -> list[dict[str, Any]]:
        """What task t-9 waits for, once it is as the check wants it."""
        found: list[dict[str, Any]] = []

        async def is_so() -> bool:
            nonlocal found
            response = await server.client.get("/task", params={"task_id": "t-9", "fields": "summary"})
            found = response.json().get("waiting_for", [])
            return bool(found) and check(found[0])

        await eventually(is_so)
        return found

    async def test_the_answer_of_another_swarm(self, server: HTTPServer) -> None:
        asking = asyncio.create_task(self.ask(server, task_id="t-9", routing_info={"via": "test"}))
        key = TaskKey("user:ann@example", "t-9")

        async def is_sent() -> bool:
            task = await server.rig.store.load(key)
            return task is not None and not task.pending

        await eventually(is_sent)
        task = await server.rig.task(key)
        payload = {
            **wrapper()["payload"],
            "task_id": "t-9",
            "request_id": task.requests[0].request_id,
            "sender": {"address_type": "agent", "address": "expert@other"},
            "recipient": {"address_type": "user", "address": "ann@example"},
            "body": "the answer",
        }
        answer = wrapper(
            payload=payload,
            msg_type="response",
            task_owner="user:ann@example",
            task_contributors=["user:ann@example", "swarm:example@other"],
        )
        assert (await send(server, "/interswarm/back", answer)).status_code == 200
        response = await asking
        assert response.status_code == 200
        assert response.json()["response"]["message"]["body"] == "the answer"
        assert [event["event"] for event in response.json()["events"]] == [
            "new_message",
            "interswarm_message_sent",
            "interswarm_message_received",
            "new_message",  # word of the end, to the other swarm
            "interswarm_message_sent",
            "new_message",
            "task_complete",
        ]

    async def test_pings_are_left_out_where_nobody_wants_them(self, server: HTTPServer) -> None:
        body = {"user_token": "", "body": "hello", "targets": ["expert@other"], "stream": True}
        for ignored in (False, True):
            kinds: set[str] = set()
            with suppress(TimeoutError):
                async with (
                    asyncio.timeout(0.3 if ignored else 10),
                    server.frames(
                        "POST", "/interswarm/message", json={**body, "ignore_stream_pings": ignored}
                    ) as frames,
                ):
                    async for frame in frames:
                        kinds.add(frame.event)
                        if {"ping", "interswarm_message_sent"} <= kinds:
                            break
            assert ("ping" in kinds) is not ignored
            assert ignored or "interswarm_message_sent" in kinds
