"""The entries of a registry, cached in this process and stored in the server's database, in a file, or nowhere.

The file is JSON; it may be written by hand, with only a name and a `base_url` per entry. It never holds a token.

    {"local_swarm_name": …, "local_base_url": …, "endpoints": {"<name>": {"base_url": …, "auth_token_ref": …, …}}}
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mail.core.engine.documents import ServerDocuments
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.errors import BadRequest, ConfigurationError
from mail.net.registration import Access, amend, check_name, check_url, is_name, kind_of
from mail.net.secrets import reference_for, reference_to, variable_for, variable_in
from mail.net.types import SwarmEndpoint

REFRESH_SECONDS = 5.0
"""Seconds for which entries read from the database are cached."""

UNSEEN = PeerHealth.model_construct()

logger = logging.getLogger(__name__)


class PeerDirectory:
    """Entries by name, without expired ones.

    Args:
        header: the fields of the file beside its entries.
        now: the time, in seconds since the epoch.
        monotonic: counts seconds.

    Attributes:
        given: tokens that only this process knows, by swarm; the stored entries refer to variables.
    """

    def __init__(
        self,
        documents: ServerDocuments | None,
        file: Path | None,
        header: Callable[[], Mapping[str, Any]],
        *,
        now: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.given: dict[str, str] = {}
        self.documents = documents
        self.file = file
        self._header = header
        self._now = now
        self._clock = monotonic
        self._peers: dict[str, PeerRecord] = {}
        self._health: dict[str, PeerHealth] = {}
        self._read: float | None = None
        self._changes = 0

    def all(self) -> list[PeerRecord]:
        """Return all entries, sorted by name."""
        return [peer for _, peer in sorted(self._peers.items()) if self._is_live(peer)]

    def get(self, name: str) -> PeerRecord | None:
        """Return the cached entry of a swarm."""
        peer = self._peers.get(name)
        return peer if peer is not None and self._is_live(peer) else None

    def health(self, name: str) -> PeerHealth:
        """Return the result of the last health check of a swarm."""
        return self._health.get(name, UNSEEN)

    async def find(self, name: str) -> PeerRecord | None:
        """Return the entry of a swarm, even if another process has only just added it."""
        await self.refresh()
        return self.get(name) or await self.current(name)

    async def current(self, name: str) -> PeerRecord | None:
        """Return the stored entry of a swarm, bypassing the cache."""
        if self.documents is not None and is_name(name):
            peer = await self.documents.peer(name)
            if peer is not None:
                self._peers[name] = peer
        return self.get(name)

    async def refresh(self, *, max_age: float = REFRESH_SECONDS) -> None:
        """Read all entries from the database, if there is one and the cache is older than `max_age` seconds."""
        if self.documents is None or (self._read is not None and self._clock() < self._read + max_age):
            return
        before, now = self._changes, self._clock()
        peers, healths = await self.documents.peers()
        if self._changes == before:  # otherwise it may be older than a change made here in the meantime
            self._peers = {peer.name: peer for peer in peers}
            self._health = healths
            self._read = now

    async def keep(self, peer: PeerRecord, *, token: str | None = None) -> None:
        """Store an entry, replacing the one of the same name; this process also remembers the token."""
        self._changes += 1
        if self.documents is not None:
            await self.documents.set_peer(peer)
            self._changes += 1
        self._peers[peer.name] = peer
        self.given.pop(peer.name, None)
        if token is not None:
            self.given[peer.name] = token
        self.save_copy()

    async def note_found(self, peer: PeerRecord, seen: PeerHealth) -> None:
        """Store an entry that agents have discovered."""
        if self.documents is not None:
            await self.documents.set_found_peer(peer, seen)
            self._changes += 1
        self._peers[peer.name], self._health[peer.name] = peer, seen

    async def known(self) -> frozenset[str]:
        """Return the names of the cached entries, and of all that agents have discovered.

        Code of agents on AWS can read no others: registered entries may hold tokens.
        """
        found = [] if self.documents is None else await self.documents.found_peers()
        return frozenset(peer.name for peer in (*found, *self._peers.values()) if self._is_live(peer))

    async def forget(self, name: str) -> bool:
        """Delete an entry; return whether it existed."""
        self._changes += 1
        known = name in self._peers
        if self.documents is not None:
            known = await self.documents.delete_peer(name)
            self._changes += 1
        for cached in (self._peers, self._health, self.given):
            cached.pop(name, None)
        if known:
            self.save_copy()
        return known

    async def forget_expired(self) -> None:
        """Delete the expired entries."""
        for name in [name for name, peer in self._peers.items() if not self._is_live(peer)]:
            await self.forget(name)

    async def note_health(self, name: str, seen: PeerHealth) -> None:
        """Store the result of a health check."""
        if name in self._peers:
            self._health[name] = seen
            if self.documents is not None:
                await self.documents.set_peer_health(name, seen)

    # ------------------------------------------------------------------------------------------------- the file

    def load(self) -> list[str]:
        """Read the file, replacing entries of the same names; return the swarms whose tokens are in plain text."""
        return [peer.name for peer in self._read_file() if self._take(peer)]

    async def take_over(self) -> list[str]:
        """Store the file's entries that the database lacks; return their names. Raises ConfigurationError."""
        added = []
        for peer in self._read_file():
            known = self._peers.get(peer.name)
            if known is None:
                self._take(peer)
                token = self.given.get(peer.name)
                await self.keep(self._peers[peer.name], token=token)
                added.append(peer.name)
            elif known.base_url != peer.base_url:
                logger.warning(
                    "swarm %s: %s says %s; the database says %s, which is used",
                    *(peer.name, self.file, peer.base_url, known.base_url),
                )
        return added

    def save(self) -> None:
        """Write the file, if one is configured, without volatile entries. Raises ConfigurationError."""
        if self.file is not None:
            kept = {
                peer.name: _entry(peer, self.health(peer.name)) for peer in self.all() if not peer.volatile
            }
            write_file(self.file, {**self._header(), "endpoints": kept})

    def save_copy(self) -> None:
        """Write the file. On a server a failure is only logged, as the database has the entries."""
        try:
            self.save()
        except ConfigurationError as error:
            if self.documents is None:
                raise
            logger.warning("the registry's file is out of date: %s", error.detail)

    def _read_file(self) -> list[PeerRecord]:
        own = self._header()["local_swarm_name"]
        return [] if self.file is None else [peer for peer in read_file(self.file) if peer.name != own]

    def _take(self, peer: PeerRecord) -> bool:
        """Cache an entry of the file; return whether its token is in plain text."""
        token = peer.auth_token
        is_plain = variable_in(token) is None
        if is_plain:
            self.given[peer.name] = token
            reference = reference_for(peer.name, token)
            peer = amend(peer, access=Access(reference, peer.volatile, peer.expires))
        self._peers[peer.name] = peer
        return is_plain

    def _is_live(self, peer: PeerRecord) -> bool:
        return peer.expires is None or self._now() < peer.expires


