"""Bugs to order: with any of them built in, a round of chaos must fail, and say which invariant does not hold."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest.mock import patch

from chaos.faults import LossyQueue
from mail.adapters.sqlite.store import SQLiteStore
from mail.adapters.sqlite.task_cache import CachedTask, Position
from mail.core.decisions.turn import Settlement
from mail.core.decisions.webhooks import Batch, settle
from mail.core.engine import admission
from mail.core.engine import webhooks as webhook_turns
from mail.core.engine.actions import ActionRunner
from mail.core.engine.recovery import Recovery
from mail.core.engine.runtime import Runtime
from mail.core.engine.watch import Watch
from mail.core.protocol.message import MAILMessage
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.events import encode_events
from mail.core.task.ports import WakeUp
from mail.core.task.task import Task, TaskKey, TaskStatus


@contextmanager
def nobody_is_woken() -> Iterator[None]:
    """Tokens get lost, and no sweep looks for what they were for."""

    async def lose(self: LossyQueue, wake_ups: Sequence[WakeUp]) -> None:
        return None

    async def sleep_on(self: Recovery, **_: Any) -> int:
        return 0

    with patch.object(LossyQueue, "publish", lose), patch.object(Recovery, "recover", sleep_on):
        yield


@contextmanager
def altered_commits(alter: Callable[[TaskChange], TaskChange]) -> Iterator[None]:
    """What is stored is not what was decided."""
    commit = SQLiteStore.commit

    async def commit_something_else(self: SQLiteStore, change: TaskChange) -> None:
        await commit(self, alter(change))

    with patch.object(SQLiteStore, "commit", commit_something_else):
        yield


@contextmanager
def lost_messages() -> Iterator[None]:
    """Some that are announced are put into no mailbox."""
    deliver = Draft._deliver

    def deliver_some(
        self: Draft, message: MAILMessage, mailboxes: Iterable[str], extra: dict[str, Any]
    ) -> None:
        deliver(self, message, () if self.seq % 5 == 4 else mailboxes, extra)

    with patch.object(Draft, "_deliver", deliver_some):
        yield


def with_the_first_message_twice(change: TaskChange) -> TaskChange:
    entry = change.deliveries[0] if change.deliveries else None
    if entry is None or any(event.seq == entry.seq - 1 for event in change.events[:1]):
        return change
    return replace(change, deliveries=(*change.deliveries, entry))


def without_history(change: TaskChange) -> TaskChange:
    is_late = any(record.n == 3 for record in change.histories)
    return replace(change, histories=()) if is_late else change


def without_an_event(change: TaskChange) -> TaskChange:
    left = change.events[1:]
    return replace(change, events=left, encoded_events=encode_events(left)) if len(left) > 1 else change


@contextmanager
def the_last_comes_first() -> Iterator[None]:
    """The mail that came last, or is the least urgent, is read first."""

    def tail(self: CachedTask, mailbox: str) -> Position | None:
        mail = self._mail.get(mailbox)
        return mail[-1] if mail else None

    with patch.object(CachedTask, "head", tail):
        yield


@contextmanager
def actions_run_twice() -> Iterator[None]:
    """To be on the safe side."""
    run = ActionRunner._run_action

    async def run_twice(self: ActionRunner, *args: Any) -> Any:
        await run(self, *args)
        return await run(self, *args)

    with patch.object(ActionRunner, "_run_action", run_twice):
        yield


@contextmanager
def empty_promises() -> Iterator[None]:
    """A task that is to be cancelled is said to be so."""

    async def promise(self: Runtime, caller: Any, task_id: str, reason: str = "") -> Task:
        task = await self.store.load(TaskKey(str(caller), task_id))
        assert task is not None
        return replace(task, status=TaskStatus.CANCELLED)

    with patch.object(Runtime, "cancel", promise):
        yield


@contextmanager
def forgotten_keys() -> Iterator[None]:
    """What is said twice is done twice."""
    with patch.object(admission, "find", lambda *_: None):
        yield


@contextmanager
def stuttering_streams() -> Iterator[None]:
    """A client that reconnects gets the last event again."""
    watch = Watch.watch

    def watch_from_before(self: Watch, key: Any, *, after: int = 0, **options: Any) -> Any:
        return watch(self, key, after=max(0, after - 1), **options)

    with patch.object(Watch, "watch", watch_from_before):
        yield


@contextmanager
def dead_letters_that_nobody_keeps() -> Iterator[None]:
    """What an agent has failed over is gone."""
    with patch.object(Settlement, "_dead_letter", lambda *_: None):
        yield


@contextmanager
def optimistic_webhooks() -> Iterator[None]:
    """What a receiver has not taken counts as sent."""

    def settle_as_sent(draft: Draft, claim: Any, batch: Batch, *rest: Any) -> TaskChange:
        if batch.failed is not None:
            batch = Batch((*batch.sent, batch.failed), 200)
        return settle(draft, claim, batch, *rest)

    with patch.object(webhook_turns, "settle", settle_as_sent):
        yield


SABOTAGES: dict[str, tuple[str, Callable[[], AbstractContextManager[None]]]] = {
    "nobody is woken": ("end", nobody_is_woken),
    "lost messages": ("1", lost_messages),
    "messages that come twice": ("1", partial(altered_commits, with_the_first_message_twice)),
    "the last comes first": ("4", the_last_comes_first),
    "actions run twice": ("2", actions_run_twice),
    "forgotten histories": ("2", partial(altered_commits, without_history)),
    "empty promises": ("end", empty_promises),
    "forgotten keys": ("end", forgotten_keys),
    "stuttering streams": ("3", stuttering_streams),
    "dead letters that nobody keeps": ("1", dead_letters_that_nobody_keeps),
    "optimistic webhooks": ("1", optimistic_webhooks),
    "lost events": ("3", partial(altered_commits, without_an_event)),
}
"""By name: the invariant that does not hold any more, and how to break it."""
