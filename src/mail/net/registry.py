"""Which other swarms there are, where, how they are, and with which token they are called.

What changes entries, or asks other servers, is a coroutine. What only looks at entries sees those that this process
has read last; `refresh` reads what others have changed.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.errors import BadRequest, StoreUnavailable
from mail.net import health
from mail.net.directory import REFRESH_SECONDS, UNSEEN, PeerDirectory
from mail.net.http import PeerHTTP
from mail.net.registration import Auth, describe, new_entry, with_token
from mail.net.secrets import EnvironmentTokens, Tokens, reference_for, variable_for, variable_in
from mail.net.types import Discovery, Registered, SwarmEndpoint, SwarmEndpointCleaned
from mail.net.urls import check_url, host_of, is_loopback

DAY = 86_400.0

logger = logging.getLogger(__name__)


class SwarmRegistry:
    """The swarms that a program or a server knows.

    Args:
        local_base_url: by which other swarms reach this one; it may be set later, by `register_local_swarm`.
        persistence_file: where entries outlive the program, but for volatile ones. A server has its records for that;
            its file is kept as a copy, and entries that somebody has added to it are taken over by `start`.
        records: of a server, whose processes then all have the same entries.
        tokens: where the values of token references are; the default is the environment.
        allow_private: whether peers may have addresses that are not public; by default only those of a swarm that
            is itself on this machine only, by its base URL.
        http: makes the requests.
        health_check_seconds: the time between two looks at all peers.
        volatile_seconds: after how long a volatile entry is forgotten, by default.
        monotonic: counts seconds.

    Raises ConfigurationError for a file that can't be read.
    """

    def __init__(
        self,
        local_swarm_name: str,
        local_base_url: str,
        persistence_file: str | Path | None = None,
        local_swarm_description: str = "",
        local_swarm_keywords: Sequence[str] | None = None,
        local_swarm_public: bool = False,
        *,
        records: ServerDocuments | None = None,
        tokens: Tokens | None = None,
        allow_private: bool | None = None,
        http: PeerHTTP | None = None,
        health_check_seconds: float = 30.0,
        volatile_seconds: float = DAY,
        clock: Clock = SYSTEM_CLOCK,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.local_swarm_name = local_swarm_name
        self.local_base_url = local_base_url.rstrip("/")
        self.local_swarm_description = local_swarm_description
        self.local_swarm_keywords = list(local_swarm_keywords or ())
        self.local_swarm_public = local_swarm_public
        self.health_check_seconds = health_check_seconds
        self.volatile_seconds = volatile_seconds
        if allow_private is None:
            allow_private = is_loopback(host_of(self.local_base_url))
        self.http = http or PeerHTTP(allow_private=allow_private)
        self._tokens = tokens or EnvironmentTokens()
        self._clock = clock
        self._checking: asyncio.Task[None] | None = None
        self._written_out: list[str] = []
        file = Path(persistence_file) if persistence_file else None
        self._book = PeerDirectory(records, file, self._header, now=self._now, monotonic=monotonic)
        if records is None:
            self.load_persistent_endpoints()

    # --------------------------------------------------------------------------------------------- to register

    def register_local_swarm(self, base_url: str) -> None:
        """Say by which URL other swarms reach this one. Raises BadRequest."""
        self.local_base_url = check_url(base_url)

    async def register_swarm(
        self,
        swarm_name: str,
        base_url: str,
        auth_token: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        volatile: bool | None = None,
        *,
        auth: Auth = "bearer",
        caller_id: str = "",
        expires: float | None = None,
    ) -> Registered:
        """Remember a swarm, in the place of the one of its name, with what it says of itself at its `/`.

        A swarm that does not answer now is remembered all the same: it may only be down, and what it says of itself
        is read once it answers.

        Args:
            auth_token: the token, or a reference such as `${SWARM_AUTH_TOKEN_B}`. By default the variable is the
                one of the swarm's name. Unless the entry is volatile, only the reference is kept.
            volatile: whether the entry is forgotten when the program ends or `expires` comes; by default, if it
                has a token of its own.
            auth: `aws_iam` for a Lambda function URL that wants requests to be signed.
            caller_id: the id of the token with which it calls here, where that is not its name.
            expires: of a volatile entry, in seconds since the epoch; by default a day from now.

        Raises BadRequest for values that can't be used, and where another swarm answers at the URL.
        """
        record = new_entry(
            swarm_name,
            base_url,
            metadata=metadata,
            auth=auth,
            caller_id=caller_id,
            registered=self._timestamp(),
        )
        if record.name == self.local_swarm_name:
            raise BadRequest(f"{record.name!r} is the name of this swarm itself")
        record = with_token(
            record, auth_token, volatile, expires, default_expiry=self._now() + self.volatile_seconds
        )
        told = await describe(self.http, record)
        notes = []
        if told is None:
            notes.append("it does not answer now; what it says of itself is read once it does")
            seen = UNSEEN
        else:
            record = record.model_copy(update=told[0].fields())
            seen = PeerHealth(is_active=True, last_seen=self._timestamp(), latency=told[1])
        is_dropped = auth_token and variable_in(auth_token) is None and record.auth_token != auth_token
        await self._book.keep(record, token=auth_token if is_dropped else None)
        await self._book.note_health(record.name, seen)
        variable = variable_in(record.auth_token)
        if variable is not None and not await self._is_set(variable):
            notes.append(
                f"set {variable} where this server runs: the token is not kept for longer than this process"
                if is_dropped
                else f"set {variable} where this server runs, or mail to it needs a token of its own"
            )
        logger.info("registered swarm %s at %s", record.name, record.base_url)
        for note in notes:
            logger.warning("swarm %s: %s", record.name, note)
        return Registered(name=record.name, notes=tuple(notes))

    async def unregister_swarm(self, swarm_name: str) -> bool:
        """Forget a swarm; returns whether it was known."""
        return await self._book.forget(swarm_name)

    async def discover_swarms(self, discovery_urls: Sequence[str]) -> Discovery:
        """Register the public swarms that servers at these URLs are or know, other than those known and this one.

        They are volatile, and have no token: whoever owns a URL can claim any name, and must not be handed the token
        that is meant for somebody else. An admin who registers the swarm gives it one.
        """
        from mail.net.discovery import Discoverer

        await self.refresh()
        known = frozenset(record.name for record in self._book.all())
        discoverer = Discoverer(self.http, self.local_swarm_name, known)
        outcome = await discoverer.run(discovery_urls)
        for name, (base_url, info) in discoverer.found.items():
            record = new_entry(name, base_url, registered=self._timestamp())
            fields = {**info.fields(), "volatile": True, "expires": self._now() + self.volatile_seconds}
            await self._book.keep(record.model_copy(update=fields))
            await self._book.note_health(name, PeerHealth(is_active=True, last_seen=self._timestamp()))
        return outcome

    # ----------------------------------------------------------------------------------------------- to look up

    def get_swarm_endpoint(self, swarm_name: str) -> SwarmEndpoint | None:
        """What is known of a swarm; None where there is none of this name."""
        record = self._book.get(swarm_name)
        return None if record is None else self._endpoint(record)

    def get_all_endpoints(self) -> dict[str, SwarmEndpoint]:
        """All swarms that are known, by name."""
        return {record.name: self._endpoint(record) for record in self._book.all()}

    def get_active_endpoints(self) -> dict[str, SwarmEndpoint]:
        """Those that answered when somebody looked last."""
        return {name: found for name, found in self.get_all_endpoints().items() if found.is_active}

    def get_persistent_endpoints(self) -> dict[str, SwarmEndpoint]:
        """Those that are not volatile."""
        return {name: found for name, found in self.get_all_endpoints().items() if not found.volatile}

    def get_resolved_auth_token(self, swarm_name: str) -> str | None:
        """The token with which a swarm is called, as far as it can be told without waiting; see `token_for`."""
        record = self._book.get(swarm_name)
        if record is None:
            return None
        return self._resolve_auth_token_ref(record.auth_token) or self._book.given.get(swarm_name)

    async def token_for(self, record: PeerRecord) -> str | None:
        """The token with which a swarm is called; None where the registry has none."""
        variable = variable_in(record.auth_token)
        value = await self._tokens.find(variable) if variable else record.auth_token
        return value or self._book.given.get(record.name)

    async def find(self, swarm_name: str) -> PeerRecord | None:
        """A swarm, also if another process has registered it just now."""
        return await self._book.find(swarm_name)

    async def names(self) -> list[str]:
        """The names of all swarms that are known."""
        await self.refresh()
        return [record.name for record in self._book.all()]

    async def public_endpoints(self) -> list[SwarmEndpointCleaned]:
        """The public swarms that are known, as everybody may see them."""
        await self.refresh()
        return [found.cleaned() for found in self.get_all_endpoints().values() if found.public]

    async def refresh(self, *, max_age: float = REFRESH_SECONDS) -> None:
        """Read the server's records, where there are any and what was read is older than `max_age` seconds."""
        await self._book.refresh(max_age=max_age)

    def to_dict(self) -> dict[str, Any]:
        """All that is known, as JSON can hold it; it has no tokens."""
        endpoints = self.get_all_endpoints().items()
        return {
            **self._header(),
            "local_swarm_description": self.local_swarm_description,
            "local_swarm_keywords": self.local_swarm_keywords,
            "local_swarm_public": self.local_swarm_public,
            "endpoints": {name: endpoint.model_dump(mode="json") for name, endpoint in endpoints},
        }

    # ------------------------------------------------------------------------------------------ to begin and end

    async def start(self) -> None:
        """Take up what a server's records hold, and what its file does and they don't. Raises ConfigurationError."""
        if self._book.records is None:
            return
        await self.refresh(max_age=0.0)
        added = await self._book.take_over()
        if added:
            logger.info("took over from %s: %s", self._book.file, ", ".join(added))
        self._warn_of_missing_variables()

    async def stop(self) -> None:
        """Forget the volatile entries, save the others, and close the connections."""
        try:
            await self.stop_health_checks()
            await self.cleanup_volatile_endpoints()
        finally:
            await self.http.aclose()

    def save_persistent_endpoints(self) -> None:
        """Write the file, if there is one to write, without volatile entries. Raises ConfigurationError."""
        self._book.save()

    def load_persistent_endpoints(self) -> None:
        """Read the file; its entries come in the place of those of their names. Raises ConfigurationError."""
        self._written_out = self._book.load()
        self._warn_of_missing_variables()

    async def cleanup_volatile_endpoints(self) -> list[str]:
        """Forget the volatile entries; returns their names."""
        await self.refresh(max_age=0.0)
        names = [record.name for record in self._book.all() if record.volatile]
        for name in names:
            await self.unregister_swarm(name)
        return names

    # ---------------------------------------------------------------------------------------------- their health

    async def check_health(self) -> dict[str, PeerHealth]:
        """Look at all peers once, some at a time; returns how each is. Entries that have expired are deleted."""
        await self.refresh(max_age=0.0)
        await self._book.forget_expired()
        return await health.look_at(self._book.all(), self._check)

    async def start_health_checks(self) -> None:
        """Look at all peers again and again, from now on, on this event loop."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(health.forever(self.check_health, self.health_check_seconds))

    async def stop_health_checks(self) -> None:
        """Look no more."""
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)

    async def _check(self, record: PeerRecord) -> PeerHealth:
        before = self._book.health(record.name)
        latency = await health.ask(self.http, record)
        if latency is None:
            now = before.model_copy(update={"is_active": False, "latency": None})
        else:
            now = PeerHealth(is_active=True, last_seen=self._timestamp(), latency=latency)
            if not record.version:
                await self._describe_late(record)
        if now.is_active != before.is_active:
            logger.info("swarm %s is %s", record.name, "active" if now.is_active else "out of reach")
        await self._book.note_health(record.name, now)
        return now

    async def _describe_late(self, record: PeerRecord) -> None:
        """Read what a swarm says of itself that was down when it was registered."""
        try:
            told = await describe(self.http, record)
        except BadRequest as error:
            logger.warning("swarm %s: %s", record.name, error.detail)
            return
        if (
            told is not None and await self._book.current(record.name) == record
        ):  # and was not registered anew
            token = self._book.given.get(record.name)
            await self._book.keep(record.model_copy(update=told[0].fields()), token=token)

    # ---------------------------------------------------------------------------------------------------- tokens

    def validate_environment_variables(self) -> dict[str, bool]:
        """Per variable that a persistent entry refers to: whether it has a value here."""
        references = {record.auth_token for record in self._book.all() if not record.volatile}
        variables = sorted(filter(None, map(variable_in, references)))
        return {variable: self._tokens.known(variable) is not None for variable in variables}

    def migrate_auth_tokens_to_env_refs(self) -> list[str]:
        """Put references in the place of the tokens that somebody has written into the file.

        Returns the variables that have to be set before the next start; until then this process remembers the tokens.
        """
        written_out, self._written_out = self._written_out, []
        if written_out:
            self.save_persistent_endpoints()
        return sorted(map(variable_for, written_out))

    def _get_auth_token_ref(self, swarm_name: str, auth_token: str | None = None) -> str:
        """What is kept of a token."""
        return reference_for(swarm_name, auth_token)

    def _resolve_auth_token_ref(self, auth_token_ref: str | None) -> str | None:
        """The value of a reference as far as it is known here; a token itself is its own value."""
        variable = variable_in(auth_token_ref or "")
        return self._tokens.known(variable) if variable else auth_token_ref or None

    async def _is_set(self, variable: str) -> bool:
        try:
            return await self._tokens.find(variable) is not None
        except StoreUnavailable:
            return False

    def _warn_of_missing_variables(self) -> None:
        missing = [name for name, is_set in self.validate_environment_variables().items() if not is_set]
        if missing:
            logger.warning("mail to other swarms needs tokens; set %s", ", ".join(missing))

    # ---------------------------------------------------------------------------------------------------- inside

    def _header(self) -> dict[str, Any]:
        return {"local_swarm_name": self.local_swarm_name, "local_base_url": self.local_base_url}

    def _endpoint(self, record: PeerRecord) -> SwarmEndpoint:
        return SwarmEndpoint.of(record, self._book.health(record.name))

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _timestamp(self) -> str:
        return self._clock.now().isoformat()
