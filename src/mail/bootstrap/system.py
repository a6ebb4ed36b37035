"""A swarm on a database, with what runs its tasks and what front doors need."""

import asyncio
import sys
import weakref
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

from mail.adapters.shared.backend import Backend, WorkQueue
from mail.auth.claims import JWTSettings
from mail.auth.keys import SEALING_KEYS, Authenticator, CachedAuthenticator
from mail.auth.tokens import CACHE_SECONDS, TokenAuthenticator
from mail.bootstrap import peers
from mail.bootstrap.telemetry import Telemetry
from mail.config import ServerConfig, SwarmConfig
from mail.core import protocol
from mail.core.decisions.caller_limits import CallerLimits
from mail.core.engine.action_threads import ACTION_THREADS
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.heartbeat import OnRenewal
from mail.core.engine.permits import PAUSE_SECONDS, ModelPermits
from mail.core.engine.runtime import Runtime
from mail.core.engine.telemetry import Observers
from mail.core.engine.versions import Versions
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.protocol.message import MAILMessage
from mail.core.task.ports import TurnQueue, look_at
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import TaskKey, TaskStatus
from mail.core.task.webhooks import Reply
from mail.errors import ConfigurationError, MAILError, NotFound, PeerUnavailable, TaskNotFound
from mail.mail2 import HOST, WORK
from mail.net import InterswarmRouter
from mail.net.peers import Registry
from mail.net.webhooks import HTTPWebhooks
from mail.swarms_json import SwarmSpec, build_swarm, load_swarm
from mail.swarms_json.build import describe_swarm
from mail.swarms_json.current import CurrentSwarm
from mail.swarms_json.load import find_source
from mail.utils.parsing import PYTHON_PREFIX, read_python_string

if TYPE_CHECKING:
    import httpx2

    from mail.adapters.aws.queue import SQSQueue
    from mail.adapters.local.workers import LocalWorkers
    from mail.auth.caller_tokens import CallerTokens, Seal
    from mail.auth.oidc import JWTAuthenticator
    from mail.core.task.rows import Rows
    from mail.mail2.host import MailHost
    from mail.mail2.tasks import Tasks

type LocalSystem = System[WorkQueue]
"""The system of a server or a program, which takes wake-ups from its own queue."""

type AwsSystem = System[SQSQueue]
"""The system of a function's process, which events bring wake-ups."""

PROTOCOL = Path(protocol.__file__).with_name("protocol.md")

AUTH_VARIABLES = ("AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT")

CLIENT_SECRET_VARIABLE = "MAIL_OIDC_CLIENT_SECRET"  # noqa: S105 - a name
"""Names the secret of this server's page at the identity provider, if that wants one."""

TURN_GRACE_SECONDS = 10.0
"""Seconds that running turns may take after the server is asked to stop; longer ones are run again after a start."""


