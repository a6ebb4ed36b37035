"""The swarm that a server runs: the configured one, or the one that an admin has loaded in its place.

A loaded swarm is kept among the server's records, so that every process of the server comes to it: each looks there
when it starts, and now and then (`refresh`). It holds until another one is loaded, or until the configured swarm is
changed: what was said last is what counts.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from mail.core.engine.documents import ServerDocuments
from mail.core.engine.runtime import Runtime
from mail.core.task.documents import LoadedSwarm
from mail.core.task.swarm import SwarmCore
from mail.errors import BadRequest, ConfigurationError
from mail.swarms_json.entries import SwarmEntry
from mail.swarms_json.secrets import without_secrets
from mail.swarms_json.utils import load_swarm_json, validate_swarm_from_swarms_json

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 15.0
"""How long a process may go on with a swarm that was replaced through another one."""


class LiveSwarm:
    """The swarm of a runtime, and how it is replaced.

    Args:
        configured: what the server's own configuration says.
        build: makes a swarm of a loaded entry; restricts what it may import. Raises ConfigurationError.
    """

    def __init__(
        self,
        runtime: Runtime,
        records: ServerDocuments,
        configured: SwarmEntry,
        build: Callable[[SwarmEntry], SwarmCore],
    ) -> None:
        self._runtime = runtime
        self._records = records
        self._build = build
        self._configured = configured
        self._configured_core = runtime.swarm
        self._configured_digest = sha256(configured.model_dump_json().encode()).hexdigest()
        self._entry = configured
        self._text: str | None = None
        self._fresh_until = 0.0

    @property
    def entry(self) -> SwarmEntry:
        """What the swarm was built of."""
        return self._entry

    async def load(self, text: str) -> SwarmEntry:
        """Put another swarm in the place of the present one, here and in all other processes.

        Tasks go on with it. It must have the name of the present one, under which tasks are kept. Raises BadRequest
        for a swarm that can't be built; then the present one stays.
        """
        try:
            entry = validate_swarm_from_swarms_json(load_swarm_json(text))
            if entry.name != self._configured.name:
                raise BadRequest(
                    f"this server's swarm is {self._configured.name!r}; load one of that name, not {entry.name!r}"
                )
            core = await self._built(entry)
        except ConfigurationError as error:
            raise BadRequest(error.detail) from error
        await self._records.set_template(
            LoadedSwarm(
                text=entry.model_dump_json(),
                loaded=self._runtime.clock.now().isoformat(),
                replaces=self._configured_digest,
            )
        )
        self._adopt(entry, core, entry.model_dump_json())
        logger.warning("an admin has loaded another version of swarm %s: %s", entry.name, entry.version)
        return entry

    async def refresh(self) -> None:
        """Come to the swarm that was loaded last, if this process has not looked for some seconds.

        One that can't be built here is told in the log, and the present one stays.
        """
        now = self._runtime.clock.now().timestamp()
        if now < self._fresh_until:
            return
        self._fresh_until = now + REFRESH_SECONDS
        record = await self._records.template()
        if record is None or record.replaces != self._configured_digest:
            if self._text is not None:
                self._adopt(self._configured, self._configured_core, None)
            return
        if record.text == self._text:
            return
        try:
            entry = validate_swarm_from_swarms_json(json.loads(record.text))
            self._adopt(entry, await self._built(entry), record.text)
        except (ConfigurationError, ValueError):
            logger.exception("the swarm that was loaded on %s can't be built here", record.loaded)
        else:
            logger.info("swarm %s is the one that was loaded on %s", entry.name, record.loaded)

    def dump(self) -> dict[str, Any]:
        """The swarm as data, less what looks like a secret; it goes to the log as well."""
        shown: dict[str, Any] = without_secrets(self._entry.model_dump(mode="json"))
        logger.info("swarm %s: %s", self._entry.name, json.dumps(shown, ensure_ascii=False))
        return shown

    async def _built(self, entry: SwarmEntry) -> SwarmCore:
        """Imports run code, and references may fetch URLs: not on the event loop."""
        return await asyncio.to_thread(self._build, entry)

    def _adopt(self, entry: SwarmEntry, core: SwarmCore, text: str | None) -> None:
        self._entry, self._text = entry, text
        self._runtime.swarm = core
