"""The interface of databases: tasks, documents and a queue. `mail.bootstrap.backends` lists the databases."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol

from mail.core.protocol.clock import Clock
from mail.core.protocol.values import value
from mail.core.task.leases import Lease
from mail.core.task.ports import Documents, Files, LiveLink, Store, TurnQueue, WakeUp
from mail.core.task.task import TaskKey
from mail.errors import ConfigurationError

if TYPE_CHECKING:
    from mail.core.task.rows import Rows

Recover = Callable[[float], Awaitable[object]]
"""`Runtime.recover`: wake the mailboxes of tasks that have been quiet for so many seconds."""


class Workers(Protocol):
    """The workers of a process, as the queue that they take from sees them."""

    @property
    def free(self) -> int:
        """The number of turns of agents that may begin at once."""

    def lets_begin(self, caller: str, reserved: int = 0, /) -> bool:
        """Return whether a turn of a caller may begin at once besides `reserved` others, and a worker stays free."""

    def new_lease(self) -> Lease:
        """Return a lease for a turn that waits for one of them."""


class WakeUpSource(Protocol):
    """The consumer's end of a queue."""

    def serve(self, workers: Workers | None, /) -> None:
        """Say which workers take from the queue, before they do; None when they stop, so that others get the work."""

    async def take(self, excluded: Collection[str] = (), /) -> tuple[TaskKey, str]:
        """Return the most urgent wake-up of an agent, when there is one; for one taker at a time.

        Callers (`TaskKey.instance`) take turns inside a tier; the wake-ups of those excluded wait.
        """

    async def take_outbound(self) -> tuple[TaskKey, str]:
        """Return the most urgent wake-up for outbound mail, when there is one; for one taker at a time."""

    def put(self, wake_up: WakeUp, /) -> None:
        """Publish one wake-up."""

    def __len__(self) -> int:
        """Return the number of wake-ups that only this process can take."""


class WorkQueue(TurnQueue, WakeUpSource, Protocol):
    """Both ends of a queue whose wake-ups are taken in this process."""


async def _nothing(*_: object) -> None:
    """Do nothing."""


@value(kw_only=True)
class Backend[Q: TurnQueue]:
    """An open database.

    Attributes:
        files: stores files; None if the database can't.
        rows: returns the store of rows of text, which few swarms need; None if the database has none.
        live: carries live events to other processes; None if only one process works on the database.
        depths: the lengths of the queues of this process, for metrics, by queue.
        start: begins background work, before workers start.
        close: ends that work and closes the database.
        abandon: closes the database without waiting; only for one that a program may embed.
        before_snapshot: prepares what the first requests would, before the process is copied.
        after_restore: drops what copies of the process must not share.
        place: the file, for a database whose setting leaves the choice of it to the adapter.
    """

    store: Store
    documents: Documents
    queue: Q
    files: Files | None = None
    rows: "Callable[[], Rows] | None" = None
    live: LiveLink | None = None
    depths: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    start: Callable[[Recover], Awaitable[None]] = _nothing
    close: Callable[[], Awaitable[None]] = _nothing
    abandon: Callable[[], None] = lambda: None
    before_snapshot: Callable[[], None] = lambda: None
    after_restore: Callable[[], None] = lambda: None
    place: str = ""


class Database(ABC):
    """A kind of database, at a place that `[server.storage] database` names.

    Attributes:
        not_for: the uses that it is refused for, and why.
        row_options: further options of the URL of an exchange; None if exchanges are not supported.
        backup_tools: the commands that copy and restore the database, if `mail` can't.
    """

    not_for: ClassVar[Mapping[Literal["server", "program"], str]] = {}
    row_options: ClassVar[tuple[str, ...] | None] = None
    backup_tools: ClassVar[str] = ""

    def __init__(self, place: str, *, synchronous: Literal["normal", "full"] = "normal") -> None:
        self.place = place
        self.synchronous: Literal["normal", "full"] = synchronous

    @abstractmethod
    def open(self, swarm: str, clock: Clock, local: WorkQueue) -> Backend[WorkQueue]:
        """Open the database for the tasks of a swarm; create what is missing. Raises ConfigurationError.

        Args:
            local: a queue in this process, for a database that only one process works on.
        """

    @abstractmethod
    async def create_tables(self) -> tuple[str, ...]:
        """Create the tables that are missing; return the names of all. Raises ConfigurationError."""

    async def rebuild_index(self) -> int:
        """Make the index for searches again, also while a server runs; return the number of tasks in it.

        Raises ConfigurationError for a database without one.
        """
        raise ConfigurationError(
            "this database has no index for searches: titles and ids are searched as they are"
        )

    def back_up(self, file: Path) -> None:
        """Copy the database into a new file, also while a server runs on it. Raises ConfigurationError."""
        raise ConfigurationError(self.backup_tools)

    def restore(self, file: Path) -> Path | None:
        """Replace the database by a backup, while no server runs on it. Return the file that now has the replaced one.

        Raises ConfigurationError, and changes nothing, if that is not possible.
        """
        raise ConfigurationError(self.backup_tools)

    @abstractmethod
    def open_documents(self) -> AbstractAsyncContextManager[Documents]:
        """Open the documents only, also while a server runs on the database. Raises ConfigurationError."""

    @abstractmethod
    async def open_rows(self, options: Mapping[str, str]) -> "Rows":
        """Open the rows only, also while a server runs on the database. Raises ConfigurationError."""
