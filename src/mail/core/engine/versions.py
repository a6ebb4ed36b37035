"""The versions of the swarm: each is kept with the documents of the server before a task first refers to it."""

import logging
from math import inf

from mail.core.protocol.clock import Clock
from mail.core.task.callbacks import LONGEST_WAIT
from mail.core.task.documents import Document, Kind, PutIf
from mail.core.task.ports import Documents
from mail.core.task.swarm import SwarmCore
from mail.core.task.versions import pack, read_specification, unpack
from mail.errors import ConfigurationError, PayloadTooLarge

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 86_400.0
"""Seconds after which a process that still uses a version keeps it for longer, where documents expire."""


class Versions:
    """Keeps versions, and reads them.

    Args:
        retention: seconds after which tasks are deleted in which nothing happens; None for never. A version is kept
            for longer: a task may wait for a call all that time before its retention begins.
    """

    def __init__(self, documents: Documents, clock: Clock, *, retention: float | None = None) -> None:
        self._documents = documents
        self._clock = clock
        self._retention = retention
        self._kept: dict[str, float] = {}

    def needs(self, swarm: SwarmCore) -> bool:
        """Return whether a version must be kept before a task refers to it: once per process, and each day."""
        until = self._kept.get(swarm.digest)
        return until is None or (until != inf and until < self._clock.now().timestamp())

    async def keep(self, swarm: SwarmCore) -> None:
        """Keep the version of a swarm that tasks are about to refer to."""
        digest, now = swarm.digest, self._clock.now().timestamp()
        expires = None
        if self._retention is not None:
            expires = now + self._retention + LONGEST_WAIT + 2 * REFRESH_SECONDS
        known = await self._documents.get(Kind.SWARM_VERSION, digest)
        if known is None or (expires is not None and (known.expires or 0.0) < expires - REFRESH_SECONDS):
            document = Document((digest,), {"specification": pack(swarm.specify())}, expires)
            try:
                await self._documents.put(Kind.SWARM_VERSION, document, condition=PutIf.ALWAYS)
            except PayloadTooLarge as error:
                logger.warning("version %s of swarm %s is not kept: %s", digest, swarm.name, error)
        self._kept[digest] = inf if expires is None else now + REFRESH_SECONDS

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