class System[Q: TurnQueue]:
    """A swarm on a database. `mail.bootstrap` fills one in for a server, for a program and for a function on AWS.

    Between `start` and `stop`, or as an async context manager, workers run tasks in this process. A function doesn't
    start them: events bring its work.

    Args:
        entry: the entry that the swarm was built from, if known.
        router, webhooks: deliver to other swarms and to webhooks; a program's swarm may have neither.
        auth_endpoints: the URLs of an external authentication service; None for built-in tokens.
        client_secret: this server's secret at the identity provider, if that wants one of its page.
        shares_issuer_keys: whether the keys of the identity provider are read from the database, where `Provider.keep`
            stores them, as the process may not live for long.
        seal: seals the tokens of callers; None if none are kept.
        observers: measure the runtime, besides those of `telemetry`.
        on_unfinished: called by `stop` with the number of tasks that still run; None if nobody wants to know.
        stream_seconds: seconds after which a stream that its client can resume ends; None for no such limit.
        stream_url: the base URL of a function that streams, where this one can't.
        serves_mail2: whether this process serves MAIL 2.0.
        mail_name: the host in its addresses; empty for the domain by which the first request comes.
        base_url: the base URL of the API, where no server listens in this process.
        pause: seconds between two requests for permits of models; see `ModelPermits`.
        retention: seconds after which tasks are deleted in which nothing happens; None for never.
        is_embedded: whether it belongs to a program, which may start it again: its database stays open after `stop`,
            until `close` or the last reference to the system.
    """

    def __init__(
        self,
        swarm: SwarmCore,
        backend: Backend[Q],
        config: ServerConfig,
        *,
        entry: SwarmSpec | None = None,
        clock: Clock = SYSTEM_CLOCK,
        router: InterswarmRouter | None = None,
        webhooks: HTTPWebhooks | None = None,
        auth_endpoints: tuple[str, str] | None = None,
        client_secret: str = "",
        shares_issuer_keys: bool = False,
        seal: "Seal | None" = None,
        telemetry: Telemetry | None = None,
        observers: Observers = (),
        stream_seconds: float | None = None,
        stream_url: str = "",
        serves_mail2: bool = False,
        mail_name: str = "",
        base_url: str = "",
        pause: float = PAUSE_SECONDS,
        retention: float | None = None,
        is_embedded: bool = False,
    ) -> None:
        self.config = config
        self.clock = clock
        self.telemetry = telemetry or Telemetry()
        self.store = backend.store
        self.documents = ServerDocuments(backend.documents)
        self.queue = backend.queue
        self.router = router
        self.webhooks = webhooks
        self.stream_seconds = stream_seconds
        self.stream_url = stream_url
        self.serves_mail2 = serves_mail2
        self._retention = retention
        self._mail_name = mail_name
        self.issues_tokens = auth_endpoints is None
        limits, models = config.limits, {**swarm.model_limits, **config.models}
        self._caller_tokens = None if seal is None else self._keep_tokens(seal, swarm.name)
        self.permits = ModelPermits(backend.documents, clock, models, pause=pause)
        self.runtime = Runtime(
            swarm,
            backend.store,
            backend.queue,
            clock,
            turn_seconds=config.settings.turn_seconds,
            lease_seconds=config.settings.lease_seconds,
            peers=router,
            members=None if webhooks is None or backend.rows is None else _TaskMail(self, webhooks),
            hop_limit=config.interswarm.hop_limit,
            entrypoints_only=config.interswarm.entrypoints_only,
            unreachable_seconds=config.interswarm.unreachable_seconds,
            caller_limits=CallerLimits(
                running_tasks=limits.running_tasks or None,
                waiting_tasks=limits.waiting_tasks or None,
                mailbox_depth=limits.mailbox_depth or None,
                task_bytes=limits.task_bytes or None,
                caller_bytes=limits.caller_bytes or None,
            ),
            budgets=config.budgets,
            observers=(*observers, *self.telemetry.observers),
            tracer=self.telemetry.tracer,
            webhooks=webhooks,
            live_link=backend.live,
            files=backend.files,
            max_file_bytes=limits.file_bytes,
            base_url=config.interswarm.base_url.rstrip("/") or base_url,
            permits=self.permits,
            caller_tokens=self._caller_tokens,
            versions=Versions(backend.documents, clock, retention=retention),
            documents=self.documents,
            retention=retention,
            forget=self._forget_mail,
            keeps_latest=config.storage.keep == "latest",
        )
        self.entry = entry
        self.on_unfinished: Callable[[int], object] | None = None
        self._backend = backend
        self._resources = AsyncExitStack()
        self._known_keys = self._make_known_keys(auth_endpoints)
        self.forget_keys = self._known_keys.forget
        self._client_secret = client_secret
        self._shares_issuer_keys = shares_issuer_keys
        self._workers: LocalWorkers | None = None
        self._warming: asyncio.Task[None] | None = None
        self._is_embedded = is_embedded
        self._close = weakref.finalize(self, backend.abandon) if is_embedded else None

    @property
    def swarm(self) -> SwarmCore:
        """The swarm that runs."""
        return self.runtime.swarm

    @cached_property
    def served(self) -> CurrentSwarm:
        """The swarm, which an admin may replace."""
        entry = self.entry or describe_swarm(self.swarm)
        return current_swarm(self.runtime, self.documents, self.config, entry)

    @cached_property
    def mail_host(self) -> "MailHost":
        """The host of MAIL 2.0, where its name is known; only with a router.

        It works in the background while workers run. Functions have the function of deliveries work.
        """
        from mail.mail2.host import MailHost
        from mail.mail2.remotes import Remotes

        sender, wake = self.webhooks, None if self.is_working else self._wake_mail
        assert self._rows is not None
        assert sender is not None
        options: dict[str, Any] = {"per_hour": self.config.limits.mail_submissions, "wake": wake}
        options["retention"] = self._retention
        options["caller_bytes"] = self.config.limits.caller_bytes or None
        options["remotes"] = None if self.router is None else Remotes(self.router)
        given = (self._rows, self.documents, self.clock, sender, self._mail_name)
        host = MailHost(*given, runtime=self.runtime, **options)
        self._resources.push_async_callback(host.stop)
        return host

    async def open_mail(self, domain: str = "") -> "MailHost":
        """Return the host of MAIL 2.0, also if only the domain of the first request names it. Raises NotFound."""
        if not self.is_working and "mail_host" not in vars(self):
            from mail.mail2.host import settle_name

            assert self._rows is not None
            self._mail_name = await settle_name(self._rows, self._mail_name, domain)
        return self.mail_host

    async def _forget_mail(self, key: TaskKey) -> bool:
        """Delete what MAIL 2.0 has of a deleted task, or of a caller; return whether all is gone."""
        if self._rows is None or self.webhooks is None:  # a program's system has no mail
            return True
        if key.task_id and not self.is_working:
            from mail.mail2.records import forgets

            await self._rows.write([forgets(key, self.clock.now().timestamp())])
            return False
        try:
            host = await self.open_mail()
        except NotFound:  # nobody has used it
            return True
        if not key.task_id:
            return await host.forget(key.instance.rpartition("@")[0])
        assert host.tasks is not None
        await host.tasks.forget(key)
        return True

    async def _wake_mail(self, name: str, seconds: float) -> None:
        at = self.clock.now().timestamp() + seconds if seconds else 0.0
        await self.queue.publish([look_at(TaskKey(WORK, name), at)])

    async def resume_mail(self) -> None:
        """Resume what other processes have left of the delivery of MAIL 2.0, if there is any."""
        rows = self._rows
        if rows is not None and (await rows.find(WORK, "", limit=1) or await rows.find(HOST, "", limit=1)):
            try:
                host = await self.open_mail()
            except NotFound:  # it has no name: nobody has used it
                return
            await host.resume()

    @cached_property
    def _rows(self) -> "Rows | None":
        return None if self._backend.rows is None else self._backend.rows()

    @property
    def registry(self) -> Registry:
        """The other swarms that this one knows; only with a router."""
        assert self.router is not None
        return self.router.swarm_registry

    @cached_property
    def authenticator(self) -> Authenticator:
        """What authenticates callers. Raises ConfigurationError."""
        return self.identity or self._known_keys

    @cached_property
    def identity(self) -> "JWTAuthenticator | None":
        """What authenticates tokens of the identity provider, if there is one. Raises ConfigurationError."""
        settings = self.config.auth.jwt
        if not has_issuer(settings):
            return None
        from mail.auth.oidc import JWTAuthenticator, Provider

        stored = self.documents if self._shares_issuer_keys else None
        provider = Provider(settings.issuer, self._open_client(), stored)
        return JWTAuthenticator(
            settings, provider, self._known_keys, self._client_secret, self._caller_tokens
        )

    async def declare_schedules(self) -> None:
        """Let the declared schedules be those of the configuration."""
        await self.runtime.schedules.declare(self.config.schedules)

    @property
    def is_working(self) -> bool:
        """Whether workers run."""
        return self._workers is not None

    def listens(self, host: str, url: str) -> None:
        """Set where the server listens, and the URL by which it is reached; call it before `start`."""
        peers.listens(self.registry, self.config, host, url)
        self.runtime.base_url = self.registry.local_base_url

    async def start(self) -> None:
        """Resume the tasks that an earlier process left, and run whatever comes, on the event loop of the caller."""
        if self._workers is not None:
            return
        from mail.adapters.local.workers import LocalWorkers

        settings = self.config.settings
        concurrency = None if settings.turn_concurrency == "auto" else settings.turn_concurrency
        refresh = None if self._is_embedded else self.served.refresh  # another server may have loaded a swarm
        queue = cast(WorkQueue, self.queue)
        self._workers = LocalWorkers(self.runtime, queue, concurrency=concurrency, refresh=refresh)
        ACTION_THREADS.resize(settings.action_threads)
        await self._backend.start(lambda quiet_for: self.runtime.recover(quiet_for=quiet_for))
        if self.router is not None:
            await self.served.refresh()
            await self.router.start()
        await self._workers.start()
        if not self._is_embedded:
            await self.declare_schedules()
            await self.resume_mail()
        if not self._is_embedded and any(agent.tool_source for agent in self.swarm.agents.values()):
            self._warming = asyncio.create_task(self.swarm.warm_up())

    async def stop(self, grace: float = TURN_GRACE_SECONDS) -> None:
        """Begin no new turn, give running ones `grace` seconds, and close everything but a program's database."""
        workers, self._workers = self._workers, None
        try:
            if workers is not None:
                await workers.stop(grace)
                if self.on_unfinished is not None:
                    self.on_unfinished(await self._count_unfinished())
            if self.router is not None:
                await self.router.stop()
            if self._warming is not None:
                self._warming.cancel()
                await asyncio.wait({self._warming})
            await self.swarm.aclose()
            if not self._is_embedded:
                await _close_models()
        finally:
            await self._resources.aclose()
            if not self._is_embedded:
                await self._backend.close()
                await asyncio.to_thread(self.telemetry.close)

    async def _count_unfinished(self) -> int:
        """Return how many tasks run, of all callers."""
        count = 0
        cursor: str | None = None
        while True:
            page = await self.store.list_tasks(None, status=TaskStatus.RUNNING, limit=1000, cursor=cursor)
            count += sum(task.schedule is None for task in page.tasks)
            if (cursor := page.cursor) is None:
                return count

    async def run_turn(
        self,
        key: TaskKey,
        mailbox: str,
        on_renewal: OnRenewal | None = None,
        *,
        seconds_left: Callable[[], float] | None = None,
    ) -> None:
        """Run the next turn of a mailbox that a queue has woken, with the swarm that is served now.

        Without a mailbox, look after the task, which is due, or do work of MAIL 2.0. `seconds_left` returns how long
        this process will live, if that is limited; see `Runtime.run_turn`.
        """
        await self.served.refresh()
        if not mailbox:
            if key.instance == WORK:
                await (await self.open_mail()).work(key.task_id)
                return
            with suppress(TaskNotFound):
                await self.runtime.look_after(key)
            return
        seconds = None if seconds_left is None else seconds_left()
        await self.runtime.run_turn(key, mailbox, seconds=seconds, on_renewal=on_renewal)

    def preload(self) -> None:
        """Import what agents need in their first turn: the libraries of language models take seconds to import."""
        for agent in self.swarm.agents.values():
            preload = getattr(agent.function, "preload", None)
            if preload is not None:
                preload()

    def before_snapshot(self) -> None:
        """Prepare what the first requests would, before the process is copied."""
        self._backend.before_snapshot()

    def after_restore(self) -> None:
        """Drop what the copies of a process must not share; what it has built stays."""
        self._backend.after_restore()
        self.runtime.rename()

    async def idle(self) -> None:
        """Wait until nothing is left to work on; return immediately if no workers run."""
        if self._workers is not None:
            await self._workers.idle()

    def close(self) -> None:
        """Close a program's database."""
        if self._close is not None:
            self._close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _make_known_keys(self, endpoints: tuple[str, str] | None) -> CachedAuthenticator:
        """Return what authenticates the keys of this server, or of the external service."""
        if endpoints is None:
            return CachedAuthenticator(TokenAuthenticator(self.documents, self.clock), seconds=CACHE_SECONDS)
        from mail.auth.service import AuthService

        return CachedAuthenticator(AuthService(self._open_client(), *endpoints))

    def _keep_tokens(self, seal: "Seal", swarm: str) -> "CallerTokens":
        """Return what keeps the tokens of callers."""
        from mail.auth.caller_tokens import CallerTokens

        return CallerTokens(self.documents, self.clock, seal, swarm, self.config.auth.jwt.caller_of)

    def _open_client(self) -> "httpx2.AsyncClient":
        """Return a client that `stop` closes."""
        import httpx2

        client = httpx2.AsyncClient()
        self._resources.push_async_callback(client.aclose)
        return client


