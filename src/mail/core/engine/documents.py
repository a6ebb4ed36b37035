"""Everything a server stores that is not a task: the same rules over every database.

Fields that a later version has stored are ignored, as in tasks.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from pydantic import BaseModel
from pydantic_core import from_json, to_json

from mail.core.task.audit import STARTED, AuditEntry
from mail.core.task.deletion import CallerDeletion, LegalHold, name_of
from mail.core.task.documents import (
    CallerRole,
    ClaimedKey,
    Document,
    Kind,
    LoadedSwarm,
    PutIf,
    SignInLink,
    StoredToken,
)
from mail.core.task.idempotency import REMEMBERED_SECONDS
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.core.task.ports import Documents
from mail.core.task.task import TaskKey
from mail.core.task.versions import pack, unpack
from mail.core.task.webhooks import WebhookRecord, in_order
from mail.errors import DraftNotFound

FORGET_SECONDS = 60.0
"""Seconds between two deletions of what is remembered of deleted tasks no longer."""

if TYPE_CHECKING:
    from mail.core.task.swarm_drafts import Revision, SwarmDraft  # which take 7 ms, and are rare

ENDED_SECONDS = 30 * 86_400.0
"""How long the end of a caller's deletion is remembered."""


class ServerDocuments:
    """Tokens, links, idempotency and issuer's keys, the loaded swarm, peers, webhooks, the audit and deletions."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._forgets_at = 0.0

    async def claim_key(self, caller: str, key: str, claim: ClaimedKey, *, now: float) -> ClaimedKey:
        """Claim an idempotency key for a request; return the earlier claim if there is one, else this one."""
        document = Document((caller, key), {"digest": claim.digest, "task_id": claim.task_id}, claim.until)
        while not await self._documents.put(Kind.IDEMPOTENCY_KEY, document, condition=PutIf.ABSENT, now=now):
            known = await self._documents.get(Kind.IDEMPOTENCY_KEY, caller, key)
            if known is not None and known.expires is not None:
                return ClaimedKey(known.fields["digest"], known.fields["task_id"], known.expires)
        return claim

    async def forget_key(self, caller: str, key: str, task_id: str) -> None:
        """Release a key that was claimed for this task, because the request was refused."""
        await self._documents.delete(Kind.IDEMPOTENCY_KEY, caller, key, where={"task_id": task_id})

    async def add_token(self, token: StoredToken, *, now: float = 0.0) -> None:
        """Store a token. Where the database doesn't do so itself, this deletes tokens that had expired at `now`."""
        fields = {"role": token.role, "id": token.id, "created": token.created}
        if token.session_of is not None:
            fields["session_of"] = token.session_of
        document = Document((token.digest,), fields, token.expires)
        await self._documents.put(Kind.HAD_TOKENS, Document(()))
        await self._documents.put(Kind.TOKEN, document, condition=PutIf.ABSENT, now=now)

    async def find_token(self, digest: str) -> StoredToken | None:
        """Return the token with this digest."""
        return await self._find(_token, Kind.TOKEN, digest)

    async def has_tokens(self) -> bool:
        """Return whether a token was ever added."""
        return await self._documents.get(Kind.HAD_TOKENS) is not None

    async def tokens(self) -> list[StoredToken]:
        """Return all tokens, oldest first."""
        tokens = map(_token, await self._documents.find(Kind.TOKEN))
        return sorted(tokens, key=lambda token: (token.created, token.digest))

    async def remove_token(self, digest: str) -> bool:
        """Delete a token; return whether there was one."""
        return await self._documents.delete(Kind.TOKEN, digest)

    async def add_sign_in_link(self, link: SignInLink, *, now: float) -> None:
        """Store a sign-in link. Where the database doesn't do so itself, delete links that had expired at `now`."""
        fields = {"role": link.role, "id": link.id, "made_with": link.made_with}
        document = Document((link.digest,), fields, link.expires)
        await self._documents.put(Kind.SIGN_IN_LINK, document, condition=PutIf.ABSENT, now=now)

    async def take_sign_in_link(self, digest: str) -> SignInLink | None:
        """Delete a sign-in link and return it, expired or not; None if there is none, or another process took it."""
        document = await self._documents.get(Kind.SIGN_IN_LINK, digest)
        if document is None or not await self._documents.delete(Kind.SIGN_IN_LINK, digest):
            return None
        fields = document.fields
        role = cast(CallerRole, fields["role"])
        return SignInLink(digest, role, fields["id"], document.expires or 0.0, fields["made_with"])

    async def health(self) -> str | None:
        """Return the health status that an admin has set."""
        return await self._find(lambda document: document.fields["status"], Kind.HEALTH)

    async def set_health(self, status: str) -> None:
        """Set the health status that other swarms see."""
        await self._documents.put(Kind.HEALTH, Document((), {"status": status}))

    async def loaded_swarm(self) -> LoadedSwarm | None:
        """Return the swarm that was loaded last."""
        return await self._find(_swarm, Kind.LOADED_SWARM)

    async def set_loaded_swarm(self, swarm: LoadedSwarm) -> None:
        """Store a loaded swarm in place of the one before it. Raises PayloadTooLarge."""
        await self._documents.put(Kind.LOADED_SWARM, Document((), dataclasses.asdict(swarm)))

    async def swarm_drafts(self) -> "list[SwarmDraft]":
        """Return the drafts of the swarm, by name."""
        found = await self._documents.find(Kind.SWARM_DRAFT)
        return sorted(map(_draft, found), key=lambda draft: draft.name)

    async def swarm_draft(self, name: str) -> "SwarmDraft":
        """Return a draft of the swarm. Raises DraftNotFound."""
        if (draft := await self._find(_draft, Kind.SWARM_DRAFT, name)) is None:
            raise DraftNotFound(f"there is no draft {name[:64]!r} of the swarm")
        return draft

    async def add_revision(self, name: str, revision: "Revision") -> "SwarmDraft":
        """Add a revision to a draft, or begin one with it. Raises PayloadTooLarge."""
        from mail.core.task.swarm_drafts import MAX_REVISIONS, SwarmDraft

        while True:
            document = await self._documents.get(Kind.SWARM_DRAFT, name)
            known = () if document is None else _draft(document).revisions
            draft = SwarmDraft(name=name, revisions=(*known, revision)[-MAX_REVISIONS:])
            made = Document((name,), {"record": pack(draft.model_dump_json(exclude_defaults=True))})
            condition, where = (PutIf.ABSENT, None) if document is None else (PutIf.PRESENT, document.fields)
            if await self._documents.put(Kind.SWARM_DRAFT, made, condition=condition, where=where):
                return draft

    async def remove_draft(self, name: str) -> bool:
        """Delete a draft with its revisions; return whether there was one."""
        return await self._documents.delete(Kind.SWARM_DRAFT, name)

    async def caller_token(self, caller: str) -> tuple[str, float] | None:
        """Return the sealed token of a caller (`role:id@swarm`), and when it expires, in seconds since the epoch."""
        return await self._find(
            lambda document: (document.fields["sealed"], document.expires or 0.0), Kind.CALLER_TOKEN, caller
        )

    async def set_caller_token(self, caller: str, sealed: str, expires: float, *, now: float) -> None:
        """Store a caller's sealed token in place of the one before; SQL deletes those that had expired at `now`."""
        document = Document((caller,), {"sealed": sealed}, expires)
        await self._documents.put(Kind.CALLER_TOKEN, document, now=now)

    async def issuer_keys(self) -> str | None:
        """Return the keys of the identity provider that were stored last, as `mail.auth.oidc` writes them."""
        return await self._find(lambda document: document.fields["record"], Kind.ISSUER_KEYS)

    async def set_issuer_keys(self, record: str) -> None:
        """Store the keys of the identity provider in place of those before."""
        await self._documents.put(Kind.ISSUER_KEYS, Document((), {"record": record}))

    async def peers(self) -> tuple[list[PeerRecord], dict[str, PeerHealth]]:
        """Return the known swarms, and the results of their last health checks, by name; some may have expired.

        A registered swarm takes precedence over one of its name that agents have discovered.
        """
        stored = {
            each.key[0]: (read(each), each.fields.get("health"))
            for kind, read in _PEERS.items()
            for each in await self._documents.find(kind)
        }
        peers = [peer for _, (peer, _) in sorted(stored.items())]
        healths = {
            name: PeerHealth.model_validate_json(health, extra="ignore")
            for name, (_, health) in stored.items()
            if health is not None
        }
        return peers, healths

    async def found_peers(self) -> list[PeerRecord]:
        """Return the swarms that agents have discovered; some may have expired, or be registered meanwhile."""
        return list(map(_found_peer, await self._documents.find(Kind.FOUND_PEER)))

    async def peer(self, name: str) -> PeerRecord | None:
        """Return the swarm of this name."""
        for kind in reversed(_PEERS):
            if (peer := await self._find(_PEERS[kind], kind, name)) is not None:
                return peer
        return None

    async def set_peer(self, peer: PeerRecord) -> None:
        """Store a swarm in place of the one with its name. Its health stays."""
        await self._documents.put(Kind.PEER, _record(peer, peer.name, expires=peer.expires))

    async def set_found_peer(self, peer: PeerRecord, health: PeerHealth) -> None:
        """Store a swarm that agents have discovered; of its access only the expiry counts."""
        fields = {"record": peer.model_dump_json(), "health": health.model_dump_json()}
        await self._documents.put(Kind.FOUND_PEER, Document((peer.name,), fields, peer.expires))

    async def delete_peer(self, name: str) -> bool:
        """Delete a swarm and its health; return whether it was known."""
        return any([await self._documents.delete(kind, name) for kind in _PEERS])

    async def set_peer_health(self, name: str, health: PeerHealth) -> None:
        """Store the result of a health check; that of an unknown swarm is dropped."""
        document = Document((name,), {"health": health.model_dump_json()})
        for kind in reversed(_PEERS):
            if await self._documents.put(kind, document, condition=PutIf.PRESENT):
                return

    async def webhooks(self, caller: str) -> list[WebhookRecord]:
        """Return the webhooks that a caller (`role:id@swarm`) has registered, oldest first."""
        documents = await self._documents.find(Kind.WEBHOOK, caller)
        return in_order(map(_webhook, documents))

    async def all_webhooks(self) -> list[tuple[str, WebhookRecord]]:
        """Return the registered webhooks of all callers, each with its caller (`role:id@swarm`), ordered by caller."""
        documents = await self._documents.find(Kind.WEBHOOK)
        found = [(document.key[0], _webhook(document)) for document in documents]
        return sorted(found, key=lambda each: (each[0], each[1].created, each[1].id))

    async def set_webhook(self, caller: str, webhook: WebhookRecord, *, limit: int) -> bool:
        """Store a webhook in place of the one with its id; return False if the caller has `limit` more already."""
        return await self._documents.put(Kind.WEBHOOK, _record(webhook, caller, webhook.id), limit=limit)

    async def delete_webhook(self, caller: str, webhook_id: str) -> bool:
        """Delete a webhook; return whether it was known."""
        return await self._documents.delete(Kind.WEBHOOK, caller, webhook_id)

    async def holds(self) -> list[LegalHold]:
        """Return all holds, oldest first."""
        found = [_hold(document) for document in await self._documents.find(Kind.HOLD)]
        return sorted(found, key=lambda hold: (hold.since, hold.name))

    async def hold_on(self, key: TaskKey) -> LegalHold | None:
        """Return a hold on a task or its caller, if there is one."""
        for name in (key.instance, name_of(key)):
            if (hold := await self._find(_hold, Kind.HOLD, name)) is not None:
                return hold
        return None

    async def set_hold(self, hold: LegalHold) -> None:
        """Store a hold in place of the one on the same task or caller."""
        await self._documents.put(Kind.HOLD, _record(hold, hold.name))

    async def lift_hold(self, name: str) -> bool:
        """Delete a hold; return whether there was one."""
        return await self._documents.delete(Kind.HOLD, name)

    async def remember_deleted(self, key: TaskKey, *, now: float) -> None:
        """Remember, as long as idempotency keys, that a task is deleted."""
        document = Document((name_of(key),), {"deleted": repr(now)}, now + REMEMBERED_SECONDS)
        forgets = now >= self._forgets_at
        self._forgets_at = now + FORGET_SECONDS if forgets else self._forgets_at
        await self._documents.put(Kind.DELETED_TASK, document, now=now if forgets else 0.0)

    async def deleted_at(self, key: TaskKey) -> float | None:
        """Return when a task of this name was deleted last, if that is remembered."""
        return await self._find(
            lambda document: float(document.fields["deleted"]), Kind.DELETED_TASK, name_of(key)
        )

    async def caller_deletions(self) -> list[CallerDeletion]:
        """Return the deletions of callers, with those that have ended."""
        return list(map(_deletion, await self._documents.find(Kind.CALLER_DELETION)))

    async def caller_deletion(self, caller: str) -> CallerDeletion | None:
        """Return the last deletion of a caller."""
        return await self._find(_deletion, Kind.CALLER_DELETION, caller)

    async def set_caller_deletion(
        self, deletion: CallerDeletion, *, now: float, instead_of: CallerDeletion | None = None
    ) -> bool:
        """Store a deletion, with `instead_of` only in place of that; return whether it is stored."""
        expires = None if deletion.ended is None else now + ENDED_SECONDS
        document = _record(deletion, deletion.caller, expires=expires)
        if instead_of is None:
            return await self._documents.put(Kind.CALLER_DELETION, document, now=now)
        where, present = _record(instead_of).fields, PutIf.PRESENT
        return await self._documents.put(Kind.CALLER_DELETION, document, condition=present, where=where)

    async def forget(self, caller: str) -> None:
        """Delete a caller's tokens, webhooks and idempotency keys."""
        await self._documents.delete(Kind.CALLER_TOKEN, caller)
        role_and_id = caller.rpartition("@")[0]
        for token in await self.tokens():
            if f"{token.role}:{token.id}" == role_and_id:
                await self.remove_token(token.digest)
        for kind in (Kind.WEBHOOK, Kind.IDEMPOTENCY_KEY):
            for document in await self._documents.find(kind, caller):
                await self._documents.delete(kind, caller, document.key[-1])

    async def add_act(self, entry: AuditEntry, *, now: float, until: float | None) -> None:
        """Store an act until a time, None for ever, and delete those that had expired at `now`, as `add_token`."""
        document = Document((entry.id,), _act_fields(entry), until)
        await self._documents.put(Kind.AUDIT, document, condition=PutIf.ABSENT, now=now)

    async def end_act(self, entry: AuditEntry) -> None:
        """Store how an act ended that was stored when it began. Nothing changes an entry after that."""
        document, where = Document((entry.id,), _act_fields(entry)), {"outcome": STARTED}
        await self._documents.put(Kind.AUDIT, document, condition=PutIf.PRESENT, where=where)

    async def acts(self, *, limit: int, before: str = "") -> list[AuditEntry]:
        """Return the last acts before an id, or of all, the last one first; some may have expired."""
        documents = await self._documents.page(Kind.AUDIT, limit=limit, before=before)
        return list(map(_act, documents))

    async def _find[T](self, read: Callable[[Document], T], kind: Kind, *key: str) -> T | None:
        """Return what a document holds; None if there is none."""
        document = await self._documents.get(kind, *key)
        return None if document is None else read(document)


