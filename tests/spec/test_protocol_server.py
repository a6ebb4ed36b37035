"""SPEC, sections 9 and 10: what no single route shows."""

import json
import logging
from dataclasses import fields
from typing import Any

import httpx2
import pytest
from support.processes.http_server import HTTPServer

from mail.auth.service import AuthService
from mail.http.service import Service
from mail.testing.agents import View, build_swarm, call, complete


def test_a_ping_is_due_after_fifteen_seconds_of_silence() -> None:
    assert {field.name: field.default for field in fields(Service)}["heartbeat"] == 15.0


def act_then_fail(view: View) -> Any:
    if view.mail.body == "fail":
        raise RuntimeError("no model")
    return [call("act")] if view.mail.sender_type == "user" else [complete()]


async def act(_args: dict[str, Any]) -> str:
    return "done"


async def test_keys_appear_in_no_answer_event_or_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong = "mail_user_this-is-no-key-of-anybody"
    said: list[httpx2.Response] = []
    async with HTTPServer(build_swarm({"supervisor": act_then_fail}, actions={"act": act})) as server:
        for key in (*server.keys.values(), wrong):
            headers = {"Authorization": f"Bearer {key}"}
            requests: list[tuple[str, str, Any]] = [
                ("POST", "/message", {"body": body, "task_id": body, "show_events": True, "stream": stream})
                for body in ("work", "fail")
                for stream in (False, True)
            ]
            paths = ("/", "/health", "/whoami", "/status", "/tasks", "/task?task_id=work", "/nowhere")
            requests += [("GET", path, None) for path in paths]
            said += [
                await server.client.request(method, path, json=body, headers=headers)
                for method, path, body in requests
            ]
        monkeypatch.setattr(type(server.rig.store), "list_tasks", None)
        said.append(await server.client.get("/tasks"))
        secrets = [*server.keys.values(), wrong]
    assert {response.status_code for response in said} == {200, 401, 403, 404, 500}
    everything = [caplog.text, *(f"{response.headers} {response.text}" for response in said)]
    assert not [secret for secret in secrets for text in everything if secret in text]


async def test_keys_and_tokens_of_an_external_service_appear_in_no_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.headers["authorization"] == "Bearer the-key":
            return httpx2.Response(200, content=json.dumps({"token": "the-token"}))
        return httpx2.Response(200, content=json.dumps({"role": "user", "id": "ann", "api_key": "the-key"}))

    async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
        caller = await AuthService(client, "http://auth/login", "http://auth/info").authenticate("the-key")
    assert caller.id == "ann"
    assert "the-key" not in caplog.text + repr(caller)
    assert "the-token" not in caplog.text + repr(caller)
