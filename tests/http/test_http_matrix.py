"""Who may call what: each operation of the OpenAPI document, by each kind of caller."""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.processes.http_server import TIMEOUT
from test_http_interswarm import wrapper

from mail.auth.keys import Caller, digest
from mail.auth.tokens import issue, issue_token, number_of
from mail.bootstrap import local
from mail.config import ServerConfig
from mail.core.task.approvals import Approval
from mail.core.task.interswarm import PeerRecord
from mail.core.task.swarm import ActionCore
from mail.server.process import serving
from mail.testing.agents import View, build_swarm, call, complete

CALLERS = ("nobody", "owner", "other", "reviewer", "agent", "admin")
"""The columns. With an expired or a revoked key one is nobody."""

ALSO = (*CALLERS, "daemon")
"""Those of MAIL 2.0, where a wrong role is a 401, too."""

HOST = "localhost"

SCHEDULE = {"cron": "0 8 * * *", "body": "hi"}
FOR_SUPERVISOR = {"address_type": "agent", "address": "supervisor@example"}
MAIL = wrapper(payload={**wrapper()["payload"], "recipient": FOR_SUPERVISOR})
MATRIX = {
    "GET /": "200 200 200 200 200 200",
    "GET /live": "200 200 200 200 200 200",
    "GET /health": "200 200 200 200 200 200",
    "POST /health": "401 403 403 403 403 200",
    "GET /whoami": "401 200 200 200 403 200",
    "GET /status": "401 200 200 200 403 200",
    "GET /metrics": "401 403 403 403 403 200",
    "GET /audit": "401 403 403 403 403 200",
    "POST /message": "401 200 200 200 403 200",
    "POST /callbacks/none": "404 404 404 404 404 404",
    "GET /tasks": "401 200 200 200 403 200",
    "GET /tasks?fields=summary&caller=user:ann": "401 200 403 403 403 200",
    "GET /tasks?fields=summary&all=true": "401 403 403 403 403 200",
    "GET /task?task_id={task}": "401 200 404 404 403 404",
    "GET /task?task_id={task}&caller=user:ann": "401 200 403 403 403 400",
    "GET /task?task_id={task}&caller=user:ann&reason=why": "401 200 403 403 403 200",
    "GET /task/stream?task_id={task}": "401 200 404 404 403 404",
    "GET /task/stream?task_id={task}&caller=user:ann&reason=why": "401 200 403 403 403 200",
    "GET /task/turn?task_id={task}&seq=2": "401 200 404 404 403 404",
    "GET /task/turn?task_id={task}&seq=2&caller=user:ann&reason=why": "401 200 403 403 403 200",
    "GET /task/export?task_id={task}": "401 200 404 404 403 404",
    "GET /task/turns?task_id={task}": "401 200 404 404 403 404",
    "GET /task/turns?task_id={task}&caller=user:ann": "401 200 403 403 403 200",
    "POST /task/shares": "401 201 404 404 403 404",
    "GET /task/shares?task_id={task}": "401 200 404 404 403 404",
    "GET /task/shares?task_id={task}&caller=user:ann": "401 200 403 403 403 200",
    "DELETE /task/shares/{share}": "401 200 404 404 403 404",
    "DELETE /task/shares/{share}&caller=user:ann": "401 200 403 403 403 200",
    "GET /task/shared": "404 404 404 404 404 404",
    "POST /task/fork": "401 201 404 404 403 404",
    "GET /task/comparison?task_id={fork}": "401 200 404 404 403 404",
    "POST /task/cancel": "401 200 404 404 403 404",
    "POST /task/cancel?": "401 200 403 403 403 200",
    "DELETE /task?task_id={task}": "401 200 404 404 403 404",
    "DELETE /task?task_id={task}&caller=user:ann": "401 200 403 403 403 200",
    "DELETE /task/timers/none?task_id={task}": "401 404 404 404 403 404",
    "DELETE /task/calls/none?task_id={task}": "401 404 404 404 403 404",
    "POST /files?name=a.txt": "401 201 201 201 403 201",
    "GET /files/{file}": "401 200 404 404 403 404",
    "GET /files/shared/none": "404 404 404 404 404 404",
    "GET /approvals": "401 200 200 200 403 200",
    "GET /approvals/{approval}": "401 200 404 200 403 404",
    "POST /approvals/{approval}": "401 403 404 200 403 404",
    "GET /threads": "401 200 200 200 403 200",
    "GET /threads/agent/none": "401 404 404 404 403 404",
    "GET /usage": "401 200 200 200 403 200",
    "GET /usage?caller=user:ann": "401 200 403 403 403 200",
    "GET /dead-letters": "401 200 200 200 403 200",
    "GET /dead-letters?caller=user:ann": "401 200 403 403 403 200",
    "POST /dead-letters/redrive": "401 200 200 200 403 200",
    "POST /dead-letters/discard": "401 200 200 200 403 200",
    "POST /dead-letters/discard?": "401 200 403 403 403 200",
    "GET /webhooks": "401 200 200 200 403 200",
    "GET /webhooks?all=true": "401 403 403 403 403 200",
    "POST /webhooks": "401 201 201 201 403 201",
    "DELETE /webhooks/{hook}": "401 200 404 404 403 404",
    "DELETE /webhooks/{hook}?caller=user:ann": "401 200 403 403 403 200",
    "GET /schedules": "401 200 200 200 403 200",
    "POST /schedules": "401 201 201 201 403 201",
    "POST /schedules?": "401 201 403 403 403 201",
    "GET /schedules/{schedule}": "401 200 404 404 403 200",
    "POST /schedules/{schedule}": "401 200 404 404 403 200",
    "POST /schedules/{schedule}/run": "401 202 404 404 403 202",
    "DELETE /schedules/{schedule}": "401 200 404 404 403 200",
    "GET /swarm": "401 200 200 200 403 200",
    "GET /swarms": "200 200 200 200 200 200",
    "GET /swarms?all=true": "401 403 403 403 403 200",
    "POST /swarms": "401 403 403 403 403 200",
    "DELETE /swarms/beta": "401 403 403 403 403 200",
    "GET /swarms/dump": "401 403 403 403 403 200",
    "GET /swarms/versions": "401 403 403 403 403 200",
    "POST /swarms/check": "401 403 403 403 403 200",
    "POST /swarms/load": "401 403 403 403 403 400",
    "GET /drafts": "401 403 403 403 403 200",
    "GET /drafts/none": "401 403 403 403 403 404",
    "POST /drafts/none": "401 403 403 403 403 400",
    "DELETE /drafts/none": "401 403 403 403 403 404",
    "POST /drafts/none/publish": "401 403 403 403 403 404",
    "DELETE /drafts/none/publish": "401 403 403 403 403 404",
    "POST /interswarm/forward": "401 403 403 403 200 403",
    "POST /interswarm/back": "401 403 403 403 400 403",
    "POST /interswarm/message": "401 404 404 404 403 404",
    "GET /sign-in": "200 200 200 200 200 200",
    "POST /sign-in": "401 401 401 401 401 401",
    "POST /sign-in-links": "401 201 201 201 403 201",
    "POST /sign-out": "401 200 200 200 403 200",
    "GET /tokens": "401 403 403 403 403 200",
    "POST /tokens": "401 403 403 403 403 201",
    "DELETE /tokens/{number}": "401 403 403 403 403 200",
    "GET /holds": "401 403 403 403 403 200",
    "POST /holds": "401 403 403 403 403 201",
    "DELETE /holds?caller=user:gone": "401 403 403 403 403 200",
    "GET /callers/user:gone": "401 403 403 403 403 200",
    "DELETE /callers/user:gone": "401 403 403 403 403 202",
}
"""The statuses for CALLERS. Names in braces are those of things that the owner has."""

