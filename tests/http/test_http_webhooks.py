"""Webhooks over HTTP: with a message, registered, delivered to a receiver on this machine."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest
from support.processes.http_server import HTTPServer, eventually
from support.services.webhook_receiver import DROP, Got, WebhookReceiver

from mail.bootstrap.peers import make_webhooks
from mail.config import ServerConfig
from mail.core.task.webhooks import DEFAULT_EVENTS, TaskWebhook
from mail.errors import InvalidSignature
from mail.net.secrets import EnvironmentTokens
from mail.net.webhooks import HTTPWebhooks
from mail.testing.agents import Call, View, build_swarm, call, complete
from mail.webhooks import verify

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
KEY = b"1\xf2\x90\xf6\xbf\x06)\x8a\xabO\x08\xd4<?\x08,\xf6H\xa3b\xda-\xa4\xb0"
PLAIN = "just some text ü"
SIGNED = "${WEBHOOK_SECRET_ANN}"
ENVIRON = {
    "WEBHOOK_SECRET_ANN": SECRET,
    "WEBHOOK_SECRET_PLAIN": PLAIN,
    "WEBHOOK_SECRET_BAD": "whsec_?",
    "HOME": "/",
}
EVERY = ["*"]


def policy(view: View) -> Sequence[Call]:
    if view.mail.body == "ask me":
        return [call("approve", what="it")]
    return [complete(f"you said: {view.mail.body}")]


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    swarm = build_swarm({"supervisor": policy}, breakpoint_tools=("approve",))
    async with HTTPServer(swarm) as server:
        connect(server)
        yield server


def connect(server: HTTPServer, *, allow_private: bool = True) -> HTTPWebhooks:
    return server.send_webhooks(ENVIRON, allow_private=allow_private, retry_seconds=(0.05, 0.05))


async def got(receiver: WebhookReceiver, count: int) -> list[Got]:
    return await asyncio.to_thread(receiver.wait_for, count)


async def log(server: HTTPServer, task_id: str, kind: str, count: int = 1) -> list[dict[str, Any]]:
    """The extra data of a task's events of one kind, once that are so many."""

    async def read() -> list[dict[str, Any]]:
        return await logged(server, task_id, kind)

    async def enough() -> bool:
        return len(await read()) >= count

    await eventually(enough)
    return await read()


async def logged(server: HTTPServer, task_id: str, kind: str) -> list[dict[str, Any]]:
    await server.rig.workers.idle()
    events = await server.rig.store.read_events(
        (await server.rig.store.list_tasks(f"user:ann@{server.rig.swarm.name}")).tasks[0].key
    )
    return [event.extra.as_json() for event in events if event.kind == kind]


# -------------------------------------------------------------------------------------------- delivered


async def test_the_end_of_a_task_is_sent_and_signed(server: HTTPServer, receiver: WebhookReceiver) -> None:
    answer = await server.ask(
        body="hi", task_id="t", webhook={"url": f"{receiver.url}?token=hidden", "secret_ref": SIGNED}
    )
    assert answer["response"] == "you said: hi"
    (one,) = await got(receiver, 1)
    assert one.path == "/hook?token=hidden"
    assert one.is_signed_with(KEY)
    assert one.headers["content-type"] == "application/json"
    record = await server.task("t")
    end = next(event for event in record["events"] if event["event"] == "task_complete")
    assert one.json == {
        "event": "task_complete", "task_id": "t", "seq": int(end["id"]), "task_status": "completed",
        "data": {"timestamp": one.json["data"]["timestamp"], "task_id": "t", "response": "you said: hi"},
    }  # fmt: skip
    assert verify(SECRET, one.headers, one.body) == one.json
    (entry,) = await log(server, "t", "webhook_delivered")
    assert (entry["from"], entry["to"], entry["status"], entry["attempts"]) == (int(end["id"]),) * 2 + (
        200,
        1,
    )
    text = str(await server.task("t"))
    assert "hidden" not in text
    assert SECRET not in text


async def test_all_events_are_sent_in_their_order_and_each_once(
    server: HTTPServer, receiver: WebhookReceiver
) -> None:
    await server.ask(body="hi", task_id="t", webhook={"url": receiver.url, "events": EVERY})
    await server.ask(body="again", task_id="t")

    async def all_sent() -> bool:
        (hook,) = (await server.client.get("/webhooks", params={"task_id": "t"})).json()["webhooks"]
        return hook["waits_to"] is None

    await eventually(all_sent)
    timeline = [
        (event["event"], int(event["id"]))
        for event in (await server.task("t"))["events"]
        if not event["event"].startswith("webhook")
    ]
    assert [(one.event, one.json["seq"]) for one in receiver.got] == timeline
    assert len({one.id for one in receiver.got}) == len(timeline)
    assert "webhook-signature" not in receiver.got[0].headers


