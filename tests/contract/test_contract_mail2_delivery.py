"""Delivery of MAIL 2.0 in several writes: each message gets into each box once, also if processes die."""

import asyncio
import hmac
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from hashlib import sha256
from random import Random
from uuid import uuid4

import pytest
from support.engines.adapters import StoreAdapter
from support.engines.mortal import mortal_rows
from support.mail2 import HOST, NEW_LIST, Person, Stage

from mail.core.task.rows import Write
from mail.errors import StoreUnavailable
from mail.mail2 import WORK
from mail.mail2.delivery import MAX_REACHED, _Recipients
from mail.mail2.host import MailHost
from mail.mail2.records import (
    LEASE_SECONDS,
    MESSAGES,
    MORE,
    Call,
    Delivery,
    Message,
    More,
    Purge,
    Undelivered,
    Work,
    box,
    claimed,
)

MEMBERS = 7
NARROW = 3
"""How many entries one write takes, where it takes few."""


@pytest.fixture
async def stage(adapter: StoreAdapter, cheap_passwords: None) -> AsyncIterator[Stage]:
    async with Stage(adapter.rows) as stage:
        yield stage


@pytest.fixture
async def people(stage: Stage) -> list[Person]:
    """The members of a list."""
    people = [await stage.person(f"p{number}") for number in range(MEMBERS)]
    root = await stage.person("root", "admin")
    await root.post("/admin/lists", {**NEW_LIST, "members": [person.address for person in people]})
    return people


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("point", range(10))
async def test_a_message_reaches_all_members_once_although_processes_die(
    stage: Stage, people: list[Person], point: int
) -> None:
    draft = await people[0].draft()
    account = (await stage.host.accounts.find("user:p0"))["user:p0"]
    dying = stage.another(mortal_rows(stage.rows, point, limit=NARROW))
    row = await dying.boxes.draft(account, draft)
    try:
        sent, _ = await dying.deliveries.send(account, row, (f"list:tea@team@{HOST}",), (), "key")
        assert [each async for each in dying.deliveries.finish(sent.message_id)] == []
    except StoreUnavailable:
        pass
    again = stage.another(mortal_rows(stage.rows, limit=NARROW))
    sent, _ = await again.deliveries.send(account, row, (f"list:tea@team@{HOST}",), (), "key")
    (entry,) = await people[0].box("outbox")
    assert (entry["delivered_at"] is None) == bool(await stage.rows.find(WORK, ""))
    await again.begin(sent.message_id)
    assert [await person.subjects() for person in people] == [["Tea"]] * MEMBERS
    assert min([(await person.box("inbox"))[0]["received_at"] for person in people]) >= sent.sent_at
    (entry,) = await people[0].box("outbox")
    assert entry["delivered_at"] >= sent.sent_at
    assert await stage.rows.find(WORK, "") == []


