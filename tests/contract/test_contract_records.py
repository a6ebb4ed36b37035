"""ServerRecords: built-in tokens and the health status."""

import dataclasses

from support.adapters import StoreAdapter

from mail.core.ports import ServerRecords, TemplateRecord, TokenRecord

ALICE = TokenRecord(digest="a" * 64, role="user", id="alice", created="2026-01-31T08:00:00+00:00")
ROOT = TokenRecord(digest="b" * 64, role="admin", id="root 🦊", created="2026-01-31T08:00:01+00:00")
PEER = TokenRecord(digest="c" * 64, role="agent", id="other-swarm", created="2026-01-31T08:00:02+00:00")


async def test_at_first_there_is_nothing(records: ServerRecords) -> None:
    assert await records.has_tokens() is False
    assert await records.find_token(ALICE.digest) is None
    assert await records.health() is None
    assert await records.template() is None


async def test_tokens_are_found_by_their_digest_only(records: ServerRecords) -> None:
    for token in (ALICE, ROOT, PEER):
        await records.add_token(token)
    assert await records.has_tokens() is True
    for token in (ALICE, ROOT, PEER):
        assert await records.find_token(token.digest) == token
    for text in ("", "a", "A" * 64, "a" * 63, "%", "alice"):
        assert await records.find_token(text) is None


async def test_one_person_may_have_several_tokens(records: ServerRecords) -> None:
    second = dataclasses.replace(ALICE, digest="d" * 64)
    await records.add_token(ALICE)
    await records.add_token(second)
    assert await records.find_token(ALICE.digest) == ALICE
    assert await records.find_token(second.digest) == second


async def test_adding_a_token_again_is_harmless(records: ServerRecords) -> None:
    await records.add_token(ALICE)
    await records.add_token(ALICE)
    assert await records.find_token(ALICE.digest) == ALICE


async def test_health_is_what_was_set_last(records: ServerRecords) -> None:
    for status in ("degraded", "ok", "wartung 🛠", ""):
        await records.set_health(status)
        assert await records.health() == status


async def test_template_is_what_was_set_last(records: ServerRecords) -> None:
    for text in ('{"name": "wetter 🌦"}', "x" * 300_000, ""):
        record = TemplateRecord(text=text, loaded="2026-01-31T08:00:00+00:00", replaces="e" * 64)
        await records.set_template(record)
        assert await records.template() == record


async def test_records_survive_reopening(durable: StoreAdapter) -> None:
    template = TemplateRecord(text="{}", loaded="2026-01-31T08:00:00+00:00", replaces="e" * 64)
    await durable.records.add_token(ALICE)
    await durable.records.set_health("degraded")
    await durable.records.set_template(template)
    await durable.reopen()
    assert await durable.records.has_tokens() is True
    assert await durable.records.find_token(ALICE.digest) == ALICE
    assert await durable.records.health() == "degraded"
    assert await durable.records.template() == template