class _TaskMail:
    """Sends the mail of tasks by MAIL 2.0, whose host is made for the first of it."""

    def __init__(self, system: "System[Any]", webhooks: HTTPWebhooks) -> None:
        self._system = system
        webhooks.own["mail2"] = self.answer

    async def send(self, key: TaskKey, member: str, address: str, message: MAILMessage) -> None:
        """Send what a task has for a member of the swarm."""
        try:
            tasks = await self._tasks()
        except MAILError as error:
            raise PeerUnavailable(error.detail) from error
        await tasks.send(key, member, address, message)

    async def answer(self, url: str, event_id: str, body: bytes) -> Reply:
        """Send the answer of a task that began by mail."""
        return await (await self._tasks()).answer(url, event_id, body)

    async def _tasks(self) -> "Tasks":
        tasks = (await self._system.open_mail()).tasks
        assert tasks is not None
        return tasks


def read_swarm(config: ServerConfig) -> tuple[SwarmCore, SwarmSpec | None]:
    """Build the configured swarm, and return it with its entry if it comes from swarms.json.

    It may import any module. It gets the text of the protocol for agents' `help`. Raises ConfigurationError.
    """
    settings: dict[str, Any] = {
        "task_message_limit": config.settings.task_message_limit,
        "failing_call_limit": config.settings.failing_call_limit,
        "print_llm_streams": config.settings.print_llm_streams,
    }
    if config.swarm.source.startswith(PYTHON_PREFIX):
        return _as_configured(_python_swarm(config.swarm, settings), config.swarm), None
    entry = load_swarm(config.swarm.name, config.swarm.source)
    try:
        swarm = build_swarm(entry, **settings)
    except ConfigurationError as error:
        raise ConfigurationError(f"{find_source(config.swarm.source)}: {error.detail}") from error
    return _as_configured(swarm, config.swarm), entry