MAIL_2 = {
    "GET /v2/": "200 200 200 200 200 200 200",
    "GET /v2/health": "200 200 200 200 200 200 200",
    "POST /v2/auth/token": "422 422 422 422 422 422 422",
    "POST /v2/auth/refresh": "401 401 401 401 401 401 401",
    "GET /v2/auth/whoami": "401 200 200 200 401 200 200",
    "POST /v2/auth/password/reset": "401 401 401 401 401 401 401",
    "GET /v2/inbox": "401 200 200 200 401 200 200",
    "GET /v2/inbox/stream": "401 200 200 200 401 200 200",
    "GET /v2/inbox/{mail}": "401 200 404 404 401 404 404",
    "DELETE /v2/inbox/{mail}": "401 200 404 404 401 404 404",
    "GET /v2/export": "401 200 200 200 401 200 200",
    "GET /v2/outbox": "401 200 200 200 401 200 200",
    "GET /v2/outbox/{mail}": "401 200 404 404 401 404 404",
    "DELETE /v2/outbox/{mail}": "401 200 404 404 401 404 404",
    "GET /v2/drafts": "401 200 200 200 401 200 200",
    "POST /v2/drafts": "401 200 200 200 401 200 200",
    "GET /v2/drafts/{draft}": "401 200 404 404 401 404 404",
    "PATCH /v2/drafts/{draft}": "401 200 404 404 401 404 404",
    "DELETE /v2/drafts/{draft}": "401 200 404 404 401 404 404",
    "POST /v2/drafts/{draft}/send": "401 200 404 404 401 404 404",
    "GET /v2/trash": "401 200 200 200 401 200 200",
    "POST /v2/trash/clear": "401 200 200 200 401 200 200",
    "GET /v2/trash/{trash}": "401 200 404 404 401 404 404",
    "DELETE /v2/trash/{trash}": "401 200 404 404 401 404 404",
    "POST /v2/trash/{trash}/restore": "401 200 404 404 401 404 404",
    "GET /v2/admin/users": "401 401 401 401 401 200 401",
    "POST /v2/admin/users": "401 401 401 401 401 200 401",
    "GET /v2/admin/users/ann": "401 401 401 401 401 200 401",
    "DELETE /v2/admin/users/{person}": "401 401 401 401 401 200 401",
    "GET /v2/admin/daemons": "401 401 401 401 401 200 401",
    "POST /v2/admin/daemons": "401 401 401 401 401 200 401",
    "GET /v2/admin/daemons/postman": "401 401 401 401 401 200 401",
    "DELETE /v2/admin/daemons/{worker}": "401 401 401 401 401 200 401",
    "GET /v2/admin/agents": "401 401 401 401 401 200 401",
    "POST /v2/admin/agents": "401 401 401 401 401 200 401",
    "GET /v2/admin/agents/{clerk}": "401 401 401 401 401 200 401",
    "DELETE /v2/admin/agents/{clerk}": "401 401 401 401 401 200 401",
    "POST /v2/daemon/message-buffer/clear": "401 401 401 401 401 401 200",
    "POST /v2/daemon/deliver/local": "401 401 401 401 401 401 200",
    "POST /v2/daemon/deliver/remote": "401 401 401 401 403 401 200",
    "GET /v2/swarms": "401 200 200 200 401 200 200",
    "GET /v2/swarms/example": "401 200 200 200 401 200 200",
    "GET /v2/swarms/example/health": "401 200 200 200 401 200 200",
    "GET /v2/lists": "401 200 200 200 401 200 200",
    "GET /v2/lists/{list}": "401 200 200 200 401 200 200",
    "PATCH /v2/lists/{list}": "401 200 403 403 401 200 403",
    "DELETE /v2/lists/{list}": "401 200 403 403 401 200 403",
    "POST /v2/lists/{list}/subscribe": "401 200 200 200 401 200 200",
    "POST /v2/lists/{list}/unsubscribe": "401 200 200 200 401 200 200",
    "POST /v2/lists/{list}/members": "401 200 200 403 401 200 403",
    "DELETE /v2/lists/{list}/members/user:bob@localhost": "401 200 200 403 401 200 403",
    "POST /v2/admin/swarms": "401 401 401 401 401 200 401",
    "DELETE /v2/admin/swarms/{swarm}": "401 401 401 401 401 200 401",
    "GET /v2/admin/lists": "401 401 401 401 401 200 401",
    "POST /v2/admin/lists": "401 401 401 401 401 200 401",
    "GET /v2/admin/lists/{list}": "401 401 401 401 401 200 401",
    "PATCH /v2/admin/lists/{list}": "401 401 401 401 401 200 401",
    "DELETE /v2/admin/lists/{list}": "401 401 401 401 401 200 401",
    "POST /v2/admin/lists/{list}/members": "401 401 401 401 401 200 401",
    "DELETE /v2/admin/lists/{list}/members/user:bob@localhost": "401 401 401 401 401 200 401",
    "GET /v2/admin/webhooks": "401 401 401 401 401 200 401",
    "POST /v2/admin/webhooks": "401 401 401 401 401 200 401",
    "GET /v2/admin/webhooks/{listener}": "401 401 401 401 401 200 401",
    "PATCH /v2/admin/webhooks/{listener}": "401 401 401 401 401 200 401",
    "DELETE /v2/admin/webhooks/{listener}": "401 401 401 401 401 200 401",
    "POST /v2/auth/logout": "200 200 200 200 200 200 200",
}
"""The statuses for ALSO: its mail is that of the owner, who also owns its list."""

