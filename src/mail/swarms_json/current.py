"""The swarm that a server runs: the configured one, or one that an admin has loaded in its place.

A loaded swarm is stored with the server's documents. Every process of the server looks there when it starts and at
regular intervals (`refresh`). A loaded swarm stays until another one is loaded or the configured swarm changes: the
latest change wins.
"""

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

from mail.core.engine.documents import ServerDocuments
from mail.core.engine.runtime import Runtime
from mail.core.task.documents import LoadedSwarm
from mail.core.task.swarm import SwarmCore
from mail.errors import BadRequest, ConfigurationError, SwarmInvalid
from mail.swarms_json.load import load_swarm_json
from mail.swarms_json.secrets import HIDDEN, hidden_in, with_secrets, without_secrets
from mail.swarms_json.specs import SwarmSpec
from mail.swarms_json.validation import validate_swarm_from_swarms_json

logger = logging.getLogger(__name__)

REFRESH_SECONDS = 15.0
"""Maximum age of a process's copy of the swarm, after another process has replaced it."""


class CurrentSwarm:
    """The swarm of a runtime, which an admin can replace.

    Args:
        configured: the swarm of the server's own configuration.
        build: builds a swarm from an entry; restricts the imports of one that was loaded. Raises ConfigurationError.
    """

    def __init__(
        self,
        runtime: Runtime,
        documents: ServerDocuments,
        configured: SwarmSpec,
        build: Callable[[SwarmSpec, bool], SwarmCore],
    ) -> None:
        self._runtime = runtime
        self._documents = documents
        self._build = build
        self._configured = configured
        self._configured_core = runtime.swarm
        self._configured_digest = sha256(configured.model_dump_json().encode()).hexdigest()
        self._entry = configured
        self._text: str | None = None
        self._loaded: str | None = None
        self._fresh_until = 0.0
        if runtime.versions is not None:
            runtime.versions.build = self._build_again

    @property
    def entry(self) -> SwarmSpec:
        """The entry that the swarm was built from."""
        return self._entry

    @property
    def loaded(self) -> str | None:
        """When an admin loaded the swarm, in ISO 8601; None for the configured one."""
        return self._loaded

    async def load(self, text: str) -> SwarmSpec:
        """Replace the swarm, in every process of the server; running tasks follow its rule (`SwarmSpec.on_update`).

        It must keep the name of the present swarm, under which tasks are stored. Raises BadRequest for a swarm that
        can't be built; then the present one stays.
        """
        try:
            entry, core = await self.check(text)
        except ConfigurationError as error:
            raise BadRequest(error.detail) from error
        text, loaded = entry.model_dump_json(), self._runtime.clock.now().isoformat()
        await self._documents.set_loaded_swarm(
            LoadedSwarm(text=text, loaded=loaded, replaces=self._configured_digest)
        )
        self._adopt(entry, core, text, loaded)
        logger.warning("an admin has loaded another version of swarm %s: %s", entry.name, entry.version)
        return entry

    async def check(self, text: str) -> tuple[SwarmSpec, SwarmCore]:
        """Build the swarm that `load` would use, and change nothing. Raises ConfigurationError."""
        given = load_swarm_json(text)
        if hidden := [(path, f"replace {HIDDEN} with the value") for path in hidden_in(given)]:
            raise SwarmInvalid("\n".join(f"{path}: {problem}" for path, problem in hidden), hidden)
        entry = validate_swarm_from_swarms_json(given)
        if entry.name != self._configured.name:
            problem = (
                f"this server's swarm is {self._configured.name!r}; load one of that name, not {entry.name!r}"
            )
            raise SwarmInvalid(problem, [("name", problem)])
        return entry, await self._built(entry)

    async def refresh(self) -> None:
        """Switch to the most recently loaded swarm; checks at most every `REFRESH_SECONDS`.

        If it can't be built here, that is logged and the present swarm stays.
        """
        now = self._runtime.clock.now().timestamp()
        if now < self._fresh_until:
            return
        self._fresh_until = now + REFRESH_SECONDS
        loaded = await self._documents.loaded_swarm()
        if loaded is None or loaded.replaces != self._configured_digest:
            if self._text is not None:
                self._adopt(self._configured, self._configured_core, None)
            return
        if loaded.text == self._text:
            return
        try:
            entry = validate_swarm_from_swarms_json(json.loads(loaded.text))
            self._adopt(entry, await self._built(entry), loaded.text, loaded.loaded)
        except (ConfigurationError, ValueError):
            logger.exception("the swarm that was loaded on %s can't be built here", loaded.loaded)
        else:
            logger.info("swarm %s is the one that was loaded on %s", entry.name, loaded.loaded)

    def dump(self) -> dict[str, Any]:
        """Return the swarm as data, with apparent secrets hidden, and log it."""
        shown: dict[str, Any] = without_secrets(self._entry.model_dump(mode="json"))
        logger.info("swarm %s: %s", self._entry.name, json.dumps(shown, ensure_ascii=False))
        return shown

    async def _built(self, entry: SwarmSpec) -> SwarmCore:
        """Build a swarm in a thread: imports run code, and references may fetch URLs."""
        return await asyncio.to_thread(self._build, entry, True)

    async def _build_again(self, version: SwarmCore) -> SwarmCore:
        """Build an earlier version, with its prompts and the present secrets. Raises ConfigurationError."""
        entry = with_secrets(version.entry, self._entry.model_dump(mode="json"))
        for agent in entry["agents"]:
            prompt, params = version.agents[agent["name"]].system_prompt, agent["agent_params"]
            if prompt is not None and "system" in params:
                params["system"] = prompt
        spec = validate_swarm_from_swarms_json(entry)
        return replace(await asyncio.to_thread(self._build, spec, version.is_loaded), kept_as=version.digest)

    def _adopt(self, entry: SwarmSpec, core: SwarmCore, text: str | None, loaded: str | None = None) -> None:
        self._entry, self._text, self._loaded = entry, text, loaded
        if self._runtime.versions is not None:
            self._runtime.versions.note(self._runtime.swarm)
        self._runtime.swarm = core
