"""MAIL 2.0: what is not valid, who may do what, and answers that no store makes different."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import ANY
from uuid import uuid4

import pytest
from support.engines.adapters import SQLiteAdapter
from support.mail2 import HOST, NEW_LIST, Person, Stage

from mail.adapters.sqlite.database import SQLiteDatabase
from mail.core.task.documents import IN_MEMORY
from mail.core.task.rows import Write
from mail.errors import BadRequest, PeerUnavailable
from mail.http.account import Holding
from mail.http.rates import RateLimiter
from mail.mail2 import WORK
from mail.mail2.boxes import ENTRY_BYTES, PAGE, TRIES
from mail.mail2.lists import MAX_NAMED, READ_AT_ONCE
from mail.mail2.records import Delivery, DraftRow, Message, Undelivered, Work
from mail.mail2.remotes import REASON_LENGTH


@pytest.fixture
async def stage(cheap_passwords: None) -> AsyncIterator[Stage]:
    adapter = SQLiteAdapter(IN_MEMORY)
    await adapter.open()
    async with Stage(adapter.rows) as stage:
        yield stage
    await adapter.close()


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


async def test_texts_may_have_nuls_and_any_letter(ann: Person) -> None:
    body = "a\0b\r\n\U0001f375" * 100
    sent = await ann.send(ann.address, subject="\0\n", body=body)
    assert (await ann.get(f"/inbox/{sent['message_id']}")).json()["entry"]["message"]["body"] == body
    assert (await ann.box("inbox"))[0]["body_size"] == len(body)


@pytest.mark.parametrize(
    "query",
    [{"limit": 0}, {"limit": 101}, {"offset": -1}, {"order": "up"}, {"sort_by": "size"}, {"size": 1}],
)
async def test_a_query_that_is_not_valid(ann: Person, query: dict[str, Any]) -> None:
    answer = await ann.get("/inbox", **query)
    assert answer.status_code == 422
    (problem,) = detail(answer)
    assert {"type", "loc", "msg", "input"} <= problem.keys()
    assert problem["loc"] == ["query", next(iter(query))]


async def test_an_export_that_is_too_large_for_a_buffered_answer_says_what_to_do(stage: Stage) -> None:
    async with Stage(stage.rows, max_answer_bytes=50_000) as buffered:
        ann = await buffered.person("ann")
        await ann.draft(body="x" * 60_000)
        answer = await ann.get("/export")
    assert answer.status_code == 413
    assert "read the boxes in pages" in detail(answer)


async def test_what_is_read_at_once_is_accounted_for(ann: Person, monkeypatch: pytest.MonkeyPatch) -> None:
    await ann.draft(tags=["tea"])
    sizes, wait = list[int](), Holding.wait

    async def note(holding: Holding, size: int, seconds: float | None = None) -> bool:
        sizes.append(size)
        return await wait(holding, size, seconds)

    monkeypatch.setattr(Holding, "wait", note)
    assert len(await ann.box("drafts", limit=1)) == 1
    assert len(await ann.box("drafts", limit=1, tag="tea")) == 1
    assert (await ann.get("/export")).status_code == 200
    assert sizes == [ENTRY_BYTES, PAGE * ENTRY_BYTES, PAGE * ENTRY_BYTES]


async def test_a_page_of_an_inbox_costs_three_statements(
    ann: Person, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two say who asks. A send costs five, and its commit."""
    statements, execute = list[str](), SQLiteDatabase.execute

    def note(database: SQLiteDatabase, statement: Any, *values: Any) -> Any:
        statements.append(statement)
        return execute(database, statement, *values)

    draft = await ann.draft()
    monkeypatch.setattr(SQLiteDatabase, "execute", note)
    assert (await ann.post(f"/drafts/{draft}/send", {"recipients": [bob.address]})).status_code == 200
    assert len([each for each in statements if "FROM rows" in each or "FROM documents" in each]) == 5
    statements.clear()
    assert await bob.subjects() == ["Tea"]
    assert len(statements) == 3, statements