@pytest.mark.parametrize("first", [500, DROP, 302, 404, 429])
async def test_what_fails_is_sent_again_under_its_id(server: HTTPServer, first: int | str) -> None:
    with WebhookReceiver(first, first, 204) as receiver:
        await server.ask(task_id="t", webhook={"url": receiver.url, "events": EVERY})
        (entry, *_) = await log(server, "t", "webhook_delivered")
        requests = await got(receiver, 3)
        assert len({one.id for one in requests[:3]}) == 1
        assert entry["attempts"] == 3
        errors = await logged(server, "t", "webhook_error")
        assert [error["attempts"] for error in errors] == [1, 2]
        assert {error["status"] for error in errors} == {None if first == DROP else first}
        seqs = [one.json["seq"] for one in requests[2:]]
        assert seqs == sorted(seqs)


async def test_a_receiver_may_ask_for_a_longer_rest(server: HTTPServer) -> None:
    with WebhookReceiver((503, {"Retry-After": "1"}), 200) as receiver:
        await server.ask(task_id="t", webhook={"url": receiver.url})
        first, second = await got(receiver, 2)
        assert second.at - first.at >= 0.9
        (error,) = await log(server, "t", "webhook_error")
        assert error["retry"] == 1


@pytest.mark.parametrize(("answers", "tries"), [([500], 3), ([410], 1)])
async def test_what_is_given_up_becomes_one_dead_letter(
    server: HTTPServer, answers: list[int], tries: int
) -> None:
    with WebhookReceiver(*answers) as receiver:
        await server.ask(task_id="t", webhook={"url": receiver.url, "events": EVERY})
        (dead,) = await log(server, "t", "dead_letter")
        assert dead["attempts"] == tries
        assert dead["message_seq"] == 1
        assert dead["mailbox"].startswith("!")
        (hook,) = (await server.client.get("/webhooks", params={"task_id": "t"})).json()["webhooks"]
        assert dead["upto"] == hook["delivered_to"]
        assert (hook["waits_to"], hook["failures"]) == (None, 0)
        assert len(receiver.got) == tries
        receiver.answers[:] = [200]
        await server.ask(task_id="t", body="again")
        later = await got(receiver, tries + 1)
        assert later[tries].json["seq"] > dead["upto"]


async def test_a_dead_letter_is_redriven(server: HTTPServer) -> None:
    with WebhookReceiver(410, 200) as receiver:
        await server.ask(task_id="t", webhook={"url": receiver.url})
        (dead,) = await log(server, "t", "dead_letter")
        listed = (await server.client.get("/dead-letters")).json()
        assert dead["mailbox"] in str(listed)
        answer = await server.client.post("/dead-letters/redrive", json={"task_id": "t"})
        assert answer.status_code == 200, answer.text
        first, again = await got(receiver, 2)
        assert (first.id, first.body) == (again.id, again.body)
        (entry,) = await log(server, "t", "webhook_delivered")
        assert entry["from"] == dead["message_seq"]


async def test_a_webhook_may_join_a_task_that_is_there(server: HTTPServer, receiver: WebhookReceiver) -> None:
    first = await server.post(task_id="t", body="ask me")
    assert first.status_code == 200
    before = len((await server.task("t"))["events"])
    for _ in range(2):
        await server.ask(
            task_id="t", drop_question=True, webhook={"url": receiver.url, "events": ["new_message"]}
        )
    await got(receiver, 4)
    assert min(one.json["seq"] for one in receiver.got) > before
    hooks = (await server.client.get("/webhooks", params={"task_id": "t"})).json()["webhooks"]
    assert [(hook["url"], hook["events"]) for hook in hooks] == [(receiver.url, ["new_message"])]