DOCUMENTS = {"/openapi.json": (CALLERS, MATRIX), "/v2/openapi.json": (ALSO, MAIL_2)}
PASSWORD = "correct horse battery"
NEW_MEMBER = {"member_address": f"user:bob@{HOST}"}
NEW_LIST = {"swarm_name": "example", "owner": f"user:ann@{HOST}", "members": [f"user:bob@{HOST}"]}
NEW_WEBHOOK = {"url": "http://127.0.0.1:9/hook", "events": ["mail.delivered"], "secret": "s" * 32}

BODIES: dict[str, Any] = {
    "POST /v2/auth/refresh": {"refresh_token": "none"},
    "POST /v2/auth/logout": {},
    "POST /v2/auth/password/reset": {"current_password": "wrong", "new_password": PASSWORD},
    "POST /v2/drafts": {"subject": "s", "body": "b"},
    "PATCH /v2/drafts/{draft}": {"subject": "t"},
    "POST /v2/drafts/{draft}/send": {"recipients": [f"user:ann@{HOST}"]},
    "POST /v2/admin/users": {"user_id": "{new}", "user_password": PASSWORD},
    "POST /v2/admin/daemons": {"worker_name": "{new}", "daemon_password": PASSWORD},
    "POST /v2/admin/agents": {"agent_name": "{new}", "swarm_name": "far", "agent_password": PASSWORD},
    "POST /v2/daemon/message-buffer/clear": {},
    "POST /v2/daemon/deliver/local": {"message_ids": []},
    "POST /v2/daemon/deliver/remote": {"messages": []},
    "PATCH /v2/lists/{list}": {"policy": None},
    "POST /v2/lists/{list}/members": NEW_MEMBER,
    "POST /v2/admin/swarms": {"name": "{new}", "description": "d", "keywords": []},
    "POST /v2/admin/lists": {"name": "{new}", **NEW_LIST},
    "PATCH /v2/admin/lists/{list}": {"policy": None},
    "POST /v2/admin/lists/{list}/members": NEW_MEMBER,
    "POST /v2/admin/webhooks": NEW_WEBHOOK,
    "PATCH /v2/admin/webhooks/{listener}": {"url": "http://127.0.0.1:9/hook", "secret": "t" * 32},
    "POST /health": {"status": "busy"},
    "POST /message": {"body": "hi"},
    "POST /callbacks/none": {"result": "done"},
    "POST /task/shares": {"task_id": "{task}"},
    "POST /task/fork": {"task_id": "{task}"},
    "POST /task/cancel": {"task_id": "{paused}"},
    "POST /task/cancel?": {"task_id": "{paused}", "caller": "user:ann"},
    "POST /files?name=a.txt": b"text",
    "POST /approvals/{approval}": {"decision": "approve"},
    "POST /dead-letters/redrive": {"all": True},
    "POST /dead-letters/discard": {"all": True},
    "POST /dead-letters/discard?": {"all": True, "caller": "user:ann"},
    "POST /webhooks": {"url": "http://127.0.0.1:9/hook"},
    "POST /schedules": {"name": "{new}", **SCHEDULE},
    "POST /schedules?": {"name": "{new}", "caller": "user:ann", **SCHEDULE},
    "POST /schedules/{schedule}": {"body": "ho"},
    "POST /schedules/{schedule}/run": {},
    "POST /swarms": {"name": "beta", "base_url": "http://127.0.0.1:9"},
    "POST /swarms/check": {"json": "{}"},
    "POST /swarms/load": {"json": "{}"},
    "POST /drafts/none": {"agents": {"nobody": {"system": "x"}}},
    "POST /interswarm/forward": {"message": MAIL},
    "POST /interswarm/back": {"message": MAIL},
    "POST /interswarm/message": {"user_token": "", "body": "hi", "targets": ["ann@nowhere"]},
    "POST /sign-in": {"code": "none"},
    "POST /sign-in-links": {},
    "POST /sign-out": {},
    "POST /tokens": {"role": "user", "id": "eve"},
    "POST /holds": {"caller": "user:gone", "reason": "why"},
}