async def test_accounts_have_limits_of_their_own(
    stage: Stage, ann: Person, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.server.service, "rates", RateLimiter(0.01, 2))
    answers = [await ann.get("/inbox") for _ in range(3)]
    assert [each.status_code for each in answers] == [200, 200, 429]
    assert int(answers[2].headers["retry-after"]) > 0
    assert (await bob.get("/inbox")).status_code == 200


async def test_drafts_have_no_time_of_sending(ann: Person) -> None:
    answer = await ann.get("/drafts", sort_by="sent_at")
    assert (answer.status_code, type(detail(answer))) == (422, str)


@pytest.mark.parametrize(
    ("path", "body", "loc"),
    [
        ("/drafts", {"subject": "", "body": "b"}, ["body", "subject"]),
        ("/drafts", {"subject": "s" * 257, "body": "b"}, ["body", "subject"]),
        ("/drafts", {"subject": "s", "body": "b" * 65_536}, ["body", "body"]),
        ("/drafts", {"subject": "s"}, ["body", "body"]),
        ("/drafts", {"subject": "s", "body": "b", "tags": ["No"]}, ["body", "tags", 0]),
        ("/drafts", {"subject": "s", "body": "b", "reply_to": "x"}, ["body", "reply_to"]),
        ("/drafts/x/send", {"recipients": []}, ["body", "recipients"]),
        ("/drafts/x/send", {"recipients": ["agent@swarm"]}, ["body", "recipients", 0]),
        ("/drafts/x/send", {"recipients": [f"user:ann@{HOST}\n"]}, ["body", "recipients", 0]),
    ],
)
async def test_a_body_that_is_not_valid(ann: Person, path: str, body: Any, loc: list[Any]) -> None:
    answer = await ann.post(path, body)
    assert answer.status_code == 422
    assert [problem["loc"] for problem in detail(answer)] == [loc]


async def test_the_server_names_its_protocol_and_its_health(stage: Stage) -> None:
    for path in ("", "/"):
        answer = (await stage.anonymous("GET", path)).json()
        assert (answer["protocol_name"], answer["protocol_version"]) == ("mail", "2.0")
        assert answer["uptime"] >= 0
    assert (await stage.anonymous("GET", "/health")).json() == {"status": "ok"}


async def test_errors_are_those_of_the_protocol(stage: Stage, ann: Person) -> None:
    for method, path, status, text in (
        ("GET", "/nothing", 404, "Not Found"),
        ("PUT", "/inbox", 405, "Method Not Allowed"),
        ("HEAD", "/inbox", 405, None),
        ("OPTIONS", "/inbox", 405, "Method Not Allowed"),
        ("GET", "/inbox/x", 404, "there is no 'x' in this box"),
        ("GET", "/swarms/A_B", 422, "'A_B' is not the name of a swarm"),
        ("GET", "/admin/users", 401, "could not validate credentials"),
    ):
        answer = await ann.ask(method, path)
        assert answer.status_code == status, path
        assert text is None or detail(answer) == text
    refused = await stage.anonymous("GET", "/inbox")
    assert (refused.status_code, detail(refused)) == (401, "could not validate credentials")
    assert refused.headers["www-authenticate"] == "Bearer"
    is_json = {"Content-Type": "application/json"}
    malformed = await ann.ask("POST", "/drafts", content=b"{no", headers=is_json)
    assert (malformed.status_code, detail(malformed)[0]["type"]) == (422, "json_invalid")
    surrogate = await ann.ask(
        "POST", "/drafts", content=b'{"subject": "\\ud800", "body": "b"}', headers=is_json
    )
    assert (surrogate.status_code, detail(surrogate)[0]["loc"]) == (422, ["body", "subject"])
    assert (await stage.anonymous("POST", "/drafts", content=b"{no", headers=is_json)).status_code == 401


async def test_an_account_tells_who_it_is(stage: Stage, ann: Person, root: Person) -> None:
    for person, expected in (
        (ann, {"ua_type": "user", "user_id": "ann", "host": HOST}),
        (root, {"ua_type": "admin", "admin_id": "root", "host": HOST}),
    ):
        answer = (await person.get("/auth/whoami")).json()
        assert answer == {"user_agent": {"user_agent": expected}, "metadata": {}}


