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
from typing import TYPE_CHECKING, Any

from mail.core.engine.documents import ServerDocuments
from mail.core.engine.runtime import Runtime
from mail.core.task.documents import LoadedSwarm
from mail.core.task.swarm import SwarmCore
from mail.errors import BadRequest, ConfigurationError, DraftOutdated, SwarmInvalid
from mail.swarms_json.load import load_swarm_json
from mail.swarms_json.secrets import HIDDEN, hidden_in, with_secrets, without_secrets
from mail.swarms_json.specs import SwarmSpec
from mail.swarms_json.validation import validate_swarm_from_swarms_json

if TYPE_CHECKING:
    from mail.core.task.swarm_drafts import Published, Revision

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
        self._core = runtime.swarm
        self._record: LoadedSwarm | None = None
        self._published: Published | None = None
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
        return self._record.loaded if self._record is not None and self._record.text else None

    @property
    def unchanged(self) -> SwarmCore:
        """The swarm without a published draft."""
        return self._core

    @property
    def published(self) -> "Published | None":
        """The published draft, which may be of another version of the swarm (`is_applied`)."""
        return self._published

    @property
    def is_applied(self) -> bool:
        """Whether the swarm that runs is that of the published draft."""
        return self._runtime.swarm is not self._core

    async def load(self, text: str) -> SwarmSpec:
        """Replace the swarm, in every process of the server; running tasks follow its rule (`SwarmSpec.on_update`).

        It must keep the name of the present swarm, under which tasks are stored. Raises BadRequest for a swarm that
        can't be built; then the present one stays.
        """
        try:
            entry, core = await self.check(text)
        except ConfigurationError as error:
            raise BadRequest(error.detail) from error
        await self._replace(entry, core, self._new_record(entry.model_dump_json()))
        logger.warning("an admin has loaded another version of swarm %s: %s", entry.name, entry.version)
        return entry

    async def publish(self, name: str, revision: "Revision", by: str) -> None:
        """Let new tasks use a draft, in every process of the server; running ones follow the rule of the swarm.

        Raises DraftOutdated if it was saved for another version, and BadRequest if this one can't take it.
        """
        from mail.core.decisions.swarm_drafts import change_swarm
        from mail.core.task.swarm_drafts import Published

        if revision.base != self._core.digest:
            raise DraftOutdated(
                f"draft {name!r} was saved for version {revision.base}, and {self._core.digest} runs; look at its "
                "differences, and save it again"
            )
        change_swarm(self._core, revision.agents)
        at = self._runtime.clock.now().isoformat()
        published = Published(name=name, revision=revision, by=by, at=at)
        await self._replace(self._entry, self._core, self._with_draft(published.model_dump_json()))

    async def withdraw(self) -> None:
        """Let new tasks use the swarm without the published draft."""
        await self._replace(self._entry, self._core, self._with_draft(""))

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
        if loaded is not None and loaded.replaces != self._configured_digest:
            loaded = replace(loaded, text="") if loaded.draft else None
        if loaded == self._record:
            return
        if loaded is None or not loaded.text:
            self._adopt(self._configured, self._configured_core, loaded)
            return
        if self._record is not None and loaded.text == self._record.text:
            self._adopt(self._entry, self._core, loaded)
            return
        try:
            entry = validate_swarm_from_swarms_json(json.loads(loaded.text))
            self._adopt(entry, await self._built(entry), loaded)
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

    def _new_record(self, text: str) -> LoadedSwarm:
        loaded = self._runtime.clock.now().isoformat()
        return LoadedSwarm(text=text, loaded=loaded, replaces=self._configured_digest)

    def _with_draft(self, draft: str) -> LoadedSwarm:
        return replace(self._record or self._new_record(""), draft=draft, replaces=self._configured_digest)

    async def _replace(self, entry: SwarmSpec, core: SwarmCore, record: LoadedSwarm) -> None:
        await self._documents.set_loaded_swarm(record)
        self._adopt(entry, core, record)

    def _adopt(self, entry: SwarmSpec, core: SwarmCore, record: LoadedSwarm | None) -> None:
        self._entry, self._core, self._record = entry, core, record
        self._published = None
        if record is not None and record.draft:
            from mail.core.task.swarm_drafts import Published

            self._published = Published.model_validate_json(record.draft)
        if self._runtime.versions is not None:
            self._runtime.versions.note(self._runtime.swarm)
        self._runtime.swarm = self._with_published(core)

    def _with_published(self, core: SwarmCore) -> SwarmCore:
        """Return the swarm with the published draft, unless that is of another version: the code has changed."""
        published = self._published
        if published is None:
            return core
        if published.revision.base == core.digest:
            from mail.core.decisions.swarm_drafts import change_swarm

            try:
                return change_swarm(core, published.revision.agents)
            except BadRequest as error:
                problem = error.detail
        else:
            problem = f"it changes version {published.revision.base}, and {core.digest} runs"
        logger.warning(
            "the published draft %s of swarm %s is not applied: %s", published.name, core.name, problem
        )
        return core
