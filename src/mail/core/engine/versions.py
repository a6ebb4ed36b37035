"""The versions of the swarm: each is kept with the documents of the server before a task first refers to it.

Its document says when it was `used` last, within a day. So a task that began two days after that, or later, has never
run on it; once no older task is left, it is deleted.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from math import inf

from mail.core.decisions.versions import version_to_finish
from mail.core.protocol.clock import Clock
from mail.core.task.callbacks import LONGEST_WAIT
from mail.core.task.documents import Document, Kind, PutIf
from mail.core.task.ports import Documents, Store
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task
from mail.core.task.versions import pack, read_specification, unpack
from mail.errors import BadRequest, ConfigurationError, PayloadTooLarge

logger = logging.getLogger(__name__)

MOST_VERSIONS = 8
"""Earlier versions that a process has at hand."""

REFRESH_SECONDS = 86_400.0
"""Seconds after which a process that still uses a version says so again, and at most once in which it deletes some."""


class Versions:
    """Keeps versions, and reads them.

    Attributes:
        build: builds a version that was read so that its agents run; raises ConfigurationError.

    Args:
        retention: seconds after which tasks are deleted in which nothing happens; None for never. A version is kept
            for longer: a task may wait for a call all that time before its retention begins.
    """

    def __init__(self, documents: Documents, clock: Clock, *, retention: float | None = None) -> None:
        self._documents = documents
        self._clock = clock
        self._retention = retention
        self._deleted = 0.0
        self._kept: dict[str, float] = {}
        self._built: dict[str, SwarmCore | None] = {}
        self._read: dict[str, SwarmCore | None] = {}
        self.build: Callable[[SwarmCore], Awaitable[SwarmCore]] | None = None

    def needs(self, swarm: SwarmCore) -> bool:
        """Return whether a version must be kept before a task refers to it: once per process, and each day."""
        until = self._kept.get(swarm.digest)
        return until is None or until < self._clock.now().timestamp()

    async def keep(self, swarm: SwarmCore) -> None:
        """Keep the version of a swarm that tasks are about to refer to."""
        digest, now = swarm.digest, self._clock.now().timestamp()
        known = await self._documents.get(Kind.SWARM_VERSION, digest)
        if known is None or _last_use(known, unknown=0.0) < now - REFRESH_SECONDS:
            expires = None
            if self._retention is not None:
                expires = now + self._retention + LONGEST_WAIT + 2 * REFRESH_SECONDS
            fields = {"specification": pack(swarm.specify()), "used": repr(now)}
            document = Document((digest,), fields, expires)
            try:
                await self._documents.put(Kind.SWARM_VERSION, document, condition=PutIf.ALWAYS)
            except PayloadTooLarge as error:
                logger.warning("version %s of swarm %s is not kept: %s", digest, swarm.name, error)
        self._kept[digest] = now + REFRESH_SECONDS

    async def delete_unused(self, store: Store) -> None:
        """Delete the versions that no task can refer to any more, where they don't expire; at most once a day."""
        now = self._clock.now().timestamp()
        if now < self._deleted + REFRESH_SECONDS:
            return
        self._deleted = now
        oldest = await store.list_oldest(limit=1)
        if not oldest.is_ordered:
            return
        starts = [datetime.fromisoformat(task.started).timestamp() for task in oldest.tasks]
        last = min([now, *starts]) - 2 * REFRESH_SECONDS
        for version in await self._documents.find(Kind.SWARM_VERSION):
            if _last_use(version, unknown=inf) < last:
                used = {"used": version.fields["used"]}  # unless it has been used meanwhile
                await self._documents.delete(Kind.SWARM_VERSION, *version.key, where=used)
                logger.info("version %s of the swarm is deleted: no task can refer to it", *version.key)

    async def read(self, digest: str) -> SwarmCore | None:
        """Return a version, which can only be looked at (`read_specification`); None if it is not kept."""
        document = await self._documents.get(Kind.SWARM_VERSION, digest)
        if document is None:
            return None
        try:
            version = read_specification(unpack(document.fields["specification"]))
        except (ValueError, KeyError, TypeError, ConfigurationError):
            logger.warning("version %s can't be read", digest, exc_info=True)
            return None
        return version if version.digest == digest else None  # code of agents can write these documents

    def note(self, swarm: SwarmCore) -> None:
        """Remember a version that another one replaces here, so that its tasks can finish on it."""
        self._remember(swarm.digest, swarm)

    async def prepare(self, task: Task, present: SwarmCore) -> None:
        """Read the version on which a task finishes its run, for `known`."""
        digest = version_to_finish(task, present)
        if digest is None or self._built.get(digest) or digest in self._read:
            return
        found = await self.read(digest)
        can_build = found is not None and (found.draft or found.entry) is not None
        if not can_build or self.build is None:
            why = "is not kept" if found is None else "was built in Python, by a program that has changed"
            logger.warning(
                "version %s of swarm %s %s: tasks that began with it switch to version %s",
                *(digest, present.name, why, present.digest),
            )
            found = None
        self._read[digest] = found
        if len(self._read) > MOST_VERSIONS:
            del self._read[next(iter(self._read))]

    def known(self, task: Task, present: SwarmCore) -> SwarmCore:
        """Return the version by which to decide on a task; the present one if it can't finish on its own."""
        digest = version_to_finish(task, present)
        if digest is None:
            return present
        return self._built.get(digest) or self._read.get(digest) or present

    async def to_run(self, task: Task, present: SwarmCore) -> SwarmCore:
        """Return the version on which to run a turn of a task; the present one if it can't finish on its own."""
        digest = version_to_finish(task, present)
        if digest is None:
            return present
        if digest not in self._built:
            await self.prepare(task, present)
            found = self._read[digest]
            made = None if found is None else await self._make(found, present)
            if digest not in self._built:
                self._remember(digest, made)
        return self._built.get(digest) or present

    def _remember(self, digest: str, version: SwarmCore | None) -> None:
        """Remember a version, and forget the oldest.

        A turn may still use that, so it is not closed: unused connections close by themselves.
        """
        self._built[digest] = version
        if len(self._built) > MOST_VERSIONS:
            del self._built[next(iter(self._built))]

    async def _make(self, version: SwarmCore, present: SwarmCore) -> SwarmCore | None:
        try:
            if version.draft is not None:
                return await self._make_draft(version, present)
            assert self.build is not None
            return await self.build(version)
        except (ConfigurationError, BadRequest) as error:
            logger.warning(
                "version %s of swarm %s can't be built again, so its tasks switch to the present one: %s",
                *(version.digest, version.name, error),
            )
            self._read[version.digest] = None
            return None

    async def _make_draft(self, version: SwarmCore, present: SwarmCore) -> SwarmCore:
        """Build a draft on its base. Raises ConfigurationError or BadRequest."""
        from mail.core.decisions.swarm_drafts import rebuild

        assert version.draft is not None
        digest = version.draft["base"]
        base = present if digest == present.digest else self._built.get(digest)
        if base is None and self.build is not None:
            found = await self.read(digest)
            base = None if found is None or found.entry is None else await self.build(found)
        made = None if base is None else rebuild(version, base)
        if made is None:
            raise ConfigurationError(f"it is a draft of version {digest}, which no longer runs here")
        return made


def _last_use(version: Document, *, unknown: float) -> float:
    """Return when a version was used last, within a day, in seconds since the epoch."""
    used = version.fields.get("used")
    return unknown if used is None else float(used)