def work(view: View) -> list[Any]:
    pays = "pay" in view.mail.body and not view.results
    return [call("pay", to="bob")] if pays else [complete("done")]


class Stage:
    """A server with a key for each caller, and what they ask for, which the owner has."""

    def __init__(self, url: str, keys: dict[str, str], revocable: Callable[[], Awaitable[str]]) -> None:
        self.client = httpx2.AsyncClient(base_url=url, timeout=TIMEOUT)
        self.keys = keys
        self._revocable = revocable
        self.made: dict[str, str] = {}
        self._number = 0

    async def ask(self, caller: str, method: str, path: str, body: Any = None) -> httpx2.Response:
        key = self.keys[caller]
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.client.cookies.clear()  # a login of MAIL 2.0 sets one
        sent: dict[str, Any] = {"content": body} if isinstance(body, bytes) else {"json": body}
        if path == "/v2/auth/token":
            sent = {"data": body}
        async with self.client.stream(method, path, headers=headers, **sent) as answer:
            if path != "/v2/inbox/stream":  # which doesn't end
                await answer.aread()
        return answer

    async def fill(self, text: str) -> str:
        """Replace the names in braces by those of new things of the owner."""
        for name in set(re.findall(r"\{(\w+)\}", text)):
            if name not in self.made:
                self.made[name] = await self._make(name)
            text = text.replace(f"{{{name}}}", self.made[name])
        return text

    async def _make(self, name: str) -> str:
        self._number += 1
        new = f"{name}-{self._number}"

        async def own(method: str, path: str, body: Any = None, caller: str = "owner") -> dict[str, Any]:
            answer = await self.ask(caller, method, path, body)
            assert answer.status_code in (200, 201), answer.text
            made: dict[str, Any] = answer.json()
            return made

        async def manage(path: str, **body: Any) -> dict[str, Any]:
            return await own("POST", f"/v2/admin/{path}", body, "admin")

        match name:
            case "task":
                await own("POST", "/message", {"body": "hi", "task_id": new})
            case "paused" | "approval":
                await own("POST", "/message", {"body": "pay", "task_id": new})
                if name == "approval":
                    waiting = (await self.ask("reviewer", "GET", "/approvals")).json()["approvals"]
                    return str(waiting[-1]["id"])
            case "fork":
                await own("POST", "/message", {"body": "hi", "task_id": new})
                return str((await own("POST", "/task/fork", {"task_id": new, "at": "message"}))["task_id"])
            case "share":
                await own("POST", "/message", {"body": "hi", "task_id": new})
                made = await own("POST", "/task/shares", {"task_id": new})
                return f"{made['number']}?task_id={new}"
            case "file":
                return str((await own("POST", "/files", new.encode()))["id"])
            case "hook":
                made = await own("POST", "/webhooks", {"url": f"http://127.0.0.1:9/{new}"})
                return str(made["id"])
            case "schedule":
                await own("POST", "/schedules", {"name": new, **SCHEDULE})
            case "number":
                return await self._revocable()
            case "draft" | "mail" | "trash":
                draft = await own("POST", "/v2/drafts", {"subject": new, "body": "b"})
                if name == "draft":
                    return str(draft["entry"]["draft"]["draft_id"])
                path = f"/v2/drafts/{draft['entry']['draft']['draft_id']}/send"
                sent = await own("POST", path, {"recipients": [f"user:ann@{HOST}"]})
                message = str(sent["message"]["message_id"])
                if name == "trash":
                    await own("DELETE", f"/v2/inbox/{message}")
                return message
            case "person":
                await manage("users", user_id=new, user_password=PASSWORD)
            case "worker":
                await manage("daemons", worker_name=new, daemon_password=PASSWORD)
            case "clerk":
                await manage("agents", agent_name=new, swarm_name="far", agent_password=PASSWORD)
                return f"{new}@far@{HOST}"
            case "list":
                await manage("lists", name=new, **NEW_LIST)
                return f"list:{new}@example@{HOST}"
            case "swarm":
                await manage("swarms", name=new, description="d", keywords=[])
            case "listener":
                return str((await manage("webhooks", **NEW_WEBHOOK))["webhook"]["webhook_id"])
        return new


