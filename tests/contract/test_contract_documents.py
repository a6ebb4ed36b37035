"""Documents: whatever their kind, all databases store them alike; and what ServerDocuments makes of them."""

import asyncio
import dataclasses
from datetime import UTC, datetime
from typing import Any

import pytest
from support.engines.adapters import DynamoDBAdapter, StoreAdapter

from mail.core.engine.documents import ServerDocuments
from mail.core.task.audit import AuditEntry
from mail.core.task.documents import ClaimedKey, Document, Kind, PutIf, SignInLink, StoredToken
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.core.task.ports import Documents
from mail.testing.changes import NOW

ALICE = StoredToken(digest="a" * 64, role="user", id="alice", created="2026-01-31T08:00:00+00:00")
ROOT = StoredToken(digest="b" * 64, role="admin", id="root 🦊", created="2026-01-31T08:00:01+00:00")
PEER = StoredToken(digest="c" * 64, role="agent", id="other-swarm", created="2026-01-31T08:00:02+00:00")

BETA = PeerRecord(name="beta", base_url="https://beta.example", auth_token="${SWARM_AUTH_TOKEN_BETA}")
GAMMA = PeerRecord(
    name="Γάμμα mit 🦊",
    base_url="http://127.0.0.1:9/deep",
    version="2",
    description="knows things",
    entrypoint="boss",
    keywords=("a", "b"),
    public=True,
    metadata={"n": [1, {"x": None}]},
    auth_token="s3cr3t",
    auth="aws_iam",
    caller_id="c",
    volatile=True,
    expires=1893456000.5,
    registered="2026-01-31T08:00:00+00:00",
)
SINGLE = (Kind.HAD_TOKENS, Kind.HEALTH, Kind.LOADED_SWARM, Kind.ISSUER_KEYS)
OWNED = (Kind.WEBHOOK, Kind.IDEMPOTENCY_KEY)
WELL = PeerHealth(is_active=True, last_seen="2026-01-31T08:00:00+00:00", latency=0.0125)


@pytest.fixture
def documents(records: ServerDocuments) -> Documents:
    return records._documents


def key_of(kind: Kind, name: str) -> tuple[str, ...]:
    if kind in SINGLE:
        return ()
    return ("user:a#b@s", name) if kind in OWNED else (name,)


@pytest.mark.parametrize("kind", Kind)
async def test_a_document_is_what_was_put_last_with_the_fields_that_it_had(
    documents: Documents, kind: Kind
) -> None:
    key, end = key_of(kind, "Γάμμα 🦊"), 1893456000.0
    assert await documents.get(kind, *key) is None
    assert not await documents.put(kind, Document(key, {"status": "none"}), condition=PutIf.PRESENT)
    first = Document(key, {"status": "wartung 🛠", "text": "x" * 300_000}, end)
    assert await documents.put(kind, first, condition=PutIf.ABSENT, now=NOW)
    assert not await documents.put(
        kind, Document(key, {"status": "other"}, end), condition=PutIf.ABSENT, now=NOW
    )
    assert await documents.get(kind, *key) == first
    assert await documents.put(kind, Document(key, {"status": ""}), condition=PutIf.PRESENT)
    assert await documents.get(kind, *key) == Document(key, {**first.fields, "status": ""}, end)
    for was, is_changed in (("other", False), ("", True)):
        where, changed = {"status": was}, Document(key, {"text": "a"})
        assert await documents.put(kind, changed, condition=PutIf.PRESENT, where=where) is is_changed
    assert await documents.put(kind, Document(key, {"more": "b"}))
    assert await documents.get(kind, *key) == Document(key, {"status": "", "text": "a", "more": "b"})
    assert await documents.delete(kind, *key, where={"text": "b"}) is False
    assert await documents.delete(kind, *key, where={"text": "a"}) is True
    assert await documents.delete(kind, *key) is False
    assert await documents.get(kind, *key) is None


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in SINGLE])
async def test_documents_are_found_by_their_whole_key(documents: Documents, kind: Kind) -> None:
    for name in ("a", "b", "%"):
        await documents.put(kind, Document(key_of(kind, name), {"record": name}))
    assert await documents.get(kind, *key_of(kind, "b")) == Document(key_of(kind, "b"), {"record": "b"})
    for name in ("", "A", "ab", "c"):
        assert await documents.get(kind, *key_of(kind, name)) is None
        assert await documents.delete(kind, *key_of(kind, name)) is False
    if kind in OWNED:
        assert sorted(each.key[1] for each in await documents.find(kind, "user:a#b@s")) == ["%", "a", "b"]
        assert await documents.find(kind, "user:a") == []