@pytest.mark.soak(on=("moto", "postgres"))
@pytest.mark.parametrize("point", range(1, 34, 2))
async def test_a_delivery_in_several_rows_reaches_all_once_although_processes_die(
    stage: Stage, people: list[Person], point: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.mail2.delivery.MOST_BOXES", 2)
    monkeypatch.setattr("mail.mail2.delivery.MOST_CALLED", 3)
    root = await stage.person("root", "admin")
    await root.post("/admin/webhooks", {**HOOK, "people": True})
    draft = await people[0].draft()
    account = (await stage.host.accounts.find("user:p0"))["user:p0"]
    row = await stage.host.boxes.draft(account, draft)
    dying = stage.another(mortal_rows(stage.rows, point, limit=NARROW))
    given = (account, row, (f"list:tea@team@{HOST}",), (), "key")
    with suppress(StoreUnavailable):
        sent, _ = await dying.deliveries.send(*given)
        async for _ in dying.deliveries.finish(sent.message_id):
            pass
    again = stage.another(mortal_rows(stage.rows, limit=NARROW))
    sent, _ = await again.deliveries.send(*given)
    await again.begin(sent.message_id)
    for name, _ in await stage.rows.find(WORK, "evt_"):
        await again.work(name)
    assert [await person.subjects() for person in people] == [["Tea"]] * MEMBERS
    assert len(stage.receiver.got) == MEMBERS
    assert (await people[0].box("outbox"))[0]["delivered_at"] >= sent.sent_at
    assert (await stage.rows.find(WORK, ""), await stage.rows.find(MORE, "")) == ([], [])


async def test_what_lists_of_the_largest_size_leave_fits_into_rows(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    boxes = tuple(uuid4().hex for _ in range(MAX_REACHED))
    owners = tuple((f"{n:032}@{'a' * 32}", f"list:{'l' * 32}@{'a' * 32}") for n in range(MAX_REACHED))
    unreached = (Undelivered(f"user:nobody@{HOST}", "no"),)
    given = {"sender": f"user:ann@{HOST}", "recipients": (f"user:nobody@{HOST}",), "body": "x" * 65_535}
    sent_at = "2026-01-01T00:00:00Z"
    message = Message(message_id=str(uuid4()), subject="Tea", sent_at=sent_at, **given)

    async def all_of_them(*_owners: object) -> object:
        return owners

    deliveries = stage.host.deliveries
    monkeypatch.setattr(type(deliveries._webhooks), "called_for", all_of_them)
    to = _Recipients(boxes, owners, (), (), unreached, is_sender_full=False)
    assert await deliveries._file(message, uuid4().hex, to, sent_at) == (True, True)
    others = [More.read(text) for _, text in await stage.rows.find(MORE, "")]
    work = Delivery.read((await stage.rows.find(WORK, ""))[0][1])
    rows: list[Delivery | More] = [work, *others]
    left = {each for row in rows for each in row.left}
    assert left < set(boxes)
    assert len(left) + stage.rows.write_limit - 2 == MAX_REACHED
    assert {each for row in rows for each in row.agents} == set(owners)
    await stage.rows.write([Write((MESSAGES, message.message_id), None)])  # as if all had deleted it
    await stage.host.work(message.message_id)
    assert (await stage.rows.find(WORK, ""), await stage.rows.find(MORE, "")) == ([], [])


@pytest.mark.timeout(1200)  # moto takes a second for each message on a busy machine
@pytest.mark.soak
async def test_many_messages_among_many_accounts_although_processes_die(stage: Stage) -> None:
    """MAIL_SOAK_MESSAGES says how many; `python -m chaos.mail2` kills servers."""
    count, deaths, chance = int(os.environ.get("MAIL_SOAK_MESSAGES", "200")), 0, Random(1)
    people = {person.address: person for person in [await stage.person(f"p{n}") for n in range(25)]}
    root, names, lists = await stage.person("root", "admin"), list(people), dict[str, list[str]]()
    for n in range(3):
        members = names if n == 0 else chance.sample(names, 5)
        await root.post("/admin/lists", {**NEW_LIST, "name": f"l{n}", "members": members})
        lists[f"list:l{n}@team@{HOST}"] = members
    keys = [name.partition("@")[0] for name in names]
    accounts = await stage.host.accounts.find(*keys)
    drafts = [
        await stage.host.boxes.draft(accounts[key], await people[f"{key}@{HOST}"].draft()) for key in keys
    ]
    wanted: dict[str, set[str]] = {name: set() for name in names}
    host = stage.another()
    for n in range(count):
        if n * 20 // count != (n - 1) * 20 // count:  # twenty times, soon
            host = stage.another(mortal_rows(stage.rows, chance.randrange(6)))
        to = chance.choice(list(lists)) if chance.random() < 0.2 else chance.choice(names)
        sender = chance.randrange(len(names))
        while True:
            try:
                given = (accounts[keys[sender]], drafts[sender], (to,), (), f"m{n}")
                sent, _ = await host.deliveries.send(*given)
                assert [each async for each in host.deliveries.finish(sent.message_id)] == []
                break
            except StoreUnavailable:
                deaths += 1
                host = stage.another()
                if chance.random() < 0.5:
                    sent, _ = await host.deliveries.send(*given)
                    break  # nobody finishes it now
        reached = lists.get(to, [to])
        for name in reached:
            wanted[name].add(sent.message_id)
        if (await people[names[sender]].box("outbox", limit=1))[0]["delivered_at"]:
            for name in reached:
                newest = await people[name].box("inbox", limit=1)
                assert [each["message_id"] for each in newest] == [sent.message_id]
    assert deaths >= 15
    for name, _ in await stage.rows.find(WORK, ""):
        await host.work(name)
    assert await stage.rows.find(WORK, "") == []
    for name, person in people.items():
        got = [each async for each in stage.host.boxes.export(accounts[name.partition("@")[0]])]
        inbox = [each["entry"]["message"]["message_id"] for each in got if each["box"] == "inbox"]
        assert (len(inbox), set(inbox)) == (len(wanted[name]), wanted[name])
        assert all(each["entry"]["delivered_at"] for each in got if each["box"] == "outbox")
        assert len(await person.box("drafts")) == 1


async def test_what_was_deleted_meanwhile_stays_deleted(stage: Stage, people: list[Person]) -> None:
    account = (await stage.host.accounts.find("user:p0"))["user:p0"]
    narrow = stage.another(mortal_rows(stage.rows, limit=NARROW))
    row = await narrow.boxes.draft(account, await people[0].draft())
    sent, _ = await narrow.deliveries.send(account, row, (f"list:tea@team@{HOST}",), (), None)
    assert await people[-1].box("inbox") == []
    await people[0].ask("DELETE", f"/inbox/{sent.message_id}")
    await people[0].ask("DELETE", f"/trash/{sent.message_id}")
    await narrow.begin(sent.message_id)
    assert await people[0].box("inbox") == []
    assert await people[-1].subjects() == ["Tea"]


async def test_another_process_resumes_what_is_due(stage: Stage, people: list[Person]) -> None:
    account = (await stage.host.accounts.find("user:p0"))["user:p0"]
    narrow = stage.another(mortal_rows(stage.rows, limit=NARROW))
    row = await narrow.boxes.draft(account, await people[0].draft())
    await narrow.deliveries.send(account, row, (f"list:tea@team@{HOST}",), (), None)
    await stage.another().resume()
    assert await people[-1].box("inbox") == []  # for some seconds, it is the first process's
    await make_due(stage)
    await stage.another().resume()
    assert await people[-1].subjects() == ["Tea"]


async def test_a_sweep_takes_up_part_of_the_work_and_the_next_one_the_rest(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.mail2.host.SWEPT", 2)
    rows = [Write((WORK, f"purge user:p{n} x"), Purge(0.0, "x").text) for n in range(3)]
    assert await stage.rows.write(rows)
    host = stage.another()
    await host.resume()
    assert len(await stage.rows.find(WORK, "")) == 1
    await host.resume()
    assert await stage.rows.find(WORK, "") == []


async def test_work_that_fails_is_taken_up_ever_later(stage: Stage, people: list[Person]) -> None:
    row, now = (WORK, "purge user:p0 x"), stage.server.rig.clock.now().timestamp()
    await people[0].send(people[0].address)
    account = (await stage.host.accounts.find("user:p0"))["user:p0"]
    await stage.rows.write([Write(row, Purge(0.0, account.box).text)])
    await stage.another(mortal_rows(stage.rows, 4, limit=NARROW)).resume()
    first = Work.read((await stage.rows.read(row))[row])
    assert first.tries == 1
    assert first.due >= now + LEASE_SECONDS
    assert Work.read(claimed(first.text, now)).due == now + 2 * LEASE_SECONDS
    await stage.another().resume()
    assert row in await stage.rows.read(row)
    await make_due(stage)
    await stage.another().resume()
    assert await stage.rows.read(row) == {}


async def make_due(stage: Stage) -> None:
    """Let all work have waited for long."""
    for name, text in await stage.rows.find(WORK, ""):
        due = json.dumps({**json.loads(text), "due": 0.0})
        assert await stage.rows.write([Write((WORK, name), due, text)])


# ----------------------------------------------------------------------------------------------------------- webhooks


@pytest.fixture
async def root(stage: Stage) -> Person:
    root = await stage.person("root", "admin")
    body = {"agent_name": "claude", "swarm_name": "team", "agent_password": "pw"}
    assert (await root.post("/admin/agents", body)).status_code == 200
    return root


HOOK = {"url": "https://hooks.test/mail", "events": ["mail.delivered"], "secret": "s3cret"}


async def test_webhooks_are_managed_by_admins(root: Person) -> None:
    made = (await root.post("/admin/webhooks", HOOK)).json()["webhook"]
    assert made == {"webhook_id": made["webhook_id"], **HOOK, "people": False}
    assert made["webhook_id"].startswith("wh_")
    assert (await root.post("/admin/webhooks", {**HOOK, "secret": "other"})).json()["webhook"] == made
    path = f"/admin/webhooks/{made['webhook_id']}"
    assert (await root.get(path)).json()["webhook"] == made
    assert (await root.get("/admin/webhooks")).json()["webhook_ids"] == [made["webhook_id"]]
    assert (await root.ask("PATCH", path, json={"url": HOOK["url"]})).status_code == 422
    changes = {"url": "https://hooks.test/other", "secret": "new"}
    assert (await root.ask("PATCH", path, json=changes)).json()["webhook"] == {**made, **changes}
    assert (await root.ask("DELETE", path)).json()["webhook"] == {**made, **changes}
    assert (await root.get(path)).status_code == 404
    for url in ("ftp://hooks.test", "https://private.test"):
        assert (await root.post("/admin/webhooks", {**HOOK, "url": url})).status_code == 422


async def test_a_webhook_is_called_for_each_agent_that_gets_a_message(stage: Stage, root: Person) -> None:
    agent = f"claude@team@{HOST}"
    await root.post("/admin/webhooks", HOOK)
    await root.post("/admin/webhooks", {**HOOK, "url": "https://hooks.test/none", "events": []})
    await root.post("/admin/lists", {**NEW_LIST, "members": [agent]})
    await root.send(root.address)
    sent = await root.send(agent, f"list:tea@team@{HOST}", tags=["a"])
    await root.send(f"list:tea@team@{HOST}", subject="By list")
    (url, headers, body), (_, _, by_list) = stage.receiver.got
    event = json.loads(body)
    assert url == HOOK["url"]
    assert event["message"] == {
        "message_id": f"msg_{sent['message_id']}", "reply_to": None, "sender": root.address, "recipient": agent,
        "subject": "Tea", "body": "At four?", "tags": ["a"], "sent_at": sent["sent_at"], "swarm": "team",
        "metadata": {},
    }  # fmt: skip
    assert event["event"] == "mail.delivered"
    assert event["event_id"] == headers["X-MAIL-Event-Id"]
    signed = headers["X-MAIL-Timestamp"].encode() + b"." + body
    expected = hmac.new(b"s3cret", signed, sha256).hexdigest()
    assert headers["X-MAIL-Signature"] == f"sha256={expected}"
    assert json.loads(by_list)["message"]["metadata"] == {"list_address": f"list:tea@team@{HOST}"}
    assert await stage.rows.find(WORK, "") == []


async def test_a_webhook_may_be_called_for_people(stage: Stage, root: Person) -> None:
    made = (await root.post("/admin/webhooks", {**HOOK, "people": True})).json()["webhook"]
    await root.send(root.address, f"claude@team@{HOST}")
    found = [json.loads(body)["message"] for _, _, body in stage.receiver.got]
    assert [(each["recipient"], each["swarm"]) for each in found] == [
        (root.address, None),
        (f"claude@team@{HOST}", "team"),
    ]
    path, changes = f"/admin/webhooks/{made['webhook_id']}", {"url": HOOK["url"], "secret": "new"}
    assert (await root.ask("PATCH", path, json=changes)).json()["webhook"]["people"] is True
    changed = await root.ask("PATCH", path, json={**changes, "people": False})
    assert changed.json()["webhook"]["people"] is False
    await root.send(root.address)
    assert len(stage.receiver.got) == 2
    assert await stage.rows.find(WORK, "") == []


async def test_a_call_is_repeated_until_it_succeeds_or_makes_no_sense(stage: Stage, root: Person) -> None:
    await root.post("/admin/webhooks", HOOK)
    stage.receiver.answers = [500, None, 429, 200, 404]
    for count in (1, 2, 3):
        if count == 1:
            await root.send(f"claude@team@{HOST}")
        ((event_id, text),) = await stage.rows.find(WORK, "")
        assert (Call.read(text).attempt, len(stage.receiver.got)) == (count, count)
        await stage.host.resume()  # it isn't due yet
        assert len(stage.receiver.got) == count
        await make_due(stage)
        await stage.host.resume()
    assert {headers["X-MAIL-Event-Id"] for _, headers, _ in stage.receiver.got} == {event_id}
    assert await stage.rows.find(WORK, "") == []
    await root.send(f"claude@team@{HOST}")
    assert await stage.rows.find(WORK, "") == []
    stage.receiver.answers = [500] * 7
    await root.send(f"claude@team@{HOST}")
    for _ in range(7):
        await make_due(stage)
        await stage.host.resume()
    assert await stage.rows.find(WORK, "") == []
    assert len(stage.receiver.got) == 4 + 1 + 6


async def test_the_calls_of_a_deleted_webhook_end(stage: Stage, root: Person) -> None:
    webhook = (await root.post("/admin/webhooks", HOOK)).json()["webhook"]
    stage.receiver.answers = [500]
    await root.send(f"claude@team@{HOST}")
    await root.ask("DELETE", f"/admin/webhooks/{webhook['webhook_id']}")
    await make_due(stage)
    await stage.host.resume()
    assert len(stage.receiver.got) == 1
    assert await stage.rows.find(WORK, "") == []


# ----------------------------------------------------------------------------------------------------------- deletion


async def stored(stage: Stage, message_id: str) -> bool:
    return bool(await stage.rows.read((MESSAGES, message_id)))


async def discard(person: Person, message_id: str) -> None:
    """Delete a message of the inbox for good."""
    assert (await person.ask("DELETE", f"/inbox/{message_id}")).status_code == 200
    assert (await person.ask("DELETE", f"/trash/{message_id}")).status_code == 200


async def test_the_text_of_a_message_is_deleted_with_its_last_entry(
    stage: Stage, people: list[Person], root: Person
) -> None:
    sender, *others = people[:4]
    sent = (await sender.send(*(person.address for person in others)))["message_id"]
    await asyncio.gather(*(discard(person, sent) for person in others))
    assert await stored(stage, sent)
    assert (await sender.get(f"/outbox/{sent}")).status_code == 200
    assert (await root.ask("DELETE", "/admin/users/p0")).status_code == 200
    assert not await stored(stage, sent)
    assert await stage.rows.find(WORK, "") == []

    failed = await others[0].send(f"user:nobody@{HOST}")
    (notice,) = [entry["message_id"] for entry in await others[0].box("inbox")]
    await others[0].ask("DELETE", f"/inbox/{notice}")
    assert (await others[0].post("/trash/clear")).json()["entries"][0]["message_id"] == notice
    assert not await stored(stage, notice)
    assert await stored(stage, failed["message_id"])


async def test_a_message_that_all_have_deleted_does_not_come_again(
    stage: Stage, people: list[Person], root: Person
) -> None:
    await root.post("/admin/daemons", {"worker_name": "night", "daemon_password": "pw"})
    daemon = await stage.log_in(f"daemon:night@{HOST}", "pw")
    message = {
        "mail_version": "2.0", "message_id": str(uuid4()), "sender": "user:eve@elsewhere.test",
        "recipients": [people[0].address], "subject": "Tea", "body": "At four?", "tags": [],
        "sent_at": "2026-01-01T00:00:00Z", "reply_to": None, "metadata": {},
    }  # fmt: skip
    for _ in range(2):
        answer = await daemon.post("/daemon/deliver/remote", {"messages": [message]})
        assert answer.status_code == 200
        if await people[0].box("inbox"):
            await discard(people[0], str(message["message_id"]))
    assert await people[0].box("inbox") == []
    assert not await stored(stage, str(message["message_id"]))


async def test_an_agent_that_runs_elsewhere_is_forgotten_as_the_caller_of_its_tasks(
    stage: Stage, people: list[Person], root: Person
) -> None:
    claude = await stage.log_in(f"claude@team@{HOST}", "pw")
    await claude.post("/lists/tea@team/subscribe")
    assert await stage.host.forget(f"user:claude/team/{HOST}")
    assert (await claude.get("/inbox")).status_code == 401
    members = (await root.get("/lists/tea@team")).json()["mail_list"]["members"]
    assert members == [person.address for person in people]


async def test_a_caller_is_forgotten_with_boxes_and_memberships(stage: Stage, people: list[Person]) -> None:
    await people[1].send(people[0].address)
    account = (await stage.host.accounts.find("user:p0"))["user:p0"]
    woken: list[str] = []

    async def wake(name: str, _seconds: float) -> None:
        woken.append(name)

    given = (stage.rows, stage.server.records, stage.server.rig.clock, stage.receiver, HOST)
    function = MailHost(*given, wake=wake)
    assert not await function.forget("user:p0")  # another process has to empty the boxes
    assert woken == [account.purge]
    assert (
        await people[0].get("/auth/whoami")
    ).status_code == 200  # the key is still valid, for another account
    assert await people[0].box("inbox") == []
    await function.work(woken[0])
    assert (await stage.rows.page(box("inbox", account.box), limit=1)).total == 0
    assert await function.forget("user:p0") is False  # the other account
    await function.work(woken[1])
    assert await function.forget("user:p0")
    members = (await people[1].get("/lists/tea@team")).json()["mail_list"]["members"]
    assert members == [person.address for person in people[1:]]