def _record(record: BaseModel, *key: str, expires: float | None = None) -> Document:
    return Document(key, {"record": record.model_dump_json()}, expires)


def _reader[T: BaseModel](record: type[T]) -> Callable[[Document], T]:
    return lambda document: record.model_validate_json(document.fields["record"], extra="ignore")


_hold = _reader(LegalHold)
_deletion = _reader(CallerDeletion)
_webhook = _reader(WebhookRecord)
_peer = _reader(PeerRecord)


def _swarm(document: Document) -> LoadedSwarm:
    names = (field.name for field in dataclasses.fields(LoadedSwarm))
    return LoadedSwarm(**{name: document.fields.get(name, "") for name in names})


def _act_fields(entry: AuditEntry) -> dict[str, str]:
    record = {
        name: text
        for name, text in dataclasses.asdict(entry).items()
        if name not in ("id", "outcome") and text
    }
    return {"record": to_json(record).decode(), "outcome": entry.outcome}


def _act(document: Document) -> AuditEntry:
    record, names = from_json(document.fields["record"]), AuditEntry.__dataclass_fields__
    known = {name: text for name, text in record.items() if name in names}
    return AuditEntry(id=document.key[0], outcome=document.fields["outcome"], **known)


def _token(document: Document) -> StoredToken:
    fields = document.fields
    return StoredToken(
        document.key[0],
        cast(CallerRole, fields["role"]),
        fields["id"],
        fields["created"],
        document.expires,
        fields.get("session_of"),
    )


def _found_peer(document: Document) -> PeerRecord:
    """Return a discovered swarm without what only admins decide, as code of agents can write these documents."""
    found = _peer(document)
    return PeerRecord(
        name=document.key[0],
        base_url=found.base_url,
        version=found.version,
        description=found.description,
        entrypoint=found.entrypoint,
        keywords=found.keywords,
        public=found.public,
        volatile=True,
        expires=found.expires or 0.0,
        registered=found.registered,
    )


_PEERS = {Kind.FOUND_PEER: _found_peer, Kind.PEER: _peer}
"""How swarms are read; a later kind takes precedence."""


def _draft(document: Document) -> "SwarmDraft":
    from mail.core.task.swarm_drafts import SwarmDraft

    return SwarmDraft.model_validate_json(unpack(document.fields["record"]))