async def test_documents_survive_reopening(durable: StoreAdapter) -> None:
    for kind in Kind:
        await durable.records._documents.put(kind, Document(key_of(kind, "a"), {"record": kind}))
    await durable.reopen()
    for kind in Kind:
        found = await durable.records._documents.get(kind, *key_of(kind, "a"))
        assert found == Document(key_of(kind, "a"), {"record": kind})


async def test_at_first_there_is_nothing(records: ServerDocuments) -> None:
    assert await records.has_tokens() is False
    assert await records.find_token(ALICE.digest) is None
    assert await records.tokens() == []
    assert await records.remove_token(ALICE.digest) is False
    assert await records.has_tokens() is False
    assert await records.health() is None
    assert await records.loaded_swarm() is None
    assert await records.peers() == ([], {})
    assert await records.found_peers() == []
    assert await records.peer("beta") is None
    assert await records.delete_peer("beta") is False


async def test_tokens_are_listed_by_age(records: ServerDocuments) -> None:
    for token in (PEER, ALICE, ROOT):
        await records.add_token(token)
    assert await records.tokens() == [ALICE, ROOT, PEER]


async def test_a_removed_token_is_nobodys(records: ServerDocuments) -> None:
    second = dataclasses.replace(ALICE, digest="d" * 64)
    for token in (ALICE, second):
        await records.add_token(token)
    for text in ("", "a", "d" * 63):
        assert await records.remove_token(text) is False
    assert await records.remove_token(ALICE.digest) is True
    assert await records.remove_token(ALICE.digest) is False
    assert await records.find_token(ALICE.digest) is None
    assert await records.tokens() == [second]
    assert await records.remove_token(second.digest) is True
    assert await records.tokens() == []
    assert await records.has_tokens() is True, "the operator has let people in before"


async def test_peers_are_forgotten_with_their_health(records: ServerDocuments) -> None:
    for record in (BETA, GAMMA):
        await records.set_peer(record)
        await records.set_peer_health(record.name, WELL)
    assert await records.delete_peer("beta") is True
    assert await records.delete_peer("beta") is False
    assert await records.peer("beta") is None
    assert await records.peers() == ([GAMMA], {GAMMA.name: WELL})
    await records.set_peer(BETA)
    assert await records.peers() == ([BETA, GAMMA], {GAMMA.name: WELL})


async def test_a_discovered_peer_has_no_access_and_gives_way_to_a_registered_one(
    records: ServerDocuments,
) -> None:
    claim = GAMMA.model_copy(update={"name": "beta", "auth_token": "${SWARM_AUTH_TOKEN_BETA}"})
    await records.set_found_peer(claim, WELL)
    found = await records.peer("beta")
    assert found is not None
    assert (found.base_url, found.description, found.expires) == (
        claim.base_url,
        claim.description,
        claim.expires,
    )
    assert (found.auth_token, found.auth, found.caller_id, found.metadata) == ("", "bearer", "", {})
    assert await records.peers() == ([found], {"beta": WELL})
    ill = WELL.model_copy(update={"is_active": False})
    await records.set_peer_health("beta", ill)
    assert await records.peers() == ([found], {"beta": ill})
    await records.set_peer(BETA)
    assert await records.peer("beta") == BETA
    assert (await records.peers())[0] == [BETA]
    assert await records.found_peers() == [found]
    assert await records.delete_peer("beta") is True
    assert await records.peer("beta") is None


async def test_health_and_registration_leave_each_other_alone(records: ServerDocuments) -> None:
    await records.set_peer(BETA)
    await records.set_peer(GAMMA)
    await records.set_peer_health("beta", WELL)
    ill = WELL.model_copy(update={"is_active": False, "latency": None})
    await records.set_peer_health(GAMMA.name, WELL)
    await records.set_peer_health(GAMMA.name, ill)
    assert await records.peers() == ([BETA, GAMMA], {"beta": WELL, GAMMA.name: ill})
    moved = BETA.model_copy(update={"base_url": "https://other.example"})
    await records.set_peer(moved)
    assert await records.peer("beta") == moved
    assert (await records.peers())[1]["beta"] == WELL


async def test_a_key_of_a_request_that_was_refused_is_forgotten(records: ServerDocuments) -> None:
    first, second = ClaimedKey("d1", "task 1", 1_000.0), ClaimedKey("d2", "task 2", 2_000.0)
    await records.claim_key("a", "k", first, now=0.0)
    await records.claim_key("b", "k", first, now=0.0)
    await records.forget_key("a", "k", "another task")
    assert await records.claim_key("a", "k", second, now=10.0) == first
    await records.forget_key("a", "k", "task 1")
    assert await records.claim_key("a", "k", second, now=10.0) == second
    assert await records.claim_key("b", "k", second, now=10.0) == first
    await records.forget_key("nobody", "k", "task 1")


