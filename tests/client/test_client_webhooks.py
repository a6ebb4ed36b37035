"""The client's methods for webhooks, and the commands of `mail client`, against a server and a receiver."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator

import pytest
from support.processes.http_server import HTTPServer
from support.services.webhook_receiver import WebhookReceiver

from mail.cli.connection import CommandClient, connect
from mail.cli.output import Output
from mail.cli.repl.commands import begin
from mail.cli.session import Session
from mail.client import MAILClientError


@pytest.fixture
def server(server: HTTPServer) -> HTTPServer:
    server.send_webhooks()
    return server


@pytest.fixture
async def client(server: HTTPServer) -> AsyncIterator[CommandClient]:
    async with connect(server.uvicorn.url, server.keys["user"]) as client:
        yield client


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


async def test_messages_bring_their_webhooks(client: CommandClient, receiver: WebhookReceiver) -> None:
    await client.post_message("one", task_id="1", webhook=receiver.url)
    stream = await client.post_message_stream(
        "two", task_id="2", webhook={"url": receiver.url, "events": ["task_complete"]}
    )
    assert [event.event async for event in stream][-1] == "task_complete"
    got = await asyncio.to_thread(receiver.wait_for, 2)
    assert {one.json["task_id"] for one in got} == {"1", "2"}
    (hook,) = (await client.get_webhooks("2"))["webhooks"]
    assert hook["events"] == ["task_complete"]
    with pytest.raises(MAILClientError, match="secret_ref"):
        await client.post_message("three", webhook={"url": receiver.url, "secret_ref": "a secret"})


async def test_the_commands(client: CommandClient, receiver: WebhookReceiver) -> None:
    shown = io.StringIO()
    session = Session(client, Output(shown, False))

    async def do(*words: str) -> str:
        shown.truncate(0)
        shown.seek(0)
        work = begin(list(words), session)
        assert work is not None
        await work
        return shown.getvalue().strip()

    with pytest.raises(MAILClientError, match="secret_ref"):
        await do("webhook-register", receiver.url, "--secret-ref", "x")
    webhook_id = await do("webhook-register", receiver.url, "--event", "task_complete")
    heading, line = (await do("webhooks")).splitlines()
    assert heading == "id\tstate\tevents\turl"
    assert line == f"{webhook_id}\tregistered\ttask_complete\t{receiver.url}"
    await do("message", "hi", "--task-id", "t", "--webhook", receiver.url)
    await asyncio.to_thread(receiver.wait_for, 2)
    assert len((await do("webhooks", "--task", "t")).splitlines()) == 3
    assert "deleted" in await do("webhook-delete", webhook_id)
    assert await do("webhooks") == heading


async def test_what_was_given_up_is_not_shown_as_sent(client: CommandClient, server: HTTPServer) -> None:
    shown = io.StringIO()
    with WebhookReceiver(410) as receiver:
        await client.post_message("hi", task_id="t", webhook=receiver.url)
        await asyncio.to_thread(receiver.wait_for, 1)
        await server.rig.workers.idle()
    assert len(await client.get_dead_letters(task_id="t")) == 1
    events = (await client.get_task("t"))["events"]
    (given_up,) = (event["id"] for event in events if event["event"] == "task_complete")
    work = begin(["webhooks", "--task", "t"], Session(client, Output(shown, False)))
    assert work is not None
    await work
    assert shown.getvalue().splitlines()[1].split("\t")[1] == f"nothing waits after {given_up}"