def _as_configured(swarm: SwarmCore, config: SwarmConfig) -> SwarmCore:
    """Add the text of the protocol, and the description of the swarm that the configuration has."""
    return with_protocol(
        replace(
            swarm,
            description=swarm.description if config.description is None else config.description,
            keywords=swarm.keywords if config.keywords is None else tuple(config.keywords),
            public=swarm.public if config.public is None else config.public,
        )
    )


def _python_swarm(config: SwarmConfig, settings: dict[str, Any]) -> SwarmCore:
    """Build the swarm that a module defines: a `Swarm` or a `MAILSwarmTemplate`, of packages above this one."""
    found = read_python_string(config.source)
    template = getattr(found, "template", found)
    if isinstance(template, type) or not hasattr(template, "to_core"):
        raise ConfigurationError(f"{config.source} must be a Swarm or a MAILSwarmTemplate")
    swarm: SwarmCore = template.to_core(**settings)
    if swarm.name != config.name:
        raise ConfigurationError(f"{config.source} is the swarm {swarm.name!r}, not {config.name!r}")
    return swarm


def current_swarm(
    runtime: Runtime, documents: ServerDocuments, config: ServerConfig, entry: SwarmSpec
) -> CurrentSwarm:
    """Make the runtime's swarm replaceable; `entry` is the entry that it was built from."""

    def build(entry: SwarmSpec, is_loaded: bool) -> SwarmCore:
        swarm = build_swarm(
            entry,
            task_message_limit=config.settings.task_message_limit,
            failing_call_limit=config.settings.failing_call_limit,
            allowed_prefixes=config.settings.allowed_imports if is_loaded else None,
            print_llm_streams=config.settings.print_llm_streams,
        )
        return _as_configured(swarm, config.swarm)

    return CurrentSwarm(runtime, documents, entry, build)