async def test_a_key_is_forgotten_when_its_time_is_up(records: ServerDocuments) -> None:
    first, second = ClaimedKey("d1", "1", 1_000.0), ClaimedKey("d2", "2", 2_000.0)
    await records.claim_key("a", "k", first, now=0.0)
    assert await records.claim_key("a", "k", second, now=999.0) == first
    assert await records.claim_key("a", "k", second, now=1_000.0) == second
    assert await records.claim_key("a", "k", first, now=1_001.0) == second


SESSION = StoredToken(
    "e" * 64, "user", "alice", "2026-01-31T08:00:03+00:00", expires=2_000_000_000.0, session_of=ALICE.digest
)
LINK = SignInLink("f" * 64, "user", "alice", expires=2_000_000_000.0, made_with=ALICE.digest)


async def test_tokens_may_expire_and_belong_to_others(records: ServerDocuments) -> None:
    by_operator = dataclasses.replace(SESSION, digest="f" * 64, session_of="")
    for token in (ALICE, SESSION, by_operator):
        await records.add_token(token, now=1_999_999_999.0)
    for token in (ALICE, SESSION, by_operator):
        assert await records.find_token(token.digest) == token
    assert await records.tokens() == [ALICE, SESSION, by_operator]
    assert await records.remove_token(SESSION.digest)
    assert await records.find_token(SESSION.digest) is None


async def test_a_sign_in_link_is_taken_once(records: ServerDocuments) -> None:
    assert await records.take_sign_in_link(LINK.digest) is None
    await records.add_sign_in_link(LINK, now=1_999_999_999.0)
    assert await records.find_token(LINK.digest) is None, "a code is no key"
    found = await asyncio.gather(*(records.take_sign_in_link(LINK.digest) for _ in range(5)))
    assert [link for link in found if link is not None] == [LINK]
    assert await records.take_sign_in_link(LINK.digest) is None


def act(number: int, **fields: Any) -> AuditEntry:
    time = datetime(2026, 1, 31, 8, 0, number, tzinfo=UTC)
    return AuditEntry(
        f"{AuditEntry.moment(time)}-{number:x}", time.isoformat(), "cancel task", "admin:root@s", **fields
    )


async def test_the_audit_is_read_page_by_page_from_its_end(records: ServerDocuments) -> None:
    assert await records.acts(limit=5) == []
    entries = [
        act(0),
        act(1, on="task 🦊", owner="user:ann@s", address="::1", reason="“why”", outcome="done"),
        *map(act, range(2, 7)),
    ]
    for entry in (*entries[3:], *entries[:3]):  # other servers may store them in another order
        await records.add_act(entry, now=0.0, until=None)
    newest = entries[::-1]
    assert await records.acts(limit=10) == newest
    assert await records.acts(limit=3) == newest[:3]
    assert await records.acts(limit=3, before=newest[2].id) == newest[3:6]
    assert await records.acts(limit=3, before=newest[5].id) == newest[6:]
    assert await records.acts(limit=3, before=newest[6].id) == []
    eight = AuditEntry.moment(datetime(2026, 1, 31, 8, 0, 2, tzinfo=UTC))
    assert await records.acts(limit=10, before=eight) == newest[5:], "before a time"


async def test_how_an_act_ended_is_stored_once(records: ServerDocuments) -> None:
    await records.add_act(act(1, on="t"), now=0.0, until=None)
    assert [entry.outcome for entry in await records.acts(limit=5)] == ["started"]
    ended = act(1, on="t 2", outcome="done")
    await records.end_act(ended)
    await records.end_act(act(1, on="t 3", outcome="failed"))
    await records.add_act(act(1, on="t 4"), now=0.0, until=None)
    await records.end_act(act(2, outcome="done"))
    assert await records.acts(limit=5) == [ended], "nothing changes it, and nothing ends what didn't begin"


async def test_acts_expire(records: ServerDocuments, adapter: StoreAdapter) -> None:
    await records.add_act(act(1), now=1_000.0, until=2_000.0)
    await records.add_act(act(2), now=1_000.0, until=3_000.0)
    await records.add_act(act(3), now=2_500.0, until=None)
    found = [entry for entry in await records.acts(limit=5) if entry != act(1)]
    assert found == [act(3), act(2)]
    if not isinstance(adapter, DynamoDBAdapter):  # which deletes what has expired by itself
        assert await records.acts(limit=5) == found
