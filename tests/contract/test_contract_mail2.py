"""MAIL 2.0 as its clients and daemons know it, over HTTP and on every store."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
from support.engines.adapters import StoreAdapter
from support.mail2 import HOST, NEW_LIST, Person, Stage

from mail.auth.keys import digest
from mail.mail2.boxes import ENTRY_BYTES
from mail.mail2.records import BOXES, MESSAGES, REFERENCES, box, sessions


@pytest.fixture
async def stage(adapter: StoreAdapter, cheap_passwords: None) -> AsyncIterator[Stage]:
    async with Stage(adapter.rows) as stage:
        yield stage


@pytest.fixture
async def ann(stage: Stage) -> Person:
    return await stage.person("ann")


@pytest.fixture
async def bob(stage: Stage) -> Person:
    return await stage.person("bob")


@pytest.fixture
async def root(stage: Stage) -> Person:
    return await stage.person("root", "admin")


def detail(answer: Any) -> Any:
    return answer.json()["detail"]


# ------------------------------------------------------------------------------------------------- sending and reading


async def test_a_message_is_in_both_boxes_when_it_was_sent(ann: Person, bob: Person) -> None:
    sent = await ann.send(bob.address, tags=["tea", "today"])
    assert sent == {
        "mail_version": "2.0", "message_id": sent["message_id"], "reply_to": None, "sender": ann.address,
        "recipients": [bob.address], "subject": "Tea", "body": "At four?", "tags": ["tea", "today"],
        "sent_at": sent["sent_at"], "metadata": {},
    }  # fmt: skip
    assert sent["sent_at"].endswith("Z")
    (entry,) = await bob.box("inbox")
    expected = {
        "message_id": sent["message_id"], "sender": ann.address, "subject": "Tea", "body_size": 8,
        "received_at": sent["sent_at"], "delivered_by": f"daemon:mail@{HOST}", "is_read": False,
    }  # fmt: skip
    assert expected.items() <= entry.items()
    (entry,) = await ann.box("outbox")
    expected = {
        "message_id": sent["message_id"], "recipients": [bob.address], "subject": "Tea", "body_size": 8,
        "sent_at": sent["sent_at"], "delivered_at": sent["sent_at"], "delivered_by": f"daemon:mail@{HOST}",
    }  # fmt: skip
    assert expected.items() <= entry.items()


async def test_an_opened_message_is_read(ann: Person, bob: Person) -> None:
    sent = await ann.send(bob.address, ann.address)
    opened = (await bob.get(f"/inbox/{sent['message_id']}")).json()
    assert opened["entry"]["message"] == sent
    assert {"received_at", "delivered_by"} <= opened["entry"].keys()
    assert opened["metadata"] == {}
    assert [entry["is_read"] for entry in await bob.box("inbox")] == [True]
    assert [entry["is_read"] for entry in await ann.box("inbox")] == [False]
    opened = (await ann.get(f"/outbox/{sent['message_id']}")).json()["entry"]
    assert (opened["message"], opened["delivered_at"]) == (sent, sent["sent_at"])


async def test_one_message_is_one_entry_however_often_its_owner_is_addressed(ann: Person) -> None:
    await ann.send(ann.address, ann.address, ann.address)
    assert await ann.subjects() == ["Tea"]


async def test_a_draft_can_be_sent_again_as_another_message(ann: Person, bob: Person) -> None:
    draft = await ann.draft(tags=["a"])
    sent = [
        (await ann.post(f"/drafts/{draft}/send", {"recipients": [bob.address], "tags": tags})).json()[
            "message"
        ]
        for tags in (["b", "a"], None)
    ]
    assert [each["tags"] for each in sent] == [["a", "b"], ["a"]]
    assert sent[0]["message_id"] != sent[1]["message_id"]
    assert len(await bob.box("inbox")) == 2


async def test_a_reply_names_what_it_answers(ann: Person, bob: Person) -> None:
    first = await ann.send(bob.address)
    reply = await bob.send(ann.address, reply_to=first["message_id"].upper())
    assert reply["reply_to"] == first["message_id"]


async def test_a_repeated_request_with_an_idempotency_key_sends_once(ann: Person, bob: Person) -> None:
    draft = await ann.draft()
    body: dict[str, Any] = {"recipients": [bob.address]}
    first, second = [
        await ann.post(f"/drafts/{draft}/send", body, **{"Idempotency-Key": "k"}) for _ in range(2)
    ]
    assert first.json() == second.json()
    assert len(await bob.box("inbox")) == 1
    other = await ann.post(f"/drafts/{draft}/send", {"recipients": [ann.address]}, **{"Idempotency-Key": "k"})
    assert other.status_code == 422
    assert "Idempotency-Key" in detail(other)
    assert (await ann.ask("PATCH", f"/drafts/{draft}", json={"body": "At five?"})).status_code == 200
    changed = await ann.post(f"/drafts/{draft}/send", body, **{"Idempotency-Key": "k"})
    assert changed.status_code == 422
    draft = await bob.draft()
    await bob.post(f"/drafts/{draft}/send", body, **{"Idempotency-Key": "k"})
    assert len(await bob.box("inbox")) == 2


async def test_a_thread_is_what_answers_its_first_message(stage: Stage, ann: Person, bob: Person) -> None:
    """It needs no common box: each has the messages that it sent in another one than those that it got."""
    first = await ann.send(bob.address, subject="1")
    second = await bob.send(ann.address, subject="2", reply_to=first["message_id"])
    await ann.send(bob.address, subject="other")
    third = await ann.send(bob.address, subject="3", reply_to=second["message_id"])
    eve = await stage.person("eve")
    await eve.send(bob.address, subject="stranger", reply_to=first["message_id"])
    await bob.ask("DELETE", f"/inbox/{third['message_id']}")
    await bob.send(ann.address, subject="4", reply_to=third["message_id"])
    of = {"thread": first["message_id"]}
    assert [await ann.subjects(name, **of) for name in ("inbox", "outbox")] == [["4", "2"], ["3", "1"]]
    assert [await bob.subjects(name, **of) for name in ("inbox", "outbox", "trash")] == [
        ["1"],
        ["4", "2"],
        ["3"],
    ]
    assert {entry["thread"] for entry in await bob.box("inbox", **of)} == {first["message_id"]}


async def test_filters_choose_entries_and_say_where_to_continue(
    ann: Person, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(6):
        sent = await ann.send(bob.address, subject=str(n), tags=["even"] if n % 2 == 0 else ["odd", "x"])
        if n < 3:
            await bob.get(f"/inbox/{sent['message_id']}")
    assert await bob.subjects(unread="true") == ["5", "4", "3"]
    assert await bob.subjects(unread="false", tag="even", order="asc") == ["0", "2"]
    assert await ann.subjects("outbox", tag="x", limit=2) == ["5", "3"]
    assert await ann.subjects("drafts", tag="odd") == ["5", "3", "1"]
    assert [entry["tags"] for entry in await bob.box("inbox", limit=2)] == [["odd", "x"], ["even"]]

    async def metadata(**query: Any) -> Any:
        return (await bob.get("/inbox", **query)).json()["metadata"]

    first = await metadata(tag="even", limit=2)
    assert (first["total"], first["returned"], first["tag"], first["next_offset"]) == (6, 2, "even", 4)
    assert (await bob.subjects(tag="even", limit=2, offset=4)) == ["0"]
    assert (await metadata(tag="even", limit=2, offset=4))["next_offset"] is None
    monkeypatch.setattr("mail.mail2.boxes.PAGE", 2)
    monkeypatch.setattr("mail.mail2.boxes.LOOKED_AT", 4)
    assert (await metadata(tag="none"))["next_offset"] == 4
    for box_name, query in (
        ("outbox", {"unread": "true"}),
        ("drafts", {"thread": sent["message_id"]}),
        ("inbox", {"thread": "x"}),
        ("inbox", {"tag": "A"}),
    ):
        assert (await bob.get(f"/{box_name}", **query)).status_code == 422


async def test_the_export_has_all_boxes_and_reads_nothing(
    ann: Person, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.mail2.boxes.PAGE", 2)
    sent = [await ann.send(bob.address, ann.address, subject=str(n)) for n in range(5)]
    await ann.ask("DELETE", f"/inbox/{sent[0]['message_id']}")
    answer = await ann.get("/export")
    assert answer.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in answer.text.splitlines()]
    found = [
        (line["box"], (line["entry"].get("message") or line["entry"]["draft"])["subject"]) for line in lines
    ]
    assert found == [
        *(("inbox", str(n)) for n in range(1, 5)),
        *(("outbox", str(n)) for n in range(5)),
        *(("drafts", str(n)) for n in range(5)),
        ("trash", "0"),
    ]
    assert lines[0]["entry"]["message"] == sent[1]
    assert await ann.subjects(unread="true") == ["4", "3", "2", "1"]


async def test_the_longest_message(ann: Person) -> None:
    sent = await ann.send(ann.address, subject="s" * 256, body="ü" * 65_535)
    assert len((await ann.get(f"/outbox/{sent['message_id']}")).json()["entry"]["message"]["body"]) == 65_535


# -------------------------------------------------------------------------------------------- what can't be delivered


async def test_what_can_t_be_delivered_is_not_called_delivered(ann: Person, bob: Person) -> None:
    lost = [f"user:nobody@{HOST}", "user:bob@elsewhere.test", f"list:none@team@{HOST}"]
    sent = await ann.send(bob.address, *lost)
    assert await bob.subjects() == ["Tea"]
    (entry,) = await ann.box("outbox")
    assert entry["delivered_at"] is entry["delivered_by"] is None
    assert {each["recipient"] for each in entry["undelivered"]} == set(lost)
    (notice,) = await ann.box("inbox")
    assert (notice["sender"], notice["subject"]) == (f"daemon:mail@{HOST}", "Undelivered: Tea")
    opened = (await ann.get(f"/inbox/{notice['message_id']}")).json()["entry"]["message"]
    assert opened["reply_to"] == sent["message_id"]
    assert all(each in opened["body"] for each in lost)


async def test_a_notice_can_t_be_answered(ann: Person) -> None:
    """Nor is there a notice about the answer; the outbox says that it reached nobody."""
    await ann.send(f"daemon:mail@{HOST}")
    assert await ann.subjects() == []
    (entry,) = await ann.box("outbox")
    assert [each["recipient"] for each in entry["undelivered"]] == [f"daemon:mail@{HOST}"]


async def test_a_box_has_few_enough_entries(stage: Stage, ann: Person, bob: Person) -> None:
    """As many of 64 KiB as its caller may store. A notice comes in any case, and what was sent stays sent."""
    draft = await ann.draft()
    stage.host = stage.another(caller_bytes=2 * ENTRY_BYTES)
    sent = [await ann.post(f"/drafts/{draft}/send", {"recipients": [bob.address]}) for _ in range(2)]
    refused = await ann.post(f"/drafts/{draft}/send", {"recipients": [bob.address]})
    assert (refused.status_code, detail(refused)) == (
        413,
        "the outbox of user:ann may have 2 entries; delete some",
    )
    await bob.send(bob.address)
    assert await bob.subjects() == ["Undelivered: Tea", "Tea", "Tea"]
    (entry,) = await bob.box("outbox")
    assert entry["undelivered"] == [{"recipient": bob.address, "reason": "its inbox is full"}]
    await ann.draft()
    refused = await ann.post("/drafts", {"subject": "Tea", "body": "At four?"})
    assert (refused.status_code, "drafts of user:ann" in detail(refused)) == (413, True)
    path = f"/outbox/{sent[0].json()['message']['message_id']}"
    assert (await ann.ask("DELETE", path)).json()["entry"]["message"] == sent[0].json()["message"]
    assert (await ann.get(path)).status_code == 404
    again = [
        await ann.post(f"/drafts/{draft}/send", {"recipients": [ann.address]}, **{"Idempotency-Key": "k"})
        for _ in range(2)
    ]
    assert [each.status_code for each in again] == [200, 200]
    assert await ann.subjects() == ["Tea"]


async def test_nothing_is_moved_into_a_full_box(stage: Stage, ann: Person, bob: Person) -> None:
    stage.host = stage.another(caller_bytes=ENTRY_BYTES)
    first = (await ann.send(bob.address))["message_id"]
    assert (await bob.ask("DELETE", f"/inbox/{first}")).status_code == 200
    second = (await bob.send(bob.address))["message_id"]
    full = [await bob.post(f"/trash/{first}/restore"), await bob.ask("DELETE", f"/inbox/{second}")]
    assert [(each.status_code, detail(each)) for each in full] == [
        (413, f"the {name} of user:bob may have 1 entries; delete some") for name in ("inbox", "trash")
    ]
    await bob.post("/trash/clear")
    assert (await bob.ask("DELETE", f"/inbox/{second}")).status_code == 200


async def test_hosts_are_compared_as_text(ann: Person) -> None:
    await ann.send(f"user:ann@{HOST.upper()}")
    assert await ann.subjects() == ["Undelivered: Tea"]


# -------------------------------------------------------------------------------------------------------------- boxes


async def test_a_box_has_pages_in_both_orders(ann: Person) -> None:
    for number in range(5):
        await ann.send(ann.address, subject=f"n{number}")
    assert await ann.subjects() == ["n4", "n3", "n2", "n1", "n0"]
    assert await ann.subjects(order="asc", limit=2, offset=1) == ["n1", "n2"]
    assert await ann.subjects("outbox", sort_by="sent_at", limit=1) == ["n4"]
    answer = (await ann.get("/inbox", limit=2, offset=4, sort_by="sent_at")).json()
    assert answer["metadata"] == {
        "total": 5, "returned": 1, "limit": 2, "offset": 4, "sort_by": "sent_at", "order": "desc"
    }  # fmt: skip
    beyond = (await ann.get("/inbox", offset=50)).json()
    assert (beyond["entries"], beyond["metadata"]["returned"], beyond["metadata"]["total"]) == ([], 0, 5)


async def test_a_message_moves_to_the_trash_and_back_and_is_deleted_for_good(
    ann: Person, bob: Person
) -> None:
    sent = await ann.send(bob.address)
    path = f"/inbox/{sent['message_id']}"
    removed = (await bob.ask("DELETE", path)).json()["entry"]
    assert (removed["message"], removed["received_at"]) == (sent, sent["sent_at"])
    assert (await bob.get(path)).status_code == 404
    (entry,) = await bob.box("trash")
    expected = {"message_id": sent["message_id"], "sender": ann.address, "subject": "Tea", "body_size": 8}
    assert expected.items() <= entry.items()
    assert entry["trashed_at"] > sent["sent_at"]
    in_trash = f"/trash/{sent['message_id']}"
    assert (await bob.get(in_trash)).json()["entry"] == {
        "message": sent,
        **{each: entry[each] for each in ("trashed_at", "thread")},
    }
    assert (await bob.post(f"{in_trash}/restore")).json()["entry"]["message"] == sent
    assert await bob.subjects("trash") == []
    assert (await bob.box("inbox"))[0]["is_read"] is True
    await bob.ask("DELETE", path)
    assert (await bob.ask("DELETE", in_trash)).json()["entry"]["message"] == sent
    assert [await bob.subjects(name) for name in ("inbox", "trash")] == [[], []]
    assert (await bob.ask("DELETE", in_trash)).status_code == 404
    assert (await ann.get(f"/outbox/{sent['message_id']}")).status_code == 200


async def test_the_trash_is_cleared(ann: Person) -> None:
    for number in range(3):
        sent = await ann.send(ann.address, subject=f"n{number}")
        await ann.ask("DELETE", f"/inbox/{sent['message_id']}")
    assert (await ann.get("/trash")).json()["metadata"]["total"] == 3
    cleared = (await ann.post("/trash/clear")).json()
    assert sorted(entry["subject"] for entry in cleared["entries"]) == ["n0", "n1", "n2"]
    assert await ann.box("trash") == []


async def test_a_draft_is_changed_and_deleted(ann: Person) -> None:
    draft = await ann.draft(tags=["a"])
    before = (await ann.get(f"/drafts/{draft}")).json()["entry"]
    assert before["draft"].keys() == {
        "draft_id", "subject", "body", "created_at", "updated_at", "reply_to", "tags"
    }  # fmt: skip
    assert before["sent_at"] is before["sent_by"] is None
    same = (await ann.ask("PATCH", f"/drafts/{draft}", json={"subject": None})).json()["entry"]
    assert same == before
    changed = (await ann.ask("PATCH", f"/drafts/{draft}", json={"body": "Five?", "tags": []})).json()["entry"]
    assert (changed["draft"]["subject"], changed["draft"]["body"], changed["draft"]["tags"]) == (
        "Tea",
        "Five?",
        [],
    )
    assert changed["draft"]["updated_at"] > before["draft"]["updated_at"]
    (entry,) = await ann.box("drafts")
    assert entry == {
        "draft_id": draft, "subject": "Tea", "body_size": 5, "created_at": before["draft"]["created_at"],
        "updated_at": changed["draft"]["updated_at"], "tags": [],
    }  # fmt: skip
    assert (await ann.ask("DELETE", f"/drafts/{draft}")).json()["entry"] == changed
    assert (await ann.get(f"/drafts/{draft}")).status_code == 404


async def test_what_is_another_s_is_not_there(ann: Person, bob: Person) -> None:
    draft, sent = await ann.draft(), await ann.send(ann.address)
    for path in (
        f"/drafts/{draft}",
        f"/inbox/{sent['message_id']}",
        f"/outbox/{sent['message_id']}",
        "/trash/x",
    ):
        assert (await bob.get(path)).status_code == 404
    assert (await bob.post(f"/drafts/{draft}/send", {"recipients": [bob.address]})).status_code == 404
    assert (await bob.ask("DELETE", f"/inbox/{sent['message_id']}")).status_code == 404


# -------------------------------------------------------------------------------------- tokens, roles and other errors


async def test_an_api_key_is_the_password_of_its_owner(stage: Stage, ann: Person) -> None:
    answer = await stage.token(
        ann.address, ann.token, grant_type="password", scope="", client_id="", client_secret=""
    )
    tokens = answer.json()
    assert answer.status_code == 200
    assert tokens.keys() == {"access_token", "token_type", "refresh_token", "expires_in", "metadata"}
    assert (tokens["token_type"], tokens["expires_in"]) == ("bearer", 1_800)
    assert tokens["refresh_token"].startswith("rt_")
    cookie = answer.headers["set-cookie"]
    assert all(
        part in cookie for part in ("mail_refresh_token=", "HttpOnly", "SameSite=strict", "Path=/v2/auth")
    )
    session = Person(stage, tokens["access_token"], ann.address)
    assert (await session.get("/inbox")).status_code == 200
    await stage.server.records.remove_token(digest(ann.token))
    assert (await session.get("/inbox")).status_code == 401


async def test_a_first_login_with_an_api_key_makes_the_account(stage: Stage) -> None:
    key = await stage.server.key("user", "new")
    assert (await stage.token(f"user:new@{HOST}", key)).status_code == 200
    for address in (f"admin:new@{HOST}", "user:new@other.test", "user:new", f"user:old@{HOST}"):
        answer = await stage.token(address, key)
        assert (answer.status_code, detail(answer)) == (401, "incorrect username or password")


async def test_a_refresh_token_is_used_once(stage: Stage, ann: Person) -> None:
    first = (await stage.token(ann.address, ann.token)).json()
    second = await stage.anonymous("POST", "/auth/refresh", json={"refresh_token": first["refresh_token"]})
    assert second.status_code == 200
    for tokens in (first, second.json()):
        assert (await Person(stage, tokens["access_token"], "").get("/auth/whoami")).status_code == 200
    cookie = f"mail_refresh_token={second.json()['refresh_token']}"
    third = await stage.anonymous("POST", "/auth/refresh", headers={"Cookie": cookie})
    assert third.status_code == 200
    used = await stage.anonymous("POST", "/auth/refresh", json={"refresh_token": first["refresh_token"]})
    assert (used.status_code, detail(used)) == (401, "could not validate refresh token")
    latest = third.json()
    assert (await Person(stage, latest["access_token"], "").get("/auth/whoami")).status_code == 401
    again = await stage.anonymous("POST", "/auth/refresh", json={"refresh_token": latest["refresh_token"]})
    assert again.status_code == 401


async def test_of_simultaneous_refreshes_one_succeeds(stage: Stage, ann: Person) -> None:
    tokens = (await stage.token(ann.address, ann.token)).json()
    given = {"refresh_token": tokens["refresh_token"]}
    answers = await asyncio.gather(*(stage.anonymous("POST", "/auth/refresh", json=given) for _ in range(6)))
    assert sorted(answer.status_code for answer in answers)[:2] == [200, 401]


async def test_a_logout_ends_a_session_and_always_succeeds(stage: Stage, ann: Person) -> None:
    tokens = (await stage.token(ann.address, ann.token)).json()
    session = Person(stage, tokens["access_token"], ann.address)
    given = {"refresh_token": tokens["refresh_token"]}
    for _ in range(2):
        answer = await stage.anonymous("POST", "/auth/logout", json=given)
        assert (answer.status_code, answer.json()["status"]) == (200, "success")
    assert (await session.get("/inbox")).status_code == 401
    assert (await stage.anonymous("POST", "/auth/refresh", json=given)).status_code == 401
    assert (await stage.anonymous("POST", "/auth/logout")).status_code == 200


async def test_a_new_password_ends_all_sessions(stage: Stage, ann: Person) -> None:
    session = await stage.log_in(ann.address, ann.token)
    wrong = await session.post("/auth/password/reset", {"current_password": "no", "new_password": "secret"})
    assert (wrong.status_code, detail(wrong)) == (401, "incorrect username or password")
    body = {"current_password": ann.token, "new_password": "secret"}
    assert (await session.post("/auth/password/reset", body)).json()["status"] == "success"
    assert (await session.get("/inbox")).status_code == 401
    assert (await stage.token(ann.address, "wrong")).status_code == 401
    session = await stage.log_in(ann.address, "secret")
    assert (await session.get("/inbox")).status_code == 200
    empty = await session.post("/auth/password/reset", {"current_password": "secret", "new_password": ""})
    assert empty.status_code == 422


# ----------------------------------------------------------------------------------------------------------- accounts


async def test_accounts_are_made_listed_and_deleted(stage: Stage, root: Person) -> None:
    for kind, body, name, expected in (
        ("user", {"user_id": "eve", "user_password": "pw"}, "eve", {"user_id": "eve"}),
        ("daemon", {"worker_name": "d-1", "daemon_password": "pw"}, "d-1", {"worker_name": "d-1"}),
        (
            "agent", {"agent_name": "claude", "swarm_name": "team", "agent_password": "pw"}, "claude@team",
            {"name": "claude", "swarm": "team"},
        ),
    ):  # fmt: skip
        shown = {kind: {"ua_type": kind, **expected, "host": HOST}, "metadata": {}}
        assert (await root.post(f"/admin/{kind}s", body)).json() == shown
        taken = await root.post(f"/admin/{kind}s", body)
        assert taken.status_code == 409
        assert name in (await root.get(f"/admin/{kind}s")).json()[f"{kind}s"]
        assert (await root.get(f"/admin/{kind}s/{name}")).json() == shown
        if kind == "agent":
            assert (await root.get(f"/admin/agents/{name}@{HOST}")).json() == shown
            assert (await root.get("/admin/agents/claude%40team")).json() == shown
        assert (await root.ask("DELETE", f"/admin/{kind}s/{name}")).json() == shown
        assert (await root.get(f"/admin/{kind}s/{name}")).status_code == 404
        assert (await root.get(f"/admin/{kind}s/No_Slug")).status_code == 422
    assert (
        await root.post("/admin/daemons", {"worker_name": "mail", "daemon_password": "pw"})
    ).status_code == 409


async def test_a_deleted_account_is_gone_with_its_sessions_and_boxes(
    stage: Stage, root: Person, ann: Person
) -> None:
    body = {"user_id": "eve", "user_password": "pw"}
    await root.post("/admin/users", body)
    eve = await stage.log_in(f"user:eve@{HOST}", "pw")
    await ann.send(eve.address)
    await eve.send(ann.address, eve.address)
    await eve.draft()
    account = (await stage.host.accounts.find("user:eve"))["user:eve"]
    await root.ask("DELETE", "/admin/users/eve")
    assert (await eve.get("/inbox")).status_code == 401
    assert [(await stage.rows.page(box(name, account.box), limit=1)).total for name in BOXES] == [0, 0, 0, 0]
    assert await stage.rows.find(sessions(account.box), "") == []
    assert len(await ann.box("inbox")) == 1
    await root.post("/admin/users", body)
    assert (await eve.get("/inbox")).status_code == 401
    again = await stage.log_in(eve.address, "pw")
    assert [await again.box(name) for name in BOXES] == [[], [], [], []]


# -------------------------------------------------------------------------------------------------------------- lists


async def test_mail_to_a_list_goes_once_to_each_member(ann: Person, bob: Person, root: Person) -> None:
    made = (await root.post("/admin/lists", {**NEW_LIST, "members": [ann.address, ann.address]})).json()[
        "mail_list"
    ]
    policy = {"visibility": "public", "join_policy": "open", "send_policy": "open"}
    expected = {
        "list_type": "list", "name": "tea", "swarm": "team", "host": HOST, "owner": ann.address,
        "members": [ann.address], "policy": policy, "metadata": {},
    }  # fmt: skip
    assert expected.items() <= made.items()
    assert {"list_id", "created_at", "updated_at"} <= made.keys()
    joined = (await bob.post("/lists/tea@team/subscribe")).json()["mail_list"]
    assert joined["members"] == [ann.address, bob.address]
    assert (await bob.post(f"/lists/list:tea@team@{HOST}/subscribe")).json()["mail_list"] == joined
    await bob.send(f"list:tea@team@{HOST}", ann.address)
    assert [await person.subjects() for person in (ann, bob)] == [["Tea"], ["Tea"]]
    assert (await ann.box("inbox"))[0]["delivered_by"] == f"daemon:mail@{HOST}"
    assert [each["delivered_at"] is None for each in await bob.box("outbox")] == [False]
    left = (await bob.post("/lists/tea@team/unsubscribe")).json()["mail_list"]
    assert left["members"] == [ann.address]
    await ann.send(f"list:tea@team@{HOST}", subject="Milk")
    assert await bob.subjects() == ["Tea"]


async def test_members_without_a_box_here_are_named_to_the_sender(ann: Person, root: Person) -> None:
    members = [ann.address, f"list:tea@team@{HOST}", "user:x@elsewhere.test", f"user:none@{HOST}"]
    await root.post("/admin/lists", {**NEW_LIST, "members": members})
    await ann.send(f"list:tea@team@{HOST}")
    (entry,) = await ann.box("outbox")
    assert [each["recipient"] for each in entry["undelivered"]] == members[1:]
    assert sorted(await ann.subjects()) == ["Tea", "Undelivered: Tea"]


async def test_a_new_account_has_no_rights_of_a_deleted_one(
    stage: Stage, ann: Person, bob: Person, root: Person
) -> None:
    """Neither as an owner, nor as a member, nor as one who has asked to become a member."""
    await root.post(
        "/admin/lists", {**NEW_LIST, "members": [bob.address], "policy": {"visibility": "private"}}
    )
    asking = {"name": "asking", "policy": {"join_policy": "approval"}}
    await root.post("/admin/lists", {**NEW_LIST, **asking})
    await bob.post("/lists/asking@team/subscribe")
    for name in ("ann", "bob"):
        assert (await root.ask("DELETE", f"/admin/users/{name}")).status_code == 200
    for person in (ann, bob):
        assert (await person.get("/lists/tea@team")).status_code == 404
        refused = await person.ask("PATCH", "/lists/asking@team", json={"policy": {}})
        assert refused.status_code == 403
    for name in ("tea", "asking"):
        found = (await root.get(f"/lists/{name}@team")).json()["mail_list"]
        assert (found["owner"], found["members"], found["pending"]) == (f"daemon:mail@{HOST}", [], [])


async def test_the_owner_gets_a_notice_of_who_asks_to_join(ann: Person, bob: Person, root: Person) -> None:
    """One a day, however often somebody asks."""
    await root.post("/admin/lists", {**NEW_LIST, "policy": {"join_policy": "approval"}})
    for path in ("subscribe", "subscribe", "unsubscribe", "subscribe"):
        assert (await bob.post(f"/lists/tea@team/{path}")).status_code == 200
    (notice,) = await ann.box("inbox")
    assert notice["subject"] == f"{bob.address} asks to join list:tea@team@{HOST}"
    assert notice["sender"] == f"daemon:mail@{HOST}"
    await root.post("/admin/lists", {**NEW_LIST, "name": "none", "owner": f"user:nobody@{HOST}"})
    await root.ask("PATCH", "/lists/none@team", json={"policy": {"join_policy": "approval"}})
    assert (await bob.post("/lists/none@team/subscribe")).status_code == 200


@pytest.mark.soak(on=("postgres",))
async def test_a_list_has_so_many_members_as_fit_into_a_row(ann: Person, bob: Person, root: Person) -> None:
    """The addresses of the most members may have 60 bytes each."""
    names = [f"{number:024}" for number in range(5_000)]
    for name, count, status in (("x", 5_000, 422), ("", 5_001, 422), ("", 4_999, 200)):
        members = [f"{name}{each}@{'s' * 25}@{HOST}" for each in (*names, "n" * 24)[:count]]
        made = await root.post("/admin/lists", {**NEW_LIST, "members": members})
        assert made.status_code == status, made.text[:200]
    assert (await root.post("/lists/tea@team/subscribe")).status_code == 200
    refused = await bob.post("/lists/tea@team/subscribe")
    assert (refused.status_code, "at most 5000 members" in detail(refused)) == (422, True)
    sent = await bob.send(f"list:tea@team@{HOST}")
    (entry,) = await bob.box("outbox")
    assert (entry["message_id"], entry["delivered_at"]) == (sent["message_id"], None)
    assert len(entry["undelivered"]) == 100 + 1


async def test_of_simultaneous_subscriptions_none_is_lost(stage: Stage, root: Person) -> None:
    await root.post("/admin/lists", NEW_LIST)
    people = [await stage.person(f"p{number}") for number in range(6)]
    await asyncio.gather(*(person.post("/lists/tea@team/subscribe") for person in people))
    members = (await root.get("/lists/tea@team")).json()["mail_list"]["members"]
    assert sorted(members) == sorted(person.address for person in people)


# ------------------------------------------------------------------------------------------------------------- swarms


# ------------------------------------------------------------------------------------------------------------ daemons


@pytest.fixture
async def daemon(stage: Stage, root: Person) -> Person:
    await root.post("/admin/daemons", {"worker_name": "d", "daemon_password": "pw"})
    answer = await stage.token(f"daemon:d@{HOST}", "pw")
    assert answer.json()["refresh_token"] is None
    return Person(stage, answer.json()["access_token"], f"daemon:d@{HOST}")


async def test_a_daemon_finds_all_mail_delivered(ann: Person, bob: Person, daemon: Person) -> None:
    sent = await ann.send(bob.address)
    before = await ann.box("outbox")
    assert (await daemon.post("/daemon/message-buffer/clear")).json()["message_ids"] == []
    await bob.ask("DELETE", f"/inbox/{sent['message_id']}")
    await bob.ask("DELETE", f"/trash/{sent['message_id']}")
    given = {"message_ids": [sent["message_id"], str(uuid4()), sent["message_id"]]}
    (known,) = (await daemon.post("/daemon/deliver/local", given)).json()["messages"]
    assert known == {
        "message_id": sent["message_id"], "sender": ann.address, "recipients": [bob.address], "subject": "Tea",
        "body_size": 8, "sent_at": sent["sent_at"],
    }  # fmt: skip
    assert await ann.box("outbox") == before
    assert [await bob.box(name) for name in ("inbox", "trash")] == [[], []]
    assert (await daemon.post("/daemon/deliver/local", {"message_ids": ["x"]})).status_code == 422


async def test_a_daemon_brings_mail_of_other_hosts_once(ann: Person, daemon: Person) -> None:
    message = {
        "mail_version": "2.0", "message_id": str(uuid4()), "reply_to": None, "sender": "user:zoe@elsewhere.test",
        "recipients": [ann.address, "user:y@third.test", f"user:none@{HOST}"], "subject": "Far", "body": "Hello",
        "tags": [], "sent_at": "2026-06-10T12:00:00+02:00", "metadata": {"a": 1},
    }  # fmt: skip
    for _ in range(2):
        answer = (await daemon.post("/daemon/deliver/remote", {"messages": [message]})).json()
        assert [each["message_id"] for each in answer["messages"]] == [message["message_id"]]
        assert [each["recipient"] for each in answer["undelivered"]] == [f"user:none@{HOST}"]
    (entry,) = await ann.box("inbox")
    opened = (await ann.get(f"/inbox/{entry['message_id']}")).json()["entry"]["message"]
    assert opened == {**message, "sent_at": "2026-06-10T10:00:00.000000Z"}
    await ann.send(ann.address, subject="Near")
    assert await ann.subjects(sort_by="sent_at") == ["Near", "Far"]
    batch = [{**message, "message_id": str(uuid4())}, {**message, "sender": ann.address}]
    assert (await daemon.post("/daemon/deliver/remote", {"messages": batch})).status_code == 422
    assert await ann.subjects(sort_by="sent_at") == ["Near", "Far"]


async def test_mail_of_other_hosts_that_reaches_nobody_is_not_stored(stage: Stage, daemon: Person) -> None:
    message_id = str(uuid4())
    message = {
        "mail_version": "2.0", "message_id": message_id, "reply_to": None, "sender": "user:zoe@elsewhere.test",
        "recipients": [f"user:none@{HOST}"], "subject": "Far", "body": "Hello", "tags": [],
        "sent_at": "2026-06-10T12:00:00+02:00", "metadata": {},
    }  # fmt: skip
    answer = (await daemon.post("/daemon/deliver/remote", {"messages": [message]})).json()
    assert [each["recipient"] for each in answer["undelivered"]] == [f"user:none@{HOST}"]
    assert await stage.rows.read((MESSAGES, message_id), (REFERENCES, message_id)) == {}
