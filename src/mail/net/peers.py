"""The registry of other swarms: their addresses, descriptions, health and tokens.

Methods that change entries or call other servers are to be awaited. The rest read this process's cache; `refresh`
updates it with the changes of other processes.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.interswarm import COMMON_CALLER_ID, PeerHealth, PeerRecord
from mail.errors import BadRequest, StoreUnavailable
from mail.net import health
from mail.net.directory import REFRESH_SECONDS, UNSEEN, PeerDirectory
from mail.net.http import PeerHTTP
from mail.net.registration import (
    Access,
    Auth,
    amend,
    check_url,
    describe,
    host_of,
    is_loopback,
    is_private,
    kind_of,
    new_entry,
    with_token,
)
from mail.net.secrets import EnvironmentTokens, Tokens, variable_for, variable_in
from mail.net.types import Discovery, Registered, SwarmEndpoint, SwarmEndpointCleaned

DAY = 86_400.0

logger = logging.getLogger(__name__)


class Registry:
    """The other swarms known to a program or a server.

    Args:
        local_base_url: the URL at which other swarms reach this one; `register_local_swarm` can set it later.
        persistence_file: stores the entries, except volatile ones. A server stores them in its database: there the
            file is only a copy, and `start` imports entries that were added to it by hand.
        documents: a server's database, which all its processes share.
        tokens: resolves references to tokens; the default is the environment.
        allow_private: whether peers may have private addresses; by default only if the local base URL is on loopback.
        http: the HTTP client.
        health_check_seconds: seconds between health checks.
        volatile_seconds: the default lifetime of a volatile entry.
        monotonic: counts seconds.

    Raises ConfigurationError for an unreadable file.
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
        documents: ServerDocuments | None = None,
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
        self._plain_tokens: list[str] = []
        file = Path(persistence_file) if persistence_file else None
        self._directory = PeerDirectory(documents, file, self._header, now=self._now, monotonic=monotonic)
        if documents is None:
            self._load()

    # --------------------------------------------------------------------------------------------- registration

    def register_local_swarm(self, base_url: str) -> None:
        """Set the URL at which other swarms reach this one. Raises BadRequest."""
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
        """Register a swarm, replacing the entry of the same name, with the description from its `/`.

        A swarm that does not answer is registered without a description, which is read when it first answers.

        Args:
            auth_token: the token, or a reference such as `${SWARM_AUTH_TOKEN_B}`; the default refers to the variable
                of the swarm's name. Unless the entry is volatile, only the reference is stored.
            volatile: whether the entry ends with the program or at `expires`; by default, if a token or `expires` is
                given.
            auth: `aws_iam` for a Lambda function URL that requires signed requests.
            caller_id: the id of the token with which the swarm calls this server, if it is not the swarm's name.
            expires: end of a volatile entry, in seconds since the epoch; by default a day from now.

        Raises BadRequest for invalid values, or if another swarm answers at the URL.
        """
        peer = new_entry(
            swarm_name,
            base_url,
            metadata=metadata,
            auth=auth,
            caller_id=caller_id,
            registered=self._timestamp(),
            kind=kind_of(base_url.strip()),
        )
        if peer.name == self.local_swarm_name:
            raise BadRequest(f"{peer.name!r} is the name of this swarm itself")
        peer = with_token(
            peer, auth_token, volatile, expires, default_expiry=self._now() + self.volatile_seconds
        )
        described = await describe(self.http, peer)
        notes = []
        if described is None:
            notes.append("it does not answer now; its description is read when it does")
            seen = UNSEEN
        else:
            info, latency = described
            peer = amend(peer, info=info)
            seen = PeerHealth(is_active=True, last_seen=self._timestamp(), latency=latency)
        is_replaced = auth_token and variable_in(auth_token) is None and peer.auth_token != auth_token
        await self._directory.keep(peer, token=auth_token if is_replaced else None)
        await self._directory.note_health(peer.name, seen)
        variable = variable_in(peer.auth_token)
        if variable is not None and not await self._is_set(variable):
            notes.append(
                f"set {variable} where this server runs: the token is forgotten when this process ends"
                if is_replaced
                else f"set {variable} where this server runs, if it needs a token"
                if peer.kind == "a2a"
                else f"set {variable} where this server runs, or each message to it must bring a token"
            )
        logger.info("registered swarm %s at %s", peer.name, peer.base_url)
        for note in notes:
            logger.warning("swarm %s: %s", peer.name, note)
        if peer.kind == "mail":
            own, *common = self._caller_ids(peer)
            others = (
                f" or {common[0]!r}; to accept only one id, register it with a caller_id" if common else ""
            )
            notes.append(f"its token for this server must have the id {own!r}{others}")
        if volatile is None and expires is None and peer.volatile:
            notes.append(
                "as it contains a token, this entry expires after a day, and when this server stops; to keep it, set "
                f"{variable_for(peer.name)} where this server runs, and register the swarm without auth_token"
            )
        return Registered(name=peer.name, notes=tuple(notes))

    def unregister_swarm(self, swarm_name: str) -> Awaitable[bool]:
        """Delete an entry: whether it existed."""
        return self._directory.forget(swarm_name)

    async def discover_swarms(self, discovery_urls: Sequence[str]) -> Discovery:
        """Register the public swarms that servers at these URLs run or list, unless they are known already.

        The entries are volatile and have no token: the owner of a URL can claim any name, and must not get the token of
        another swarm. Register the swarm explicitly to give it one.
        """
        from mail.net.discovery import Discoverer

        discoverer = Discoverer(self.http, self.local_swarm_name, await self._directory.known())
        outcome = await discoverer.run(discovery_urls)
        for name, (base_url, info) in discoverer.found.items():
            peer = new_entry(name, base_url, registered=self._timestamp())
            access = Access(peer.auth_token, volatile=True, expires=self._now() + self.volatile_seconds)
            seen = PeerHealth(is_active=True, last_seen=self._timestamp())
            await self._directory.note_found(amend(peer, info=info, access=access), seen)
        return outcome

    # ----------------------------------------------------------------------------------------------- lookups

    async def token_for(self, peer: PeerRecord) -> str | None:
        """Return the token for calls to a swarm; None if the registry has none."""
        variable = variable_in(peer.auth_token)
        value = await self._tokens.find(variable) if variable else peer.auth_token
        return value or self._directory.given.get(peer.name)

    async def find(self, swarm_name: str) -> PeerRecord | None:
        """Return the entry of a swarm, even if another process has only just registered it."""
        return await self._directory.find(swarm_name)

    async def caller_ids(self, swarm_name: str) -> tuple[str, ...]:
        """Return the ids of the tokens with which a swarm may call this server, its own first; none for an unknown one.

        A swarm without a `caller_id` may use the common `agent` token, too, unless that belongs to another swarm.
        """
        peer = await self.find(swarm_name)
        return () if peer is None or peer.kind == "a2a" else self._caller_ids(peer)

    def _caller_ids(self, peer: PeerRecord) -> tuple[str, ...]:
        if peer.caller_id:
            return (peer.caller_id,)
        claimed = {other.caller_id or other.name for other in self._directory.all()}
        common = () if COMMON_CALLER_ID in claimed else (COMMON_CALLER_ID,)
        return (peer.name, *common)

    def last_answer(self, swarm_name: str) -> float | None:
        """Return when a swarm last answered a health check, in seconds since the epoch; None for never."""
        seen = self._directory.health(swarm_name).last_seen
        return datetime.fromisoformat(seen).timestamp() if seen else None

    def may_call(self, peer: PeerRecord) -> bool:
        """Return whether the URL of a swarm may be called, as far as its text shows."""
        return self.http.allow_private or not is_private(host_of(peer.base_url))

    async def names(self) -> list[str]:
        """Return the names of all known swarms."""
        await self.refresh()
        return [peer.name for peer in self._directory.all()]

    async def public_endpoints(self) -> list[SwarmEndpointCleaned]:
        """Return the public swarms, with the fields that anyone may see."""
        await self.refresh()
        return [found.cleaned() for found in self._endpoints() if found.public]

    async def all_endpoints(self) -> list[SwarmEndpoint]:
        """Return all swarms, for the operators of this server."""
        await self.refresh()
        return self._endpoints()

    async def refresh(self, *, max_age: float = REFRESH_SECONDS) -> None:
        """Read all entries from the database, if there is one and the cache is older than `max_age` seconds."""
        await self._directory.refresh(max_age=max_age)

    # ------------------------------------------------------------------------------------------ lifecycle

    def _load(self) -> None:
        """Read the file; its entries replace those of the same names. Raises ConfigurationError."""
        self._plain_tokens = self._directory.load()
        self._warn_of_missing_variables()

    async def start(self) -> None:
        """Read the database, and import the file's entries that it lacks. Raises ConfigurationError."""
        if self._directory.documents is None:
            return
        await self.refresh(max_age=0.0)
        added = await self._directory.take_over()
        if added:
            logger.info("imported from %s: %s", self._directory.file, ", ".join(added))
        self._warn_of_missing_variables()

    async def stop(self) -> None:
        """Delete the volatile entries, and close the connections."""
        try:
            await self.stop_health_checks()
            await self._forget_volatile()
        finally:
            await self.http.aclose()

    async def _forget_volatile(self) -> list[str]:
        await self.refresh(max_age=0.0)
        names = [peer.name for peer in self._directory.all() if peer.volatile]
        for name in names:
            await self._directory.forget(name)
        return names

    # ---------------------------------------------------------------------------------------------- health

    async def check_health(self) -> dict[str, PeerHealth]:
        """Check the health of all peers, and delete expired entries; return the health by name."""
        await self.refresh(max_age=0.0)
        await self._directory.forget_expired()
        return await health.check_all(self._directory.all(), self._check)

    async def start_health_checks(self) -> None:
        """Begin to check the health of all peers at an interval, on this event loop."""
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(health.forever(self.check_health, self.health_check_seconds))

    async def stop_health_checks(self) -> None:
        """End the health checks."""
        checking, self._checking = self._checking, None
        if checking is not None:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)

    async def _check(self, peer: PeerRecord) -> PeerHealth:
        before = self._directory.health(peer.name)
        latency = await health.measure_latency(self.http, peer)
        if latency is None:
            now = PeerHealth(last_seen=before.last_seen)
        else:
            now = PeerHealth(is_active=True, last_seen=self._timestamp(), latency=latency)
            if not peer.is_described:
                await self._describe_late(peer)
        if now.is_active != before.is_active:
            logger.info("swarm %s is %s", peer.name, "active" if now.is_active else "out of reach")
        await self._directory.note_health(peer.name, now)
        return now

    async def _describe_late(self, peer: PeerRecord) -> None:
        """Read the description of a swarm that was down when it was registered."""
        try:
            described = await describe(self.http, peer)
        except BadRequest as error:
            logger.warning("swarm %s: %s", peer.name, error.detail)
            return
        # unless it was registered again meanwhile
        if described is not None and await self._directory.current(peer.name) == peer:
            token = self._directory.given.get(peer.name)
            await self._directory.keep(amend(peer, info=described[0]), token=token)

    # ---------------------------------------------------------------------------------------------------- tokens

    def _variables(self) -> dict[str, bool]:
        """Return, for each variable that a persistent entry refers to, whether it is set."""
        references = {peer.auth_token for peer in self._directory.all() if not peer.volatile}
        variables = sorted(filter(None, map(variable_in, references)))
        return {variable: self._tokens.known(variable) is not None for variable in variables}

    async def _is_set(self, variable: str) -> bool:
        try:
            return await self._tokens.find(variable) is not None
        except StoreUnavailable:
            return False

    def _warn_of_missing_variables(self) -> None:
        missing = [name for name, is_set in self._variables().items() if not is_set]
        if missing:
            logger.warning("mail to other swarms needs tokens; set %s", ", ".join(missing))

    # ---------------------------------------------------------------------------------------------------- inside

    def _header(self) -> dict[str, Any]:
        names = ("name", "description", "keywords", "public")
        return {
            "local_base_url": self.local_base_url,
            **{f"local_swarm_{name}": getattr(self, f"local_swarm_{name}") for name in names},
        }

    def _endpoints(self) -> list[SwarmEndpoint]:
        return [self._endpoint(peer) for peer in self._directory.all()]

    def _endpoint(self, peer: PeerRecord) -> SwarmEndpoint:
        return SwarmEndpoint.of(peer, self._directory.health(peer.name))

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _timestamp(self) -> str:
        return self._clock.now().isoformat()
