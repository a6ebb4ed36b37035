"""MAIL 2.0 on AWS: one function answers, that of deliveries does what is left, and the sweeper finds what was lost."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from function_stage import Stage
from test_handlers_http import DOMAIN, answer
from url_stage import TIMEOUT, served

from mail.adapters.aws.rows import DynamoDBRows
from mail.core.task.rows import Rows
from mail.mail2 import WORK
from mail.mail2.host import NAME

PEOPLE = 20
"""More than get a message in the transaction of its sender."""


def rows_of(stage: Stage) -> Rows:
    return DynamoDBRows(stage.table.client, stage.table.table)


def ask(stage: Stage, method: str, path: str, token: str, body: Any = None, **headers: str) -> dict[str, Any]:
    """The answer of the function, which must be 200."""
    result = stage.ask("mail2", method=method, path=f"/v2{path}", body=body, key=token, **headers)
    assert result["statusCode"] == 200, result
    found: dict[str, Any] = answer(result)
    return found


def log_in(stage: Stage, address: str, password: str) -> str:
    form = f"username={address.replace('@', '%40')}&password={password}"
    token = ask(
        stage, "POST", "/auth/token", "", form, **{"content-type": "application/x-www-form-urlencoded"}
    )
    access: str = token["access_token"]
    return access


def send(stage: Stage, token: str, *recipients: str) -> dict[str, Any]:
    """An entry of the outbox."""
    draft = ask(stage, "POST", "/drafts", token, {"subject": "Tea", "body": "At four?"})["entry"]["draft"]
    sent = ask(stage, "POST", f"/drafts/{draft['draft_id']}/send", token, {"recipients": list(recipients)})
    message_id: str = sent["message"]["message_id"]
    return entry_of(stage, token, message_id)


def entry_of(stage: Stage, token: str, message_id: str) -> dict[str, Any]:
    entries = ask(stage, "GET", "/outbox", token)["entries"]
    (found,) = [entry for entry in entries if entry["message_id"] == message_id]
    return dict(found)


def deliver(stage: Stage, *records: dict[str, Any]) -> None:
    for record in records:
        assert stage.invoke("outbound", {"Records": [record]}) == {"batchItemFailures": []}
        stage.delete(record)


def make_due(stage: Stage) -> None:
    """Let all work have waited for long."""
    rows = rows_of(stage)
    for name, text in asyncio.run(rows.find(WORK, "")):
        item = {
            "PK": {"S": WORK},
            "SK": {"S": name},
            "text": {"S": json.dumps({**json.loads(text), "due": 0.0})},
        }
        stage.table.client.botocore.put_item(TableName=stage.table.table, Item=item)


@pytest.mark.soak
def test_mail_reaches_more_people_than_fit_into_the_transaction_of_its_sender(stage: Stage) -> None:
    """The API key of an admin makes the first account, and is its password; no request names the host elsewhere."""
    admin = log_in(stage, f"admin:root@{DOMAIN}", stage.key("admin", "root"))
    assert ask(stage, "GET", "/auth/whoami", admin)["user_agent"]["user_agent"]["host"] == DOMAIN
    assert asyncio.run(rows_of(stage).read(NAME)) == {NAME: DOMAIN}
    names = [f"p{number}" for number in range(PEOPLE)]
    for name in names:
        ask(stage, "POST", "/admin/users", admin, {"user_id": name, "user_password": "a-password"})
    people = [f"user:{name}@{DOMAIN}" for name in names]

    assert send(stage, admin, *people[:3])["delivered_at"] is not None
    assert stage.deliveries() == []

    sent = send(stage, admin, *people)
    assert sent["delivered_at"] is None
    (record,) = stage.deliveries()
    deliver(stage, record)
    assert entry_of(stage, admin, sent["message_id"])["delivered_at"] is not None

    lost = send(stage, admin, *people)
    (record,) = stage.deliveries()
    stage.delete(record)
    stage.invoke("sweeper", stage.event("sweeper"))
    assert stage.deliveries() == []  # it isn't due yet
    for _ in range(2):
        make_due(stage)
        stage.invoke("sweeper", stage.event("sweeper"))
    twice = stage.deliveries()
    assert len(twice) == 2
    deliver(stage, *twice)
    assert entry_of(stage, admin, lost["message_id"])["delivered_at"] is not None
    last = log_in(stage, people[-1], "a-password")
    assert len(ask(stage, "GET", "/inbox", last)["entries"]) == 2
    assert asyncio.run(rows_of(stage).find(WORK, "")) == []

    # a webhook that doesn't answer is called again, later
    ask(
        stage,
        "POST",
        "/admin/agents",
        admin,
        {"agent_name": "claude", "swarm_name": "team", "agent_password": "p"},
    )
    hook = {"url": "http://127.0.0.1:1/", "events": ["mail.delivered"], "secret": "s"}
    hook_id = ask(stage, "POST", "/admin/webhooks", admin, hook)["webhook"]["webhook_id"]
    send(stage, admin, f"claude@team@{DOMAIN}")
    (record,) = stage.deliveries()
    deliver(stage, record)
    (call,) = asyncio.run(rows_of(stage).find(WORK, ""))
    assert json.loads(call[1])["attempt"] == 0
    records = stage.deliveries()
    assert [json.loads(each["body"])["task_id"] for each in records] == [call[0]]
    deliver(stage, *records)
    (call,) = asyncio.run(rows_of(stage).find(WORK, ""))
    assert json.loads(call[1])["attempt"] == 1
    ask(stage, "DELETE", f"/admin/webhooks/{hook_id}", admin)
    make_due(stage)
    stage.invoke("sweeper", stage.event("sweeper"))
    deliver(stage, *stage.deliveries())
    assert asyncio.run(rows_of(stage).find(WORK, "")) == []

    # the boxes of a deleted account are emptied
    ask(stage, "DELETE", "/admin/users/p0", admin)
    deliver(stage, *stage.deliveries())
    assert asyncio.run(rows_of(stage).find(WORK, "")) == []

    # and those of a deleted caller, before the deletion counts as ended
    root, path = stage.key("admin", "root"), "/callers/user:p1"
    deletion = stage.request("tasks", method="DELETE", path=path, key=root)
    assert stage.invoke("tasks", deletion)["statusCode"] == 202
    request = stage.request("tasks", path=path, key=root)
    with stage.start("sweeper") as first:  # a process looks for deletions every five seconds at most
        first.invoke(stage.event("sweeper"))
    assert answer(stage.invoke("tasks", request))["deletion"]["ended"] is None
    deliver(stage, *stage.deliveries())
    with stage.start("sweeper") as another:
        another.invoke(stage.event("sweeper"))
    assert answer(stage.invoke("tasks", request))["deletion"]["ended"] is not None
    assert "p1" not in ask(stage, "GET", "/admin/users", admin)["users"]


def test_mail_to_an_agent_is_answered(stage: Stage) -> None:
    """The function of deliveries submits it, turns run, and it sends what they say."""
    user = log_in(stage, f"user:alice@{DOMAIN}", stage.key("user", "alice"))
    sent = send(stage, user, f"supervisor@example-no-proxy@{DOMAIN}")
    deliver(stage, *stage.deliveries())
    assert entry_of(stage, user, sent["message_id"])["delivered_at"] is not None
    stage.work_off()
    deliver(stage, *stage.deliveries())
    (entry,) = ask(stage, "GET", "/inbox", user)["entries"]
    assert (entry["sender"], entry["subject"]) == (f"supervisor@example-no-proxy@{DOMAIN}", "Re: Tea")


@pytest.mark.soak
def test_the_inbox_is_a_stream_of_the_function_that_streams(stage: Stage, tmp_path: Path) -> None:
    """It ends before its invocation does, and its client resumes it."""
    admin = log_in(stage, f"admin:root@{DOMAIN}", stage.key("admin", "root"))
    headers = {"Authorization": f"Bearer {admin}"}
    with served(stage, "stream", tmp_path / "log") as url:
        first = httpx2.get(f"{url}/v2/inbox/stream", headers=headers, timeout=TIMEOUT)
        assert first.status_code == 200
        begin, *rest = first.text.split("\r\n\r\n")
        assert "event: ready" in begin
        assert all("event: ping" in each for each in rest if each)
        sent = send(stage, admin, f"admin:root@{DOMAIN}")
        headers["Last-Event-ID"] = begin.partition("id: ")[2].partition("\r\n")[0]
        second = httpx2.get(f"{url}/v2/inbox/stream", headers=headers, timeout=TIMEOUT).text
        assert second.count("event: message") == 1
        assert sent["message_id"] in second


@pytest.mark.soak
def test_a_lost_delivery_is_no_dead_letter(stage: Stage) -> None:
    """Its work stays noted, for the sweeper."""
    record = stage.event("outbound")["Records"][0]
    record["body"] = json.dumps({"instance": WORK, "task_id": "gone", "mailbox": "", "seq": 0})
    assert stage.invoke("dead_letter", {"Records": [record]}) == {"batchItemFailures": []}


@pytest.mark.soak
def test_mail_2_can_be_off(stage: Stage) -> None:
    off = stage.request("mail2", path="/v2/auth/whoami")
    with stage.start("mail2", {"MAIL_SERVES_MAIL2": "false"}) as running:
        assert running.invoke(off)["statusCode"] == 404


@pytest.mark.soak
def test_what_comes_to_the_function_of_other_requests_is_answered_as_well(stage: Stage) -> None:
    """An HTTP API may find no route for the empty rest of `/v2/{path+}`."""
    found = answer(stage.ask("root", path="/v2/"))
    assert (found["protocol_name"], found["protocol_version"]) == ("mail", "2.0")