@pytest.fixture
async def stage(tmp_path: Path, cheap_passwords: None) -> AsyncIterator[Stage]:
    async def pay(_arguments: dict[str, Any]) -> str:
        return "paid"

    action = ActionCore("pay", pay, needs_approval=True, reviewers=Approval(by=("user:rev",)))
    swarm = build_swarm({"supervisor": work}, actions={"pay": action})
    given = {
        "swarm": {"registry": str(tmp_path / "registry.json")},
        "auth": {"break_glass": True},
        "webhooks": {"allow_private_addresses": True},
        "storage": {"database": ":memory:"},
        "telemetry": {"metrics": "admin"},
    }
    system = local(ServerConfig.model_validate(given), swarm=swarm, environ={})
    documents = system.documents

    async def revocable() -> str:
        return number_of((await issue(documents, Caller("user", "eve"))).stored)

    callers = {
        "owner": Caller("user", "ann"),
        "other": Caller("user", "bob"),
        "reviewer": Caller("user", "rev"),
        "agent": Caller("agent", "other"),
        "admin": Caller("admin", "root"),
    }
    keys = {name: await issue_token(documents, caller) for name, caller in callers.items()}
    keys["nobody"] = ""
    keys["expired"] = (await issue(documents, callers["admin"], expires=1.0)).text
    keys["revoked"] = await issue_token(documents, callers["admin"])
    await documents.remove_token(digest(keys["revoked"]))
    await documents.set_peer(PeerRecord(name="other", base_url="http://127.0.0.1:9", auth_token="secret"))
    async with serving(system) as url:
        stage = Stage(url, keys, revocable)
        daemon = {"worker_name": "postman", "daemon_password": PASSWORD}
        assert (await stage.ask("admin", "POST", "/v2/admin/daemons", daemon)).is_success
        login = {"username": f"daemon:postman@{HOST}", "password": PASSWORD}
        keys["daemon"] = (await stage.ask("nobody", "POST", "/v2/auth/token", login)).json()["access_token"]
        yield stage
        await stage.client.aclose()