def with_protocol(swarm: SwarmCore) -> SwarmCore:
    """Add the text of the protocol, for agents' `help`."""
    return replace(swarm, protocol=PROTOCOL.read_text(encoding="utf-8"))


def has_issuer(settings: JWTSettings) -> bool:
    """Return whether there is an identity provider. Raises ConfigurationError if its tokens can't be verified."""
    if problem := settings.problem():
        raise ConfigurationError(f"[server.auth.jwt]: {problem}")
    if settings.issuer and find_spec("jwt") is None:
        raise ConfigurationError(
            "[server.auth.jwt]: pip install 'mail-serverless[oidc]', or on AWS set the parameter JwtIssuer"
        )
    return bool(settings.issuer)


def read_auth_endpoints(environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Return the URLs of the external authentication service, None if there is none. Raises ConfigurationError."""
    login, token_info = (environ.get(name, "") for name in AUTH_VARIABLES)
    if login and token_info:
        return login, token_info
    if login or token_info:
        given, missing = AUTH_VARIABLES if login else reversed(AUTH_VARIABLES)
        raise ConfigurationError(
            f"{given} is set but {missing} is not; set both, or neither for built-in tokens"
        )
    return None


def read_seal(environ: Mapping[str, str]) -> "Seal | None":
    """Return what seals the tokens of callers, if the environment has a key for it. Raises ConfigurationError."""
    if not any(environ.get(name) for name in SEALING_KEYS):
        return None
    if find_spec("cryptography") is None:
        raise ConfigurationError(f"{SEALING_KEYS[0]}: pip install 'mail-serverless[oidc]'")
    from mail.auth.caller_tokens import Seal

    return Seal.read(environ)


async def _close_models() -> None:
    """Close the connections to language models, if there are any: the event loop is about to end."""
    if "mail.factories.ports" in sys.modules:
        from mail.factories.ports import close_clients

        await close_clients()