class _Entry(BaseModel):
    """An entry of the file; unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    base_url: str
    version: str = ""
    swarm_description: str = ""
    entrypoint: str = ""
    keywords: tuple[str, ...] = ()
    public: bool = False
    metadata: dict[str, Any] = Field(default_factory=dict)
    auth_token_ref: str | None = None
    auth_token: str | None = None
    auth: Any = "bearer"
    caller_id: str = ""
    registered: str = ""
    interface: str = ""

    def peer(self, name: str) -> PeerRecord:
        shared = {field: each for field, each in self if field in PeerRecord.model_fields}
        own = {
            "name": check_name(name),
            "base_url": check_url(self.base_url),
            "kind": kind_of(self.base_url),
            "description": self.swarm_description,
            "auth_token": self.auth_token_ref or self.auth_token or reference_to(variable_for(name)),
        }
        return PeerRecord(**{**shared, **own})


def read_file(path: Path) -> list[PeerRecord]:
    """Return the entries of the file, none if it doesn't exist. Tokens may be in plain text, if written by hand.

    A `null` counts as absent: MAIL 1.3.6 writes one for each value that it lacks.

    Raises ConfigurationError, which names the entry and the problem but no value: values may be secret.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: can't be read: {error}") from error
    try:
        document = json.loads(text, object_hook=_without_nulls) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{path}: is not valid JSON: {error}") from error
    entries = document.get("endpoints", {}) if isinstance(document, dict) else None
    if not isinstance(entries, dict):
        raise ConfigurationError(
            f'{path}: is not a registry: it must be an object {{"endpoints": {{name: entry}}}}'
        )
    return [_read_entry(path, name, entry) for name, entry in entries.items()]


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def write_file(path: Path, document: Mapping[str, Any]) -> None:
    """Write the file atomically; only the owner may read it. Raises ConfigurationError."""
    text = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
        try:
            draft.touch(mode=0o600, exist_ok=False)
            draft.write_text(text, encoding="utf-8")
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"{path}: can't be written: {error}") from error


def _entry(peer: PeerRecord, health: PeerHealth) -> dict[str, Any]:
    """Return the entry of the file, with all that MAIL 1.3.6 reads, so that a server can go back to it."""
    own = {"registered": peer.registered, "interface": peer.interface}
    return {**SwarmEndpoint.of(peer, health).model_dump(mode="json"), **own}


def _read_entry(path: Path, name: str, entry: object) -> PeerRecord:
    try:
        return _Entry.model_validate(entry).peer(name)
    except BadRequest as error:
        raise ConfigurationError(f"{path}: {name!r}: {error.detail}") from error
    except ValidationError as error:
        first = error.errors(include_input=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(f"{path}: {name!r}: {field}: {first['msg']}") from error