async def test_a_login_needs_a_name_and_a_password(stage: Stage) -> None:
    for form in ({"username": "x"}, {"username": "x", "password": ""}, {"password": "x"}):
        answer = await stage.anonymous("POST", "/auth/token", data=form)
        assert answer.status_code == 422
        assert [problem["type"] for problem in detail(answer)] == ["missing"]
    answer = await stage.token("x", "x", grant_type="code")
    assert (answer.status_code, detail(answer)[0]["loc"]) == (422, ["body", "grant_type"])


async def test_lists_are_managed_by_admins(ann: Person, bob: Person, root: Person) -> None:
    made = (await root.post("/admin/lists", NEW_LIST)).json()["mail_list"]
    assert (await root.post("/admin/lists", NEW_LIST)).status_code == 409
    for path in ("/lists/tea@team", "/lists/tea%40team", f"/lists/list:tea@team@{HOST}"):
        assert (await ann.get(path)).json()["mail_list"] == made
    assert (
        (await root.get("/admin/lists")).json()["lists"]
        == (await ann.get("/lists")).json()["lists"]
        == [made]
    )
    for path, status in (
        ("/lists/none@team", 404),
        ("/lists/tea", 422),
        ("/lists/tea@team@elsewhere.test", 422),
    ):
        assert (await ann.get(path)).status_code == status
    members = "/admin/lists/tea@team/members"
    assert (await root.post(members, {"member_address": bob.address})).json()["mail_list"]["members"] == [
        bob.address
    ]
    assert (await root.ask("DELETE", f"{members}/{bob.address}")).json()["mail_list"]["members"] == []
    for field, word, status in (
        ("visibility", "hidden", 422),
        ("send_policy", "x", 422),
    ):
        for answer in (
            await root.ask("PATCH", "/admin/lists/tea@team", json={"policy": {field: word}}),
            await root.post("/admin/lists", {**NEW_LIST, "name": "other", "policy": {field: word}}),
        ):
            assert answer.status_code == status
    assert (await root.ask("PATCH", "/admin/lists/tea@team", json={})).status_code == 200
    assert (await root.ask("DELETE", "/admin/lists/tea@team")).status_code == 200
    assert (await ann.get("/lists/tea@team")).status_code == 404


async def test_lists_are_read_a_few_at_a_time(ann: Person, root: Person) -> None:
    names = [f"list-{n:02}" for n in range(2 * READ_AT_ONCE + 1)]
    for count, name in enumerate(names):
        found = (await ann.get("/lists")).json()
        assert found == {"lists": [ANY] * count, "metadata": {}}
        assert [each["name"] for each in found["lists"]] == names[:count]
        await root.post("/admin/lists", {**NEW_LIST, "name": name})