async def test_a_breakpoint_is_told(server: HTTPServer, receiver: WebhookReceiver) -> None:
    await server.post(task_id="t", body="ask me", webhook={"url": receiver.url})
    requests = await got(receiver, 2)
    assert [(one.event, one.json["task_status"]) for one in requests] == [
        ("breakpoint_tool_call", "paused"), ("task_complete", "paused"),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------- registered


async def test_registered_webhooks_are_those_of_tasks_that_begin_then(
    server: HTTPServer, receiver: WebhookReceiver
) -> None:
    await server.ask(task_id="before")
    answer = await server.client.post("/webhooks", json={"url": receiver.url, "secret_ref": SIGNED})
    assert answer.status_code == 201
    registered = answer.json()
    assert registered == {
        "id": registered["id"], "url": receiver.url, "secret_ref": SIGNED,
        "events": [kind.value for kind in DEFAULT_EVENTS], "created": registered["created"],
    }  # fmt: skip
    assert (await server.client.get("/webhooks")).json() == {"webhooks": [registered]}
    await server.ask(task_id="before")
    await server.ask(task_id="after")
    other = {"headers": server.headers("admin")}
    await server.client.post("/message", json={"body": "hi", "task_id": "other's"}, **other)
    (one,) = await got(receiver, 1)
    assert one.json["task_id"] == "after"
    assert (await server.client.get("/webhooks", **other)).json() == {"webhooks": []}
    path = f"/webhooks/{registered['id']}"
    assert (await server.client.delete(path, **other)).status_code == 404
    assert (await server.client.delete(path)).json() == {"status": "deleted", "id": registered["id"]}
    assert (await server.client.delete(path)).status_code == 404
    await server.ask(task_id="later")
    await server.rig.workers.idle()
    assert len(receiver.got) == 1


async def test_there_are_eight_at_most(server: HTTPServer) -> None:
    for n in range(8):
        given = {"url": f"https://example.com/{n}"}
        assert (await server.client.post("/webhooks", json=given)).status_code == 201
    more = {"url": "https://example.com/8"}
    refused = await server.client.post("/webhooks", json=more)
    assert refused.status_code == 400
    assert "delete one" in refused.json()["detail"]
    again = await server.client.post("/webhooks", json={"url": "https://example.com/3", "secret_ref": SIGNED})
    assert again.status_code == 201
    assert len((await server.client.get("/webhooks")).json()["webhooks"]) == 8
    message = await server.post(webhook=more)
    assert message.status_code == 400
    assert (await server.client.get("/tasks")).json() == {}


@pytest.mark.parametrize("webhook_id", ["nope", "0" * 16, "%00", "G" * 16, "0" * 5_000])
async def test_what_was_never_registered_is_not_found(server: HTTPServer, webhook_id: str) -> None:
    answer = await server.client.delete(f"/webhooks/{webhook_id}")
    assert answer.status_code == 404
    detail = answer.json()["detail"]
    assert "you have no webhook" in detail
    assert len(detail) < 120


async def test_the_state_of_others_tasks_is_not_shown(server: HTTPServer) -> None:
    await server.ask(task_id="t")
    answer = await server.client.get("/webhooks", params={"task_id": "t"}, headers=server.headers("admin"))
    assert answer.status_code == 404


# --------------------------------------------------------------------------------------------- refused

BAD = [
    ({"url": "https://example.com", "secret_ref": "hunter2"}, "secret_ref"),
    ({"url": "https://example.com", "secret_ref": "${HOME}"}, "secret_ref"),
    ({"url": "https://example.com", "secret_ref": "${SWARM_AUTH_TOKEN_B}"}, "secret_ref"),
    ({"url": "https://example.com", "secret_ref": "${WEBHOOK_SECRET_NONE}"}, "WEBHOOK_SECRET_NONE"),
    ({"url": "https://example.com", "secret_ref": "${WEBHOOK_SECRET_BAD}"}, "base64"),
    ({"url": "https://example.com", "events": []}, "events"),
    (
        {"url": "https://example.com", "events": ["nonsense"]},
        "no kind of event 'nonsense'; there are new_message,",
    ),
    (
        {"url": "https://example.com", "events": ["*", "task_complet"]},
        "for all. Did you mean 'task_complete'?",
    ),
    ({"url": "https://example.com", "events": [None, {}]}, "no kind of event 'None'"),
    ({"url": "https://example.com", "events": "task_complete"}, "list"),
    ({"url": "https://example.com", "events": ["webhook_error"]}, "never sent"),
    ({"url": "ftp://example.com"}, "https://"),
    ({"url": "https://"}, "https://"),
    ({"url": "https://user:pass@example.com"}, "user"),
    ({"url": "https://example.com/#x"}, "fragment"),
    ({"url": "https://example.com/a b"}, "spaces"),
    ({"url": f"https://example.com/{'x' * 2048}"}, "too long: 2068 characters, of 2048 at most"),
    ({"url": "http://8.8.8.8/"}, "http is only"),
    ({"url": "https://[::1"}, "URL"),
    ({}, "url"),
]


@pytest.mark.parametrize(("webhook", "says"), BAD)
async def test_what_can_not_be_is_refused_at_once(
    server: HTTPServer, webhook: dict[str, Any], says: str
) -> None:
    for answer in (
        await server.post(task_id="t", webhook=webhook),
        await server.client.post("/webhooks", json=webhook),
    ):
        assert answer.status_code == 400, answer.text
        assert says in answer.json()["detail"]
        assert "hunter2" not in answer.text
        assert "pass@" not in answer.text
    assert (await server.client.get("/tasks")).json() == {}
    assert (await server.client.get("/webhooks")).json() == {"webhooks": []}


PRIVATE = [
    "http://example.com/",
    "https://127.0.0.1/",
    "https://localhost/",
    "https://a.localhost/",
    "https://10.1.2.3/",
    "https://192.168.0.1/",
    "https://169.254.169.254/latest/meta-data/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[fd00::1]/",
    "https://0.0.0.0/",
]


@pytest.mark.parametrize("url", PRIVATE)
async def test_private_addresses_are_refused_unless_allowed(server: HTTPServer, url: str) -> None:
    connect(server, allow_private=False)
    answer = await server.client.post("/webhooks", json={"url": url})
    assert answer.status_code == 400, answer.text


@pytest.mark.parametrize("url", ["http://localhost:9000/hook", "http://receiver:9000/hook", *PRIVATE])
async def test_a_server_calls_no_private_address_by_itself_wherever_it_listens(
    server: HTTPServer, url: str
) -> None:
    """A server on this machine may have a proxy in front of it, and callers from anywhere."""
    webhooks = make_webhooks(
        server.records, ServerConfig(host="127.0.0.1"), server.rig.clock, EnvironmentTokens({})
    )
    server.rig.runtime.webhooks = webhooks
    answer = await server.client.post("/webhooks", json={"url": url})
    assert answer.status_code == 400, answer.text
    assert "allow_private_addresses" in answer.json()["detail"]


@pytest.mark.parametrize("host", ["localhost", "127.1", "2130706433", "0x7f.1"])
async def test_names_of_private_addresses_are_never_connected_to(
    server: HTTPServer, receiver: WebhookReceiver, host: str
) -> None:
    """Whatever a name says when the message is accepted, what counts is the address that is connected to."""
    await server.ask(task_id="t", body="ask me", webhook={"url": f"http://{host}:{receiver.port}/"})
    before = len(await got(receiver, 2))
    connect(server, allow_private=False)
    await server.ask(task_id="t", drop_question=True)
    (dead,) = await log(server, "t", "dead_letter")
    assert "its host has no public address" in dead["reason"]
    assert "127.0.0.1" not in dead["reason"]
    assert len(receiver.got) == before


async def test_callers_can_not_ask_which_internal_names_exist(
    server: HTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def look_up(host: str, port: int, *_: object, **__: object) -> Any:
        if host.startswith("wiki"):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", port))]
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    webhooks = connect(server, allow_private=False)
    monkeypatch.setattr("socket.getaddrinfo", look_up)
    hooks = [TaskWebhook(url=f"https://{name}.internal/") for name in ("wiki", "none")]
    replies = [await webhooks.send(hook, "e", b"{}", seconds=5) for hook in hooks]
    assert replies[0] == replies[1]
    assert "no public address" in replies[0].reason


async def test_redirects_are_not_followed(server: HTTPServer, receiver: WebhookReceiver) -> None:
    with WebhookReceiver((307, {"Location": receiver.url})) as first:
        await server.ask(task_id="t", webhook={"url": first.url})
        (dead,) = await log(server, "t", "dead_letter")
        assert "redirects are not followed" in dead["reason"]
        assert receiver.got == []


async def test_a_server_that_sends_none_says_so(server: HTTPServer) -> None:
    server.rig.runtime.webhooks = None
    answer = await server.post(webhook={"url": "https://example.com"})
    assert (answer.status_code, answer.json()["detail"]) == (400, "this server sends no webhooks")
    assert (await server.client.post("/webhooks", json={"url": "https://example.com"})).status_code == 400


# ---------------------------------------------------------------------------------------------- verify


async def test_verify_refuses_what_was_not_sent_so(server: HTTPServer, receiver: WebhookReceiver) -> None:
    await server.ask(webhook={"url": receiver.url, "secret_ref": "${WEBHOOK_SECRET_PLAIN}"})
    (one,) = await got(receiver, 1)
    sent = int(one.headers["webhook-timestamp"])
    assert one.is_signed_with(PLAIN.encode())
    upper = {name.title(): value for name, value in one.headers.items()}
    assert verify(PLAIN, httpx2.Headers(upper), one.body.decode(), now=sent + 299) == one.json
    rotated = {**one.headers, "webhook-signature": f"v1,old {one.headers['webhook-signature']}"}
    assert verify(PLAIN, rotated, one.body) == one.json
    for secret, headers, body, now in (
        ("other", one.headers, one.body, sent),
        (PLAIN, one.headers, one.body + b" ", sent),
        (PLAIN, {**one.headers, "webhook-id": "x"}, one.body, sent),
        (PLAIN, {**one.headers, "webhook-timestamp": str(sent + 1)}, one.body, sent),
        (PLAIN, {**one.headers, "webhook-timestamp": "now"}, one.body, sent),
        (PLAIN, {**one.headers, "webhook-signature": "v1,ä"}, one.body, sent),
        (PLAIN, {}, one.body, sent),
        (PLAIN, one.headers, one.body, sent + 301),
        (PLAIN, one.headers, one.body, sent - 301),
    ):
        with pytest.raises(InvalidSignature):
            verify(secret, headers, body, now=now)
