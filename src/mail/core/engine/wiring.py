"""The wiring of the engine: a swarm, the ports that it runs on, and its limits, which all parts of a runtime share."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property

from mail.core.decisions.caller_limits import NO_CALLER_LIMITS, CallerLimits
from mail.core.engine.documents import ServerDocuments
from mail.core.engine.files import CallerFiles
from mail.core.engine.heartbeat import LEASE_SECONDS
from mail.core.engine.histories import HistoryCache
from mail.core.engine.pacing import Pacer
from mail.core.engine.telemetry import NO_TRACER, Observers, Tracer, is_remarkable
from mail.core.engine.versions import Versions
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import Clock
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.files import MAX_FILE_BYTES
from mail.core.task.limits import NO_BUDGET, UNREACHABLE_SECONDS, Budget
from mail.core.task.permits import PermitSource
from mail.core.task.ports import Files, LiveLink, Members, Peers, Store, TurnQueue, Webhooks
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.core.turns.context import Services, TokensOfCallers

HOP_LIMIT = 8
"""How many swarms a task may pass through."""


@dataclass(eq=False, repr=False)
class Wiring:
    """The swarm, ports and limits of a runtime. A running program may exchange its swarm and its peers.

    Attributes:
        turn_seconds: the time limit for an agent's turn with its actions; after it the agent counts as failed.
        lease_seconds: seconds after which other workers run the turn of a worker that is dead, frozen or cut off.
        peers: the connection to other swarms; without it, mail for them returns to its sender.
        members: the connection to members outside of the swarm; without it, mail for them returns to its sender.
        hop_limit: how many swarms a task may have passed through that another swarm asks for.
        entrypoints_only: whether other swarms may write only to agents that people may write to.
        unreachable_seconds: how long mail is retried if its swarm can't be connected to, and has not answered for an
            hour.
        caller_limits: the limits on what callers keep busy.
        budgets: the upper limits for tasks, by the role of their owner or by `role:id`.
        observers: observe what happens.
        tracer: traces tasks.
        webhooks: deliver events; without them, no task has webhooks.
        live_link: carries live events between processes.
        files: store files; without them, messages have none.
        max_file_bytes: the most bytes of a file.
        base_url: the URL by which callers reach the server, for callbacks; empty without one.
        permits: keep the limits of models; without them, providers refuse what is too much.
        caller_tokens: keep the tokens of callers; without them, none is passed on.
        versions: keep the versions of the swarm; without them, nobody can look up an earlier one.
        documents: everything that is stored besides tasks; without them, nothing is on hold, and no caller is deleted.
        retention: seconds after which tasks are deleted in which nothing happens; None for never.
        forget: deletes what is stored of a deleted task, or of a caller (a key without an id), beside tasks and
            documents; returns whether nothing is left.
        keeps_latest: whether a task is kept then, and only its past is deleted.
        histories: caches the histories of agents that took a turn here recently.
        pacer: spaces out the work on large messages.
        caller_files: the files of callers.
        services: what it lends to its turns.
    """

    swarm: SwarmCore
    store: Store
    queue: TurnQueue
    clock: Clock
    _: KW_ONLY
    turn_seconds: float = 840.0
    lease_seconds: float = LEASE_SECONDS
    peers: Peers | None = None
    members: Members | None = None
    hop_limit: int = HOP_LIMIT
    entrypoints_only: bool = False
    unreachable_seconds: float = UNREACHABLE_SECONDS
    caller_limits: CallerLimits = NO_CALLER_LIMITS
    budgets: Mapping[str, Budget] = field(default_factory=dict)
    observers: Observers = ()
    tracer: Tracer = NO_TRACER
    webhooks: Webhooks | None = None
    live_link: LiveLink | None = None
    permits: PermitSource | None = None
    caller_tokens: TokensOfCallers | None = None
    versions: Versions | None = None
    documents: ServerDocuments | None = None
    retention: float | None = None
    forget: Callable[[TaskKey], Awaitable[bool]] | None = None
    keeps_latest: bool = False
    base_url: str = ""
    files: Files | None = None
    max_file_bytes: int = MAX_FILE_BYTES
    histories: HistoryCache = field(default_factory=HistoryCache, init=False)
    pacer: Pacer = field(default_factory=Pacer, init=False)
    caller_files: CallerFiles = field(init=False)

    def __post_init__(self) -> None:
        self.caller_files = CallerFiles(self.files, self.clock, self.max_file_bytes)

    @cached_property
    def services(self) -> Services:
        """What the process lends to each of its turns, from the first one on."""
        tracer = None if self.tracer is NO_TRACER else self.tracer
        return Services(tracer, self.permits, self.caller_tokens)

    def serves(self, key: TaskKey) -> bool:
        """Return whether the task belongs to this swarm; a store may contain tasks of other swarms."""
        return key.instance.rpartition("@")[2] == self.swarm.name

    def ceiling(self, caller: Principal) -> Budget:
        """Return the upper limit for tasks of this caller."""
        if not self.budgets:
            return NO_BUDGET
        own = self.budgets.get(f"{caller.role}:{caller.id}", NO_BUDGET)
        return own.tightened(self.budgets.get(caller.role, NO_BUDGET))

    async def prepare(self, task: Task | None) -> None:
        """Read the version of the swarm on which a task finishes its run, before a decision on it (`swarm_of`)."""
        if task is not None and (versions := self.versions_of(task)) is not None:
            await versions.prepare(task, self.swarm)

    def swarm_of(self, task: Task | None) -> SwarmCore:
        """Return the version of the swarm by which to decide on a task; its agents may not run here."""
        versions = None if task is None else self.versions_of(task)
        return self.swarm if task is None or versions is None else versions.known(task, self.swarm)

    def draft(self, task: Task) -> Draft:
        """Return the draft of a task for a decision on it, by that version."""
        return Draft(task, self.swarm_of(task), self.clock)

    def versions_of(self, task: Task) -> Versions | None:
        """Return the versions of the swarm, if the task may run on another one than the present."""
        if self.versions is not None and (self.swarm.finishes or task.generation.tries_draft):
            return self.versions
        return None

    def now(self) -> float:
        """Return the time in seconds since the epoch."""
        return self.clock.now().timestamp()

    def observe(self, change: TaskChange) -> None:
        """Pass a committed change to the observers."""
        if self.observers and is_remarkable(change):
            for observer in self.observers:
                observer.task_changed(change)