async def test_a_list_with_too_many_members_gets_no_mail(
    ann: Person, bob: Person, root: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.mail2.delivery.MAX_REACHED", 3)
    members = [ann.address, bob.address]
    for name in ("a", "b"):
        await root.post("/admin/lists", {**NEW_LIST, "name": name, "members": members})
    first, second = (f"list:{name}@team@{HOST}" for name in ("a", "b"))
    await root.send(first, second)
    (entry,) = await root.box("outbox")
    assert [each["recipient"] for each in entry["undelivered"]] == [second]
    assert "more than" in entry["undelivered"][0]["reason"]
    assert len(await bob.box("inbox")) == 1


async def test_a_private_list_is_there_for_its_members(ann: Person, bob: Person, root: Person) -> None:
    policy = {"visibility": "private"}
    await root.post("/admin/lists", {**NEW_LIST, "policy": policy})  # of ann
    for path in ("/lists/tea@team", "/lists"):
        answer = await bob.get(path)
        assert (answer.status_code, answer.json().get("lists", [])) == (404 if "@" in path else 200, [])
    assert (await bob.post("/lists/tea@team/subscribe")).status_code == 404
    added = await ann.post("/lists/tea@team/members", {"member_address": bob.address})
    assert added.json()["mail_list"]["members"] == [bob.address]
    assert len((await bob.get("/lists")).json()["lists"]) == 1
    for person in (ann, root):
        assert (await person.get("/lists/tea@team")).status_code == 200


async def test_a_private_list_tells_nobody_else_who_its_members_are(
    ann: Person, bob: Person, root: Person
) -> None:
    """Those who see it read whom mail does not reach. To others it isn't there if they may not write to it."""
    tea, lost = f"list:tea@team@{HOST}", f"user:nobody@{HOST}"
    members = [bob.address, lost, "user:x@elsewhere.test"]
    await root.post("/admin/lists", {**NEW_LIST, "members": members, "policy": {"visibility": "private"}})
    await root.send(tea)
    (entry,) = await root.box("outbox")
    assert {each["recipient"] for each in entry["undelivered"]} == set(members[1:])
    guest = {"user_id": "guest", "user_password": "pw"}
    assert (await root.post("/admin/users", guest)).status_code == 200
    eve = await bob.stage.log_in(f"user:guest@{HOST}", "pw")
    await eve.send(tea)
    (entry,), (notice,) = await eve.box("outbox"), await eve.box("inbox")
    assert entry["undelivered"] == [{"recipient": tea, "reason": "it does not reach all of its members"}]
    opened = (await eve.get(f"/inbox/{notice['message_id']}")).text
    assert [each in opened for each in (bob.address, "nobody", "elsewhere")] == [False, False, False]
    assert len(await bob.box("inbox")) == 2
    policy = {"visibility": "private", "send_policy": "members-only"}
    await root.ask("PATCH", "/lists/tea@team", json={"policy": policy})
    await eve.send(tea, "list:none@team@" + HOST)
    entry, *_ = await eve.box("outbox")
    assert [each["reason"] for each in entry["undelivered"]] == ["this list does not exist"] * 2


async def test_who_joins_with_approval_waits_for_the_owner(ann: Person, bob: Person, root: Person) -> None:
    await root.post("/admin/lists", {**NEW_LIST, "policy": {"join_policy": "approval"}})
    for _ in range(2):
        asked = (await bob.post("/lists/tea@team/subscribe")).json()["mail_list"]
        assert (asked["members"], asked["pending"]) == ([], [bob.address])
    assert (await root.get("/lists/tea@team")).json()["mail_list"]["pending"] == [bob.address]
    eve = f"user:eve@{HOST}"
    for member in (bob.address, eve):
        refused = await bob.post("/lists/tea@team/members", {"member_address": member})
        assert refused.status_code == (200 if member == bob.address else 403)
    assert (await bob.get("/lists/tea@team")).json()["mail_list"]["members"] == []
    approved = await ann.post("/lists/tea@team/members", {"member_address": bob.address})
    assert approved.json()["mail_list"]["members"] == [bob.address]
    assert approved.json()["mail_list"]["pending"] == []
    assert (await bob.post("/lists/tea@team/subscribe")).json()["mail_list"]["pending"] == []
    left = (await bob.post("/lists/tea@team/unsubscribe")).json()["mail_list"]
    assert (left["members"], left["pending"]) == ([], [])
    await bob.post("/lists/tea@team/subscribe")
    assert (await ann.ask("DELETE", f"/lists/tea@team/members/{bob.address}")).status_code == 200
    assert (await bob.get("/lists/tea@team")).json()["mail_list"]["pending"] == []


async def test_the_owner_of_a_list_manages_it_and_nobody_else(ann: Person, bob: Person, root: Person) -> None:
    await root.post("/admin/lists", {**NEW_LIST, "members": [ann.address]})
    closed = {"policy": {"join_policy": "admin-only"}}
    member = f"/lists/tea@team/members/{ann.address}"
    assert (await bob.ask("DELETE", member)).status_code == 403
    changed = await ann.ask("PATCH", "/lists/tea@team", json=closed)
    assert changed.json()["mail_list"]["policy"]["join_policy"] == "admin-only"
    assert (await bob.post("/lists/tea@team/subscribe")).status_code == 403
    assert (await ann.ask("DELETE", member)).json()["mail_list"]["members"] == []
    assert (await ann.ask("DELETE", "/lists/tea@team")).status_code == 200
    assert (await ann.get("/lists/tea@team")).status_code == 404


@pytest.mark.parametrize(("policy", "may"), [("members-only", "ann bob root"), ("admin-only", "ann root")])
async def test_who_may_write_to_a_list(
    stage: Stage, ann: Person, bob: Person, root: Person, policy: str, may: str
) -> None:
    await root.post("/admin/lists", {**NEW_LIST, "members": [bob.address], "policy": {"send_policy": policy}})
    eve = await stage.person("eve")
    for name, person in (("ann", ann), ("bob", bob), ("root", root), ("eve", eve)):
        await person.send(f"list:tea@team@{HOST}", subject=name)
        (entry,) = await person.box("outbox")
        assert (entry["delivered_at"] is not None) == (name in may.split()), name
    (notice,) = await eve.box("inbox")
    opened = (await eve.get(f"/inbox/{notice['message_id']}")).json()["entry"]["message"]
    assert "the policy of this list doesn't allow" in opened["body"]
    assert [each for each in await bob.subjects() if "Undelivered" not in each] == may.split()[::-1]


async def test_swarms(ann: Person, root: Person) -> None:
    body = {"name": "team", "description": "Tea makers", "keywords": ["tea"]}
    made = {"swarm": {**body, "agents": [], "metadata": {}}, "metadata": {}}
    assert (await root.post("/admin/swarms", {"name": "team"})).status_code == 422
    assert (await root.post("/admin/swarms", body)).json() == made
    assert (await root.post("/admin/swarms", body)).status_code == 409
    await root.post("/admin/agents", {"agent_name": "claude", "swarm_name": "team", "agent_password": "pw"})
    assert (await ann.get("/swarms")).json() == {"swarms": [{**body, "num_agents": 1}], "metadata": {}}
    assert len((await ann.get("/swarms/team")).json()["swarm"]["agents"]) == 1
    assert (await ann.get("/swarms/team/health")).json() == {"status": "ok"}
    assert (await root.ask("DELETE", "/admin/swarms/team")).json()["swarm"]["name"] == "team"
    for path in ("/swarms/team", "/swarms/team/health"):
        assert (await ann.get(path)).status_code == 404


async def test_what_is_done_to_accounts_is_audited(stage: Stage) -> None:
    """Of the logins, those that fail, once an hour for each account and address."""
    root = await stage.person("root", "admin")
    body = {"user_id": "eve", "user_password": "first"}
    assert (await root.post("/admin/users", body)).status_code == 200
    assert (await root.post("/admin/users", body)).status_code == 409
    eve = f"user:eve@{HOST}"
    for password in ("wrong", "wrong", "other"):
        assert (await stage.token(eve, password)).status_code == 401
    assert (await stage.token(f"user:nobody@{HOST}", "wrong")).status_code == 401
    agent = {"agent_name": "claude", "swarm_name": "team", "agent_password": "first"}
    assert (await root.post("/admin/agents", agent)).status_code == 200
    assert (await stage.token(f"claude@team@{HOST}", "wrong")).status_code == 401
    assert (await stage.token("nonsense", "wrong")).status_code == 401
    guest = await stage.log_in(eve, "first")
    new = {"current_password": "first", "new_password": "second"}
    assert (await guest.post("/auth/password/reset", new)).status_code == 200
    assert (await root.ask("DELETE", "/admin/users/eve")).status_code == 200
    acts = [
        (each.act, each.by.rpartition("@")[0], each.on, each.outcome)
        for each in await stage.server.records.acts(limit=20)
    ]
    assert acts[::-1] == [
        ("create account", "admin:root", "user:eve", "done"),
        ("create account", "admin:root", "user:eve", "refused"),
        ("log in", "user:eve", "user:eve", "refused"),
        ("create account", "admin:root", "claude@team", "done"),
        ("log in", f"user:claude/team/{HOST}", "claude@team", "refused"),
        ("change password", "user:eve", "user:eve", "done"),
        ("delete account", "admin:root", "user:eve", "done"),
    ]


async def in_a_browser(stage: Stage, person: Person) -> Person:
    """The same person, signed in by a link."""
    made = await stage.server.client.post(
        "/sign-in-links", headers={"Authorization": f"Bearer {person.token}"}
    )
    session = await stage.server.client.post("/sign-in", json={"code": made.json()["code"]})
    return Person(stage, session.json()["token"], person.address)


async def test_a_session_of_a_browser_makes_no_accounts(stage: Stage, root: Person) -> None:
    browser = await in_a_browser(stage, root)
    made = await browser.post("/admin/users", {"user_id": "eve", "user_password": "x"})
    assert (made.status_code, "mail-admin" in detail(made)) == (403, True)
    assert (await browser.get("/admin/users")).status_code == 200


async def test_a_session_of_a_browser_manages_only_own_lists_and_reads_no_secret(
    stage: Stage, root: Person, ann: Person
) -> None:
    await root.post("/admin/lists", NEW_LIST)
    await root.post("/admin/lists", {**NEW_LIST, "name": "secret", "policy": {"visibility": "private"}})
    hook = {"url": "https://x.example/h", "events": ["mail.delivered"], "secret": "S3CRET"}
    made = (await root.post("/admin/webhooks", hook)).json()["webhook"]["webhook_id"]
    browser = await in_a_browser(stage, root)
    member = {"member_address": root.address}
    for path in ("/admin/lists/tea@team", "/lists/tea@team"):
        tried = [
            await browser.get(path),
            await browser.ask("PATCH", path, json={"policy": {}}),
            await browser.post(f"{path}/members", {"member_address": f"user:eve@{HOST}"}),
            await browser.ask("DELETE", f"{path}/members/{ann.address}"),
            await browser.ask("DELETE", path),
        ]
        assert [each.status_code for each in tried] == [200, 403, 403, 403, 403]
    assert (await browser.post("/lists/secret@team/members", member)).status_code == 404
    refused = await browser.get(f"/admin/webhooks/{made}")
    assert (refused.status_code, "S3CRET" in refused.text) == (403, False)
    assert (await root.get(f"/admin/webhooks/{made}")).json()["webhook"]["secret"] == "S3CRET"
    owner = await in_a_browser(stage, ann)
    assert (await owner.post("/lists/tea@team/members", member)).status_code == 200
    assert (await root.ask("DELETE", "/lists/tea@team")).status_code == 200


async def test_a_session_of_a_browser_is_valid_and_no_password(stage: Stage, ann: Person) -> None:
    browser = await in_a_browser(stage, ann)
    session = browser.token
    await browser.send(ann.address)
    assert await browser.subjects() == ["Tea"]
    assert (await stage.token(ann.address, session)).status_code == 401
    change = {"current_password": session, "new_password": "mine"}
    assert (await browser.post("/auth/password/reset", change)).status_code == 401
    assert (
        await browser.post("/auth/password/reset", {**change, "current_password": ann.token})
    ).status_code == 200


# -------------------------------------------------------------------------------------------------------- other hosts


class Beta:
    """The only peer, which has the host `beta`: gives the answer that it was given, and notes what it gets."""

    def __init__(self, *refused: dict[str, str]) -> None:
        self.refused = refused
        self.got: list[Any] = []

    async def known(self) -> Sequence[str]:
        return ["swarm-beta"]

    async def caller_ids(self, _swarm: str) -> Sequence[str]:
        return []

    async def metadata_of(self, _swarm: str) -> Mapping[str, Any]:
        return {"mail_host": "beta"}

    async def call(self, _swarm: str, _path: str, body: Any) -> Any:
        (message,) = body["messages"]
        self.got.append(message)
        assert len(self.got) < 50, "it never ends"
        return {"undelivered": self.refused}


ZED = "user:zed@beta"


def from_beta(*recipients: str, message_id: str | None = None) -> Message:
    """A message that the peer brings."""
    given = {"message_id": message_id or str(uuid4()), "sender": ZED, "recipients": recipients}
    return Message(**given, subject="Tea", body="At four?", sent_at="2026-01-01T00:00:00Z")


async def test_no_host_brings_what_would_be_taken_for_mail_of_this_one(stage: Stage, ann: Person) -> None:
    await ann.send(f"user:nobody@{HOST}")
    (notice,) = await ann.box("inbox")
    stage.host.deliveries.check_foreign(from_beta(ann.address), {"beta"})
    foreign = from_beta(ann.address, message_id=f"{notice['message_id'][:-1]}0")
    with pytest.raises(BadRequest, match="only this host"):
        stage.host.deliveries.check_foreign(foreign, {"beta"})


async def test_a_delivery_that_can_not_continue_is_left_for_later(stage: Stage, ann: Person) -> None:
    peer = Beta({"recipient": ZED, "reason": "no"})
    stage.host = stage.another(peers=peer)
    deliveries = stage.host.deliveries
    sent, _ = await deliveries.send(
        await stage.host.accounts.get("user:ann"), DraftRow("Tea", "At four?", "", ""), (ZED,), (), None
    )
    notice = deliveries._notify(sent, "", [Undelivered(ZED, "no")])[0]
    await stage.rows.write([Write(notice.key, notice.text)])
    assert [each async for each in deliveries.finish(sent.message_id)] == []
    assert len(peer.got) == TRIES
    assert await stage.rows.find(WORK, "")
    await stage.rows.write([Write(notice.key, None)])
    await stage.host.work(sent.message_id)
    assert await stage.rows.find(WORK, "") == []
    assert await ann.subjects() == ["Undelivered: Tea"]


async def test_a_host_that_asks_again_gets_the_same_answer(stage: Stage, ann: Person) -> None:
    late, deliveries = f"user:late@{HOST}", stage.host.deliveries
    message = from_beta(ann.address, late)
    refused = await deliveries.receive(message)
    assert [each.recipient for each in refused] == [late]
    await stage.person("late")
    assert await deliveries.receive(message) == refused
    other = replace(message, sender="user:eve@gamma", recipients=(ann.address,))
    assert [each.recipient for each in await deliveries.receive(other)] == [ann.address]
    assert await ann.subjects() == ["Tea"]


async def test_a_host_that_is_down_keeps_no_other_waiting_and_is_no_failure_of_the_work(
    stage: Stage, ann: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, both, met = Beta(), asyncio.Barrier(2), list[int]()
    stage.host = stage.another(peers=peer)

    async def call(*_arguments: Any) -> Any:
        met.append(await asyncio.wait_for(both.wait(), 5))
        raise PeerUnavailable("swarm-beta is down")

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(peer, "call", partial(refuse, PeerUnavailable("swarm-beta is down")))
            sent = await ann.send(ZED)
            await stage.host.work(sent["message_id"])
    monkeypatch.setattr(peer, "call", call)
    for name, text in await stage.rows.find(WORK, ""):
        await stage.rows.write([Write((WORK, name), replace(Delivery.read(text), due=0.0).text)])
    await stage.host.resume()
    assert sorted(met) == [0, 1]
    assert [Work.read(text).tries for _, text in await stage.rows.find(WORK, "")] == [1, 1]


async def refuse(error: Exception, *_arguments: Any) -> Any:
    raise error


async def test_what_a_host_answers_is_stored_as_far_as_it_is_about_the_message(
    stage: Stage, ann: Person
) -> None:
    others = [{"recipient": f"user:p{n}@beta", "reason": "no"} for n in range(MAX_NAMED + 9)]
    long = {"recipient": ZED, "reason": "no" * 9_000}
    stage.host = stage.another(peers=Beta(long, *others, long))
    await ann.send(ZED)
    await ann.send(ZED, "list:tea@team@beta")
    of_list, alone = (each["undelivered"] for each in await ann.box("outbox"))
    assert alone == [{"recipient": ZED, "reason": ("no" * 9_000)[:REASON_LENGTH]}]
    assert len(of_list) == 1 + MAX_NAMED


async def test_all_hosts_that_nobody_knows_are_in_one_notice(stage: Stage, ann: Person) -> None:
    peer = Beta()
    stage.host = stage.another(peers=peer)
    unknown = [f"user:{name}@host{n}" for n in range(20) for name in ("eve", "dan")]
    await ann.send(ZED, *unknown)
    (sent,) = await ann.box("outbox")
    assert {each["recipient"] for each in sent["undelivered"]} == set(unknown)
    assert sent["undelivered"][0]["reason"] == "no peer of this server has the host host0"
    assert await ann.subjects() == ["Undelivered: Tea"]
    assert len(peer.got) == 1
