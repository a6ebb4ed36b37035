"""The server's own endpoints."""

from datetime import datetime

import pytest
from support.processes.http_server import HTTPServer


async def test_root(server: HTTPServer) -> None:
    root = (await server.client.get("/", headers={"Authorization": ""})).json()
    assert root.pop("uptime") >= 0
    assert root == {
        "name": "mail",
        "status": "running",
        "protocol_version": "1.3",
        "swarm": {
            "name": "example",
            "version": "1.0.0",
            "description": "It echoes.",
            "entrypoint": "supervisor",
            "keywords": ["echo"],
            "public": True,
        },
    }


async def test_live(server: HTTPServer) -> None:
    answer = await server.client.get("/live", headers={"Authorization": ""})
    assert (answer.status_code, answer.json()) == (200, {"status": "live"})


async def test_health(server: HTTPServer) -> None:
    health = (await server.client.get("/health", headers={"Authorization": ""})).json()
    assert datetime.fromisoformat(health.pop("timestamp")).tzinfo is not None
    assert health == {"status": "healthy", "swarm_name": "example"}


async def test_an_admin_sets_the_health(server: HTTPServer) -> None:
    admin = server.headers("admin")
    response = await server.client.post("/health", json={"status": "degraded"}, headers=admin)
    assert response.status_code == 200
    assert response.json().keys() == {"status", "swarm_name", "timestamp"}
    assert (await server.client.get("/health")).json()["status"] == "degraded"


@pytest.mark.parametrize(
    "body", [{}, {"status": None}, {"status": ""}, {"status": "\n"}, {"status": "x" * 257}, []]
)
async def test_a_health_that_is_none(server: HTTPServer, body: object) -> None:
    response = await server.client.post("/health", json=body, headers=server.headers("admin"))
    assert response.status_code == 400
    assert (await server.client.get("/health")).json()["status"] == "healthy"


@pytest.mark.parametrize(("role", "name"), [("user", "ann"), ("admin", "root")])
async def test_whoami(server: HTTPServer, role: str, name: str) -> None:
    response = await server.client.get("/whoami", headers=server.headers(role))
    assert response.json() == {"id": name, "role": role}


async def test_status(server: HTTPServer) -> None:
    swarm = {"name": "example", "status": "ready"}
    status = (await server.client.get("/status")).json()
    assert status == {
        "swarm": swarm,
        "active_users": 0,
        "user_mail_ready": False,
        "user_task_running": False,
        "tasks": [],
    }
    await server.ask()
    status = (await server.client.get("/status")).json()
    assert status == {
        "swarm": swarm,
        "active_users": 0,
        "user_mail_ready": True,
        "user_task_running": False,
        "tasks": [],
    }
