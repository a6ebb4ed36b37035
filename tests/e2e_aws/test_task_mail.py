"""Tasks by MAIL 2.0 on the deployed shape: mail, an answer of a member outside, a death, an approval, a reply."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aws_swarm import RECORD_VARIABLE, make_project
from support.mail2 import HOST, Person, Stage
from support.mail2_tasks import opened, reply
from support.processes.local_aws import needs_ministack
from support.processes.projects import entry, supervisor

from mail.local_aws.system import LocalAws

CLAUDE, DESK = f"claude@team@{HOST}", f"desk@office@{HOST}"
SECONDS = 240
"""For a message to come, which may take a lease and some cold starts."""

OFFICE = f'''
"""An agent that asks a member outside what to pay, and pays; its first turn with the answer kills its function."""

import os
import signal

from mail.factories.rules import call, complete, request, rule_based, wait

RECORD = os.environ.get("{RECORD_VARIABLE}", "")


@rule_based
def desk(view):
    paid = [each for each in view.results if "paid" in each]
    if paid:
        return [complete(paid[-1].removeprefix("SUCCESS: "))]
    if view.mail.sender != "claude":
        return [request("claude", view.mail.body), wait()]
    if not os.path.exists(RECORD):
        open(RECORD, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return [call("pay", amount=int(view.mail.body))]


async def pay(args):
    return f"paid {{args['amount']}}"
'''

SWARM = entry(
    "office",
    supervisor("desk", "office:desk", comm_targets=["claude"], actions=["pay"]),
    members={"claude": CLAUDE},
    actions=[
        {
            "name": "pay",
            "description": "Pay.",
            "function": "python::office:pay",
            "parameters": {"type": "object", "properties": {"amount": {"type": "integer"}}},
            "needs_approval": True,
        }
    ],
)

pytestmark = [pytest.mark.soak, needs_ministack, pytest.mark.timeout(4 * SECONDS)]


class Deployment(Stage):
    """Sends people's requests to the HTTP API of a deployment."""

    def __init__(self, url: str) -> None:
        self.client = httpx2.AsyncClient(base_url=url, timeout=60)

    async def anonymous(self, method: str, path: str, **request: Any) -> httpx2.Response:
        """The answer to a request; asks again where the HTTP API has waited for its function for too long."""
        while (
            answer := await self.client.request(method, f"/v2{path}", **request)
        ).status_code == httpx2.codes.SERVICE_UNAVAILABLE and not path.endswith("/send"):
            pass
        return answer


async def come(person: Person, count: int) -> dict[str, Any]:
    """The last message of somebody, once so many have come."""
    entries: list[dict[str, Any]] = []
    async with asyncio.timeout(SECONDS):
        while len(entries) < count:
            await asyncio.sleep(1)
            entries = await person.box("inbox", order="asc")
    assert len(entries) == count, [each["subject"] for each in entries]
    return await opened(person, entries[-1])


async def test_mail_is_answered_over_a_member_a_death_and_an_approval(tmp_path: Path) -> None:
    template = make_project(tmp_path, SWARM, {"office": OFFICE})
    with (tmp_path / "swarm" / "mail.toml").open("a", encoding="utf-8") as config:
        config.write(f'[server]\nmail_host = "{HOST}"\n')
    record = tmp_path / "died"
    async with LocalAws(template, environment={RECORD_VARIABLE: str(record)}) as system:
        api = Deployment(system.url)
        async with api.client:
            root = Person(api, system.tokens["admin"], f"admin:admin@{HOST}")
            ann = Person(api, system.tokens["user"], f"user:user@{HOST}")
            new = {"agent_name": "claude", "swarm_name": "team", "agent_password": "secret"}
            assert (await root.post("/admin/agents", new)).status_code == 200
            login = await api.anonymous(
                "POST", "/auth/token", data={"username": CLAUDE, "password": "secret"}
            )
            claude = Person(api, login.json()["access_token"], CLAUDE)

            sent = await ann.send(DESK, subject="Tea", body="What do I pay?")
            asked = await come(claude, 1)
            assert (asked["sender"], asked["body"]) == (DESK, "What do I pay?")
            assert not record.exists()
            await reply(claude, asked, "42")
            approval = await come(ann, 1)
            assert record.exists(), "the turn that read the answer has died once"
            assert (approval["sender"], approval["tags"]) == (DESK, ["approval"])
            assert "pay(amount: 42)" in approval["body"]
            await reply(ann, approval, "as I said", "approve")
            answer = await come(ann, 2)
            assert (answer["tags"], answer["subject"]) == (["answer"], "Re: Tea")
            assert answer["body"] == "paid 42"
            assert len(await ann.box("inbox", thread=sent["message_id"])) == 2
            assert len(await claude.box("inbox")) == 1
            tasks = (
                await api.client.get("/tasks", headers={"Authorization": f"Bearer {system.tokens['user']}"})
            ).json()
            assert [each["status"] for each in tasks.values()] == ["completed"]
