"""Turns that commits open ahead: a process that commits a message runs its turn, too, if a worker is free.

Such a commit takes the lease of the next turn, and the turn reads what was committed. So it needs no wake-up in the
table, no look for it, and no look at the task. Each opened turn has a worker to itself from the moment it is planned.
When workers are scarce, nothing is opened ahead: then wake-ups go through the table, in which callers take turns, and
which other servers take from.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mail.adapters.postgres.notifier import Notifier, change_topic
from mail.adapters.postgres.schema import task_number
from mail.adapters.shared.backend import Workers
from mail.core.task.change import InboxEntry, TaskChange, Turn
from mail.core.task.leases import Lease
from mail.core.task.mailboxes import goes_out
from mail.core.task.task import TaskKey

FRESH_SECONDS = 1.0
"""How long an opened turn may wait for its worker. After that its task is read again, and its lease renewed."""

REMEMBERED_TASKS = 10_000


@dataclass(frozen=True, slots=True)
class Opening:
    """A turn that a commit is to open.

    Attributes:
        entry: the message that it reads, the first of its mailbox.
    """

    entry: InboxEntry
    lease: Lease


@dataclass(slots=True, eq=False)
class Opened:
    """A turn that a commit has opened, and that waits for its worker. It listens to the changes of its task.

    Attributes:
        is_stale: whether another server has changed the task since, such as by cancelling it.
    """

    turn: Turn
    is_stale: bool = False

    def notify(self, news: object) -> None:
        """Take note of a change of the task; those of this process come with news."""
        self.is_stale |= news is None


class Ahead:
    """The turns that the commits of one process open ahead, until they begin.

    Attributes:
        workers: run the turns; without them, none is opened.
        on_opened: called with each opened turn; it makes a worker begin it.
        on_planned: called when a plan has been carried out, so that the workers it kept free are available.
    """

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self.workers: Workers | None = None
        self.on_opened: Callable[[Turn], None] = lambda turn: None
        self.on_planned: Callable[[], None] = lambda: None
        self._planned = 0
        self._opened: dict[tuple[TaskKey, str], Opened] = {}
        self._tasks: OrderedDict[TaskKey, None] = OrderedDict()

    @property
    def reserved(self) -> int:
        """The number of workers that turns which have not begun need."""
        return self._planned + len(self._opened)

    def plan(self, change: TaskChange) -> list[Opening]:
        """Return the turns that the commit of a change is to open: of mailboxes that are empty but for its messages.

        Each keeps a worker free until `settle`.
        """
        task, workers = change.task, self.workers
        if workers is None or not change.deliveries or task.manual or not task.is_running:
            return []
        mail: defaultdict[str, list[InboxEntry]] = defaultdict(list)
        for entry in change.deliveries:
            mail[entry.mailbox].append(entry)
        planned: list[Opening] = []
        for mailbox, entries in mail.items():
            if (
                goes_out(mailbox)
                or mailbox in task.queued
                or sum(task.pending.get(mailbox, ())) != len(entries)
            ):
                continue
            if not workers.lets_begin(change.key.instance, self.reserved + len(planned)):
                break
            first = min(entries, key=lambda entry: (entry.tier, entry.seq))
            planned.append(Opening(first, workers.new_lease()))
        self._planned += len(planned)
        return planned

    def settle(
        self, change: TaskChange, planned: Sequence[Opening], opened: Sequence[str], leased: Sequence[str]
    ) -> None:
        """Let the turns begin that a commit has opened, in these mailboxes; `leased` are others with a lease.

        Call it after each `plan`, whatever has become of the commit.
        """
        self._planned -= len(planned)
        running = sum(not goes_out(mailbox) for mailbox in leased)
        for opening in planned:
            if opening.entry.mailbox in opened:
                turn = Turn(change.task, opening.entry, opening.lease, [], None, running)
                running += 1
                self._add(turn)
                self.on_opened(turn)
        if planned:
            self.on_planned()

    def has(self, turn: Turn) -> bool:
        """Return whether an opened turn still waits for its worker."""
        opened = self._opened.get((turn.task.key, turn.mailbox))
        return opened is not None and opened.turn is turn

    def covers(self, key: TaskKey, mailbox: str) -> bool:
        """Return whether a turn of a mailbox is open, and waits for its worker."""
        return (key, mailbox) in self._opened

    def begin(self, key: TaskKey, mailbox: str) -> Opened | None:
        """Remove and return the opened turn of a mailbox, which begins now."""
        return self._remove(key, mailbox) if self.covers(key, mailbox) else None

    def stop(self, key: TaskKey) -> list[Turn]:
        """Remove and return the opened turns of a task that has stopped; they may not begin."""
        self._tasks.pop(key, None)
        return [self._remove(*place).turn for place in [*self._opened] if place[0] == key]

    def abandon(self) -> list[Turn]:
        """Remove and return all opened turns, for other servers to run."""
        return [self._remove(*place).turn for place in [*self._opened]]

    def runs(self, key: TaskKey) -> bool:
        """Return whether turns of a task were opened here, and it has not ended here since."""
        return key in self._tasks

    def _add(self, turn: Turn) -> None:
        key = turn.task.key
        if self.covers(key, turn.mailbox):  # by a turn whose lease another server has taken over
            self._remove(key, turn.mailbox)
        self._opened[key, turn.mailbox] = opened = Opened(turn)
        self._notifier.add(change_topic(task_number(key)), opened)
        self._tasks[key] = None
        if len(self._tasks) > REMEMBERED_TASKS:
            self._tasks.popitem(last=False)

    def _remove(self, key: TaskKey, mailbox: str) -> Opened:
        opened = self._opened.pop((key, mailbox))
        self._notifier.remove(change_topic(task_number(key)), opened)
        return opened
