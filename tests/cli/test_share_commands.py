"""`mail task share`, `shares` and `revoke-share`, against a server."""

import asyncio
import json

import pytest
from support.processes.commands import mail
from support.processes.http_server import HTTPServer

from mail.client import MAILClient
from mail.client.errors import BadAnswer


async def test_a_link_is_made_listed_and_revoked(chief: HTTPServer) -> None:
    async def lasted() -> list[str]:
        shown = (await mail(chief, "task", "show", "t")).output
        return [line for line in shown.splitlines() if line.startswith("lasted")]

    await chief.ask(body="hello", task_id="t")
    before = await lasted()
    await asyncio.sleep(0.06)
    shared = json.loads((await mail(chief, "task", "share", "t", "--days", "1", "--json")).stdout)
    assert shared["url"] == f"{chief.uvicorn.url}/ui#shared={shared['code']}"
    assert await lasted() == before
    listed = await mail(chief, "task", "shares", "t")
    assert listed.output.splitlines()[1] == "\t".join(
        shared[name] for name in ("number", "created", "expires")
    )
    async with MAILClient(chief.uvicorn.url) as anybody:
        found = await anybody.get_shared_task(shared["code"])
        assert [item["text"] for item in found["items"] if item["kind"] == "answer"] == ["hello"]
        revoked = await mail(chief, "task", "revoke-share", "t", shared["number"])
        assert revoked.output == f"link {shared['number']} is revoked\n"
        with pytest.raises(BadAnswer, match="revoked"):
            await anybody.get_shared_task(shared["code"])
    shown = await mail(chief, "task", "share", "t")
    assert shown.stdout.startswith(f"{chief.uvicorn.url}/ui#shared=mail_share_")
    assert shown.stderr.startswith("note: only this machine can open the link")