@pytest.mark.parametrize(("callers", "matrix"), DOCUMENTS.values(), ids=("1", "2"))
async def test_each_operation_is_for_whom_it_should_be(
    stage: Stage, callers: Sequence[str], matrix: Mapping[str, str]
) -> None:
    found: dict[str, str] = {}
    for request in matrix:
        body, statuses = BODIES.get(request), []
        for caller in callers:
            method, _, path = (await stage.fill(request)).partition(" ")
            sent = body if isinstance(body, bytes) else json.loads(await stage.fill(json.dumps(body)))
            answer = await stage.ask(caller, method, path, sent)
            statuses.append(str(answer.status_code))
            if answer.is_success and method != "GET":
                stage.made.clear()  # it may be gone
            if caller == "nobody":
                for key in ("expired", "revoked"):
                    assert (await stage.ask(key, method, path, sent)).status_code == answer.status_code, path
        found[request] = " ".join(statuses)
    assert found == matrix


@pytest.mark.parametrize("path", DOCUMENTS)
async def test_no_operation_is_forgotten(stage: Stage, path: str) -> None:
    """A new operation needs a row: its request, and for whom it is."""
    document, (_, matrix) = (await stage.ask("nobody", "GET", path)).json(), DOCUMENTS[path]
    operations = {
        f"{method.upper()} {path}": bool(operation.get("security"))
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if isinstance(operation, dict) and "operationId" in operation
    }
    found = {request: operation_of(request, operations) for request in matrix}
    assert set(operations) - set(found.values()) == set(), "operations without a row"
    for request, name in found.items():
        if "?" not in request and not request.startswith(("POST /sign-in", "POST /v2/auth/")):
            assert matrix[request].startswith("401") is operations[name], request


def operation_of(request: str, operations: Mapping[str, bool]) -> str:
    """The operation that a request is for: its own, or the one with the longest path that fits."""
    path = request.partition("?")[0]
    fitting = [
        name for name in operations if re.fullmatch(re.sub(r"\\{[^}]*\\}", ".+", re.escape(name)), path)
    ]
    return max(fitting, key=lambda name: (name == path, len(name)))
