"""`GET /swarms/versions`, and what `mail check --against` makes of it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from support.processes.http_server import HTTPServer

from mail.cli.app import app
from mail.cli.check import losses
from mail.client import MAILClient
from mail.core.task.callbacks import LATER, Later
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.testing.agents import Call, View, build_agent, build_swarm, call, complete, request, wait


async def render(_arguments: dict[str, Any]) -> Later:
    return LATER


async def pay(_arguments: dict[str, Any]) -> str:
    return "paid"


def lead(view: View) -> Sequence[Call]:
    match view.mail.body:
        case "film":
            return [request("director"), wait("the director")]
        case "pay":
            return [call("pay")]
    return [complete()]


ACTIONS = {
    "render": ActionCore("render", render, finish_within=3600.0),
    "pay": ActionCore("pay", pay, needs_approval=True),
}
SWARM = build_swarm({"lead": lead, "director": lambda _: [call("render")]}, actions=ACTIONS)
WITHOUT_DIRECTOR = build_swarm({"lead": lead}, actions=ACTIONS)
WITHOUT_PAY = build_swarm(
    {
        "lead": build_agent(lead, targets=["director"], actions=["render"], supervises=True),
        "director": build_agent(lambda _: [call("render")], targets=["lead"], actions=["render"]),
    },
    actions=ACTIONS,
)


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    async with HTTPServer(SWARM) as server:
        yield server


async def begin(server: HTTPServer) -> None:
    """Begin two tasks whose calls wait, one that is paused, and one that is completed."""
    for task_id in ("film-1", "film-2"):
        await server.post(body="film", task_id=task_id, headers={"Prefer": "respond-async"})
    for body in ("pay", "hello"):
        await server.post(body=body, task_id=body)
    for task_id in ("film-1", "film-2"):
        await server.until(lambda task: "calls" in task, task_id)


async def get(server: HTTPServer, **query: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await server.get("/swarms/versions", "admin", **query)
    return answer


async def test_the_open_tasks_of_each_version_and_what_they_need(server: HTTPServer) -> None:
    nothing = await get(server)
    assert [version["tasks"] for version in nothing["versions"]] == [
        {"running": 0, "waiting": 0, "paused": 0}
    ]
    await begin(server)
    before = SWARM.digest
    server.rig.runtime.swarm = newer = replace(SWARM, version="2.0")
    await server.post(body="pay", task_id="another")
    answer = await get(server)
    assert (answer["present"], answer["cursor"]) == (newer.digest, None)
    by_digest = {version["digest"]: version for version in answer["versions"]}
    assert by_digest.keys() == {before, newer.digest}
    assert by_digest[newer.digest]["version"] == "2.0"
    assert by_digest[newer.digest]["tasks"] == {"running": 0, "waiting": 0, "paused": 1}
    assert by_digest[before]["tasks"] == {"running": 0, "waiting": 2, "paused": 1}
    needs = {(need["agent"], need["action"]): need for need in by_digest[before]["needs"]}
    assert {name: need["tasks"] for name, need in needs.items()} == {
        ("director", ""): 2,
        ("director", "render"): 2,
        ("lead", ""): 3,
        ("lead", "pay"): 1,
    }
    assert needs["lead", "pay"]["examples"] == [{"task_id": "pay", "caller": "user:ann@example"}]


async def test_pages_are_added_up(server: HTTPServer) -> None:
    await begin(server)
    whole = await get(server)
    page = await get(server, limit=1)
    assert page["cursor"].startswith("running ")
    assert sum(page["versions"][0]["tasks"].values()) == 1
    refused = await server.client.get(
        "/swarms/versions", params={"cursor": "ended x"}, headers=server.headers("admin")
    )
    assert refused.status_code == 400
    pages = [page]
    while pages[-1]["cursor"]:
        pages.append(await get(server, limit=1, cursor=pages[-1]["cursor"]))
    assert len(pages) >= 3
    async with MAILClient(server.uvicorn.url, server.keys["admin"]) as client:
        sums = await client.get_swarm_versions()
    assert sums["versions"][0]["tasks"] == whole["versions"][0]["tasks"]
    total = sum(need["tasks"] for page in pages for version in page["versions"] for need in version["needs"])
    assert total == sum(need["tasks"] for need in whole["versions"][0]["needs"])


@pytest.mark.parametrize(
    ("swarm", "lost"),
    [
        (SWARM, []),
        (replace(SWARM, version="2.0"), []),
        (WITHOUT_DIRECTOR, [("director", "", 2)]),
        (WITHOUT_PAY, [("lead", "pay", 1)]),
        (replace(WITHOUT_DIRECTOR, finishes=True), [("director", "", 2)]),
    ],
)
async def test_what_an_update_would_take_away(
    server: HTTPServer, swarm: SwarmCore, lost: list[tuple[str, str, int]]
) -> None:
    await begin(server)
    answer = await get(server)
    found = losses(swarm, answer)
    assert [(each["agent"], each["action"], each["tasks"]) for each in found["lost"]] == lost
    assert (found["tasks"], found["finish"]) == (3, 0)
    if swarm.finishes:
        for version in answer["versions"]:
            version["can_finish"] = True  # as if it had been read from swarms.json
        assert losses(swarm, answer) == {"tasks": 3, "finish": 3, "lost": []}


async def test_the_commands(server: HTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await begin(server)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "newer.py").write_text(
        "from mail import Agent, Swarm\n"
        "async def work(history, choice): ...\n"
        'lead = Agent("lead", function=work)\n'
        f'swarm = Swarm(lead, name="{SWARM.name}")\n'
    )

    async def mail(*arguments: str) -> Result:
        key = ("--api-key", server.keys["admin"])
        run = partial(CliRunner().invoke, app, [*arguments, *key], standalone_mode=False)
        return await asyncio.to_thread(run)

    listed = await mail("swarm", "versions", "--server", server.uvicorn.url)
    assert f"{SWARM.digest} (runs now)" in listed.output
    (tmp_path / "mail.toml").write_text(
        f'[server.swarm]\nname = "{SWARM.name}"\nsource = "python::newer:swarm"\n'
    )
    checked = await mail("check", "--against", server.uvicorn.url)
    assert checked.return_value == 1, checked.output
    assert f"✗ {server.uvicorn.url} has 3 open tasks" in checked.output
    assert "  director would be gone: 2 tasks need it: " in checked.output
    assert "  lead would lose pay: 1 task needs it: pay (user:ann@example)" in checked.output
