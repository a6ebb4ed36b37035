"""Turns: leases the mailboxes of this swarm, runs their turns, and ends them.

run ─ open ─► LeasedTurn ─ execute ─► commit ─► wake-ups
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace

from mail.core.decisions.cancel import is_discarded
from mail.core.decisions.turn import end_unreadable
from mail.core.engine.attempts import (
    ENDED,
    HELD_SECONDS,
    MAX_ATTEMPTS,
    NARROWED,
    Suspects,
    abandon_last,
    counted_attempts,
    failed_attempts,
    left_by,
    seq_of,
)
from mail.core.engine.cancelled_calls import CancelledCalls
from mail.core.engine.commit import Committer, load_task
from mail.core.engine.copies import HandOver
from mail.core.engine.heartbeat import SKEW, Heartbeat, OnRenewal
from mail.core.engine.interswarm import EARLY_SECONDS, PeerTurn, PollTurn
from mail.core.engine.leased_turn import LeasedTurn, TurnReport
from mail.core.engine.live import LiveHub
from mail.core.engine.telemetry import NO_TRACER
from mail.core.engine.turn import AUTOMATIC, AgentTurn
from mail.core.engine.versions import Versions
from mail.core.engine.wake_ups import after_turn, looks, of_idle, publish
from mail.core.engine.webhooks import WebhookTurn
from mail.core.engine.wiring import Wiring
from mail.core.task.change import TaskChange, Turn
from mail.core.task.leases import Claim, ExpiredLease, Lease, Park, WebhookClaim
from mail.core.task.mailboxes import CANCELLED_CALLS, goes_out, has_no_messages, is_sent, polled_by
from mail.core.task.ports import Busy, Idle, WakeUp, wake_ups
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import Task, TaskKey
from mail.core.turns.activity import TurnActivity
from mail.core.turns.context import CURRENT_TASK, TURN
from mail.errors import LeaseLost, MAILError, StoreUnavailable, TextGone

logger = logging.getLogger(__name__)

LEASE_MARGIN = 30.0
"""Seconds past the time limit of a turn during which its lease is still renewed, for its commit."""

COMMIT_SECONDS = 10.0
"""Seconds of a worker's life reserved for the commit; half of its life if that is shorter than twice as long."""

Work = Callable[[float], Coroutine[None, None, TaskChange | Lease | None]]
"""The work of a leased turn within so many seconds."""

NAMED = 10
"""How many turns of a dead worker its line in the log names."""


class Turns:
    """The turns of this process.

    Attributes:
        live: passes live events to those who watch a task.
        leases: how many this process has made.
    """

    def __init__(self, wiring: Wiring) -> None:
        self.live = LiveHub(self.activities, wiring.live_link)
        self._wiring = wiring
        self._suspects = Suspects(self.is_quiet)
        self._name = wiring.clock.new_id()
        self.leases = 0
        self._heartbeat = Heartbeat(wiring.store, wiring.clock, wiring.lease_seconds)
        self._running: defaultdict[TaskKey, set[LeasedTurn]] = defaultdict(set)

    def rename(self) -> None:
        """Take another name for leases, which copies of a process must not share."""
        self._name = self._wiring.clock.new_id()

    # ------------------------------------------------------------------------------------------- what runs here

    def activities(self, key: TaskKey) -> list[TurnActivity]:
        """Return what the turns of a task do that run in this process."""
        running = self._running.get(key, ())
        return [leased.activity for leased in running if leased.activity is not None]

    def runs(self, lease: Lease) -> bool:
        """Return whether the turn of a lease runs here."""
        return lease.token in self._heartbeat

    def interrupt(self, task: Task) -> None:
        """Stop waiting for the agents of a task whose turns it discards, as it has been cancelled."""
        for leased in self._running.get(task.key, ()):
            if is_discarded(task, leased.turn):
                leased.interrupt()

    def is_quiet(self) -> bool:
        """Return whether no agent takes a turn here."""
        return all(goes_out(each.turn.mailbox) for running in self._running.values() for each in running)

    def _is_late(self, key: TaskKey, mailbox: str) -> bool:
        """Return whether this process runs the mailbox's turn, but its event loop was too busy to renew the lease."""
        running = self._running.get(key)
        return running is not None and any(
            leased.turn.mailbox == mailbox and self._heartbeat.is_late(leased) for leased in running
        )

    # -------------------------------------------------------------------------------------------------- leases

    async def lease(
        self, key: TaskKey, mailbox: str, seconds: float, attempt: int = 1, seq: int = 0
    ) -> tuple[Turn, int] | TurnReport.Outcome:
        """Lease a mailbox for `seconds`, without a renewal; return its turn and the number of cached history chunks."""
        wiring = self._wiring
        known = wiring.histories.count(key, mailbox)
        now = wiring.clock.now().timestamp()
        CURRENT_TASK.set(key.task_id)
        if key in self._running and self._is_late(key, mailbox):
            return TurnReport.Outcome.BUSY
        if wiring.versions is not None and wiring.versions.needs(wiring.swarm):
            await wiring.versions.keep(wiring.swarm)
        lease = self._lease(now, seconds, attempt, seq)
        try:
            turn = await wiring.store.open_turn(key, mailbox, lease, now=now, history_after=known)
        except TextGone:
            if await self._end_unreadable(key, mailbox):
                return TurnReport.Outcome.IDLE
            raise
        if not isinstance(turn, Turn):
            return await self._not_leased(mailbox, turn)
        if turn.replaced is not None:
            self._note_replaced(turn, turn.replaced)
        return turn, known

    async def _end_unreadable(self, key: TaskKey, mailbox: str) -> bool:
        """End a task of whose mailbox no turn can be opened any more; return False if it doesn't run."""
        wiring = self._wiring
        change = await Committer(wiring.store).commit(
            lambda task: end_unreadable(wiring.draft(task), mailbox),
            await load_task(wiring.store, key),
        )
        if change is None:
            return False
        logger.error("task %s: it was ended, as %s has lost a text that it must read", key.task_id, mailbox)
        wiring.observe(change)
        await publish(wiring.queue, wake_ups(change.task))
        return True

    async def _claim(
        self, key: TaskKey, mailbox: str, seconds: float, attempt: int = 0
    ) -> WebhookTurn | CancelledCalls | PollTurn | TurnReport.Outcome:
        """Lease the mailbox of a webhook, that of cancelled calls, or one of polls, unless it is too early for them."""
        wiring = self._wiring
        now = wiring.now()
        CURRENT_TASK.set(key.task_id)
        if self._is_late(key, mailbox):
            return TurnReport.Outcome.BUSY
        claim = await wiring.store.claim(key, mailbox, self._lease(now, seconds, attempt), now=now)
        if not isinstance(claim, WebhookClaim):
            return await self._not_leased(mailbox, claim)
        if claim.replaced is not None:
            self._note_replaced(claim, claim.replaced)
        if polled_by(mailbox) is None:
            if mailbox == CANCELLED_CALLS:
                return CancelledCalls(claim, wiring, self.live)
            return WebhookTurn(claim, wiring)
        if (
            not 0.0 < claim.task.not_before(mailbox) <= now + EARLY_SECONDS
        ):  # a wake-up for that time is published
            await wiring.store.release(claim)
            return TurnReport.Outcome.IDLE
        await wiring.prepare(claim.task)
        return PollTurn(claim, wiring)

    def new_lease(self) -> Lease:
        """Return a lease for a turn that waits for a worker of this process, to be renewed after `lease_seconds`."""
        return self._lease(self._wiring.now(), self._wiring.lease_seconds, 0)

    def _lease(self, now: float, seconds: float, attempt: int, seq: int = 0) -> Lease:
        self.leases += 1
        return Lease(f"{self._name}/{self.leases}/{now:.3f}", now + seconds, attempt, seq)

    async def _not_leased(self, mailbox: str, opened: Busy | Idle) -> TurnReport.Outcome:
        """Return why there is no claim on a mailbox; wake those of an idle task (`of_idle`)."""
        match opened:
            case Busy():
                return TurnReport.Outcome.BUSY
            case Idle(task):
                if task is not None:
                    await publish(self._wiring.queue, of_idle(task, mailbox, self._wiring.now()))
                return TurnReport.Outcome.IDLE

    def _note_replaced(self, claim: Turn | WebhookClaim, replaced: Lease) -> None:
        """Note the worker whose lease a claim has replaced, if it was not known to be gone."""
        if replaced.expires and replaced.park is None:
            self.note_taken_over([ExpiredLease(claim.task, claim.mailbox, replaced)])

    def note_taken_over(self, expired: Sequence[ExpiredLease]) -> None:
        """Log workers that are dead, frozen or cut off, each once, and count their turns."""
        by_worker: defaultdict[str, list[ExpiredLease]] = defaultdict(list)
        for each in expired:
            by_worker[each.lease.worker].append(each)
            for observer in self._wiring.observers:
                observer.turn_taken_over(each.mailbox)
        for worker, turns in by_worker.items():
            logger.warning(
                "worker %s has not renewed its leases and counts as dead; taken over from it: %s",
                worker,
                ", ".join(f"{each.mailbox} of task {each.task.task_id}" for each in turns[:NAMED])
                + (f" and {len(turns) - NAMED} more" if len(turns) > NAMED else ""),
            )

    # --------------------------------------------------------------------------------------------------- turns

    async def run(
        self,
        key: TaskKey,
        mailbox: str,
        *,
        seconds: float | None = None,
        on_renewal: OnRenewal | None = None,
    ) -> TurnReport:
        """Run the next turn of a mailbox, if there is one. Safe to call at any time, any number of times.

        Args:
            seconds: how long the caller will live, if that is limited: the turn is stopped in time for its commit.
            on_renewal: called as the turn begins, and after each renewal of its lease, which a quick turn doesn't need.
        """
        lease_seconds = self._lease_seconds(seconds)
        if on_renewal is None:
            opened = await self._open(key, mailbox, lease_seconds)
        else:
            opened = await self._begin(key, mailbox, lease_seconds, on_renewal)
        if isinstance(opened, TurnReport.Outcome):
            return self._not_begun(mailbox, opened)
        if opened.turn.replaced is not None and (earlier := counted_attempts(opened.turn)):
            return await self._run_again(opened, earlier, seconds, on_renewal)
        return await self.execute(opened, opened.run, seconds, on_renewal)

    async def _run_again(
        self, leased: LeasedTurn, earlier: int, seconds: float | None, on_renewal: OnRenewal | None
    ) -> TurnReport:
        """Run a turn of which earlier attempts have failed, when there is a place for it, or set it aside."""
        key, mailbox = leased.turn.task.key, leased.turn.mailbox
        failed = failed_attempts(leased.turn)
        if failed >= MAX_ATTEMPTS:
            return await self._set_aside(leased, failed)
        left = await self._hand_back(leased.turn, earlier)
        is_outbound = is_sent(mailbox)
        if is_outbound or left.worker == self._name:  # the process has not ended
            failed = 0
        begin = asyncio.get_running_loop().time()
        async with self._admitted(key, mailbox, left, failed) as counts:
            if seconds is not None:
                seconds -= asyncio.get_running_loop().time() - begin
            lease_seconds = self._lease_seconds(seconds)
            attempt = earlier + (counts and not is_outbound)
            opened = await self._begin(key, mailbox, lease_seconds, on_renewal, attempt, left.seq)
            if isinstance(opened, TurnReport.Outcome):
                return self._not_begun(mailbox, opened)
            return await self.execute(opened, opened.run, seconds, on_renewal)

    async def _begin(
        self,
        key: TaskKey,
        mailbox: str,
        lease_seconds: float,
        on_renewal: OnRenewal | None,
        attempt: int | None = None,
        seq: int = 0,
    ) -> LeasedTurn | TurnReport.Outcome:
        """Lease a mailbox, while the caller hears for how long, so that its queue replaces it if it dies at once."""
        if on_renewal is None:
            return await self._open(key, mailbox, lease_seconds, attempt, seq)
        hearing = asyncio.ensure_future(on_renewal(lease_seconds + SKEW))
        try:
            return await self._open(key, mailbox, lease_seconds, attempt, seq)
        finally:
            try:
                await hearing
            except MAILError as error:
                logger.warning(
                    "the wake-up of %s is not hidden; its queue returns it later: %s", mailbox, error
                )

    @asynccontextmanager
    async def _admitted(self, key: TaskKey, mailbox: str, left: Lease, failed: int) -> AsyncGenerator[bool]:
        """Wait until a turn may run that has failed so often (`Suspects.admit`).

        Meanwhile its mailbox has a lease that counts no attempt, from which others see that this process has frozen.
        """
        async with AsyncExitStack() as stack:
            if failed >= NARROWED:
                held = await self._open(key, mailbox, HELD_SECONDS, left.attempt, left.seq)
                if isinstance(held, LeasedTurn):
                    stack.push_async_callback(self._wiring.store.release, held.turn, left=left)
            async with self._suspects.admit(failed, left.since or 0.0) as counts:
                await stack.aclose()
                yield counts

    def _lease_seconds(self, seconds: float | None) -> float:
        """Return the time limit of a lease, in a process that lives for so many seconds."""
        lease_seconds = self._wiring.lease_seconds
        return lease_seconds if seconds is None else min(lease_seconds, seconds + SKEW)

    def _not_begun(self, mailbox: str, outcome: TurnReport.Outcome) -> TurnReport:
        """Report that there was no turn to run."""
        for observer in self._wiring.observers:
            observer.woken_for_nothing(mailbox)
        return TurnReport(outcome)

    async def _hand_back(self, turn: Turn | WebhookClaim, failed: int) -> Lease:
        """Release the lease of a turn that has not begun, and leave the one that it has replaced."""
        left = (turn.replaced or turn.lease).ended(failed, seq_of(turn))
        await self._wiring.store.release(turn, left=left)
        return left

    async def _set_aside(self, leased: LeasedTurn, failed: int) -> TurnReport:
        """Make the message of a turn a dead letter whose attempts have all failed."""
        turn = leased.turn
        logger.error("task %s: the turn of %s is set aside: %s", turn.task.task_id, turn.mailbox, ENDED)
        return await self.execute(leased, lambda _: leased.fail(ENDED, turn.task.seq, failed))

    async def dead_letter(
        self, key: TaskKey, mailbox: str, reason: str, *, upto: int, attempts: int = 1
    ) -> TurnReport:
        """End the next turn of a mailbox as failed, without running it, after its workers have crashed repeatedly.

        Its message becomes a dead letter, and the sender gets the `reason`, or the task ends (SPEC, section 5). A
        message with a seq past `upto` came after the failed wake-up, and stays for a turn of its own. A turn that no
        worker has begun, because the wake-up never reached one, is not at fault: its mailbox is woken again.
        """
        opened = await self._open(key, mailbox, self._wiring.lease_seconds)
        if isinstance(opened, TurnReport.Outcome):
            return TurnReport(opened)
        match opened.turn:
            case (
                Turn(replaced=None, checkpoint=None)
                | Turn(replaced=Lease(park=Park(), attempt=0))
                | WebhookClaim(replaced=None)
            ):
                return await self.execute(opened, _nothing)
        return await self.execute(opened, lambda _: opened.fail(reason, upto, attempts))

    async def _open(
        self, key: TaskKey, mailbox: str, lease_seconds: float, attempt: int | None = None, seq: int = 0
    ) -> LeasedTurn | TurnReport.Outcome:
        """Lease a mailbox, if the engine decides when its agent takes a turn."""
        wiring = self._wiring
        is_outbound = goes_out(mailbox)
        if attempt is None:
            attempt = 0 if is_outbound and is_sent(mailbox) else 1
        if is_outbound and has_no_messages(mailbox):
            return await self._claim(key, mailbox, lease_seconds, attempt)
        opened = await self.lease(key, mailbox, lease_seconds, attempt, seq)
        if isinstance(opened, TurnReport.Outcome):
            return opened
        turn, known = opened
        if turn.task.manual and not is_outbound:
            await wiring.store.release(turn)
            return TurnReport.Outcome.IDLE
        swarm = wiring.swarm
        if (versions := wiring.versions_of(turn.task)) is not None:
            try:
                swarm = await self._version_of(turn, versions)
            except MAILError:
                await wiring.store.release(turn)
                raise
        if is_outbound:
            return PeerTurn(turn, wiring)
        if swarm.copies and swarm.hands_over(mailbox, turn.task.entrypoint):
            return HandOver(turn, swarm, wiring.store, wiring.clock)
        return AgentTurn(turn, known, wiring, AUTOMATIC, self.live, swarm)

    async def _version_of(self, turn: Turn, versions: Versions) -> SwarmCore:
        """Return the version of the swarm on which a turn runs; for a delivery, one whose agents may not run."""
        swarm = self._wiring.swarm
        if goes_out(turn.mailbox):
            await versions.prepare(turn.task, swarm)
            return versions.known(turn.task, swarm)
        return await versions.to_run(turn.task, swarm)

    def execute(
        self,
        leased: LeasedTurn,
        work: Work,
        seconds: float | None = None,
        on_renewal: OnRenewal | None = None,
    ) -> Coroutine[None, None, TurnReport]:
        """Do the work of a leased turn, and wake the mailboxes that it gave mail; see `run`."""
        if self._wiring.tracer is NO_TRACER and not self._wiring.observers:
            return self._execute(leased, work, seconds, on_renewal)
        return self._observe_execution(leased, work, seconds, on_renewal)

    async def _observe_execution(
        self,
        leased: LeasedTurn,
        work: Work,
        seconds: float | None,
        on_renewal: OnRenewal | None,
    ) -> TurnReport:
        observers = self._wiring.observers
        monotonic = asyncio.get_running_loop().time
        start = monotonic()
        with self._wiring.tracer.turn(leased.turn) as span:
            try:
                report = await self._execute(leased, work, seconds, on_renewal)
            except BaseException as error:
                for observer in observers:
                    observer.turn_failed(leased.turn, leased.report(TurnReport.Outcome.FAILED), error)
                raise
            if report.problem:  # a program that embeds the swarm raises it, and has no observers
                logger.warning(
                    "task %s: agent %s: %s", leased.turn.task.task_id, leased.turn.mailbox, report.problem
                )
            for observer in observers:
                observer.turn_ended(leased.turn, report, monotonic() - start)
            span.note("mail.turn.outcome", report.outcome)
        return report

    async def _execute(
        self,
        leased: LeasedTurn,
        work: Work,
        seconds: float | None,
        on_renewal: OnRenewal | None,
    ) -> TurnReport:
        turn, activity, wiring = leased.turn, leased.activity, self._wiring
        limit = wiring.turn_seconds
        longest = limit + LEASE_MARGIN
        if seconds is not None:
            time_left = max(seconds - COMMIT_SECONDS, seconds / 2)
            limit, longest = min(limit, time_left), min(longest, time_left)
        TURN.set(leased.context(limit))
        leased.until = asyncio.get_running_loop().time() + longest
        key, outcome = turn.task.key, TurnReport.Outcome.FAILED
        if activity is not None and self.live.watched:
            activity.start()
        running = self._running[key]
        running.add(leased)
        self._heartbeat.begin(leased, seconds, on_renewal)
        done: TaskChange | Lease | None = None
        try:
            done = await work(limit)
            outcome = TurnReport.Outcome.COMMITTED if isinstance(done, TaskChange) else _unfinished(done)
        except LeaseLost:
            outcome = TurnReport.Outcome.LOST
            logger.warning(
                "task %s: the lease of %s was lost; its turn is discarded", key.task_id, turn.mailbox
            )
        except BaseException as error:
            done = await abandon_last(leased, error)
            if done is None:
                with suppress(StoreUnavailable):  # the first error says more, and the lease expires anyway
                    await wiring.store.release(turn, left=left_by(turn, error))
                raise
            outcome = TurnReport.Outcome.COMMITTED
        finally:
            self._heartbeat.end(leased)
            running.discard(leased)
            if not running:
                del self._running[key]
            self._suspects.note_end()
            if activity is not None:
                activity.release()
                if self.live.watched and activity.is_watched:
                    activity.end(outcome, done if isinstance(done, Lease) else None)
                    await self.live.flush(key)
        if isinstance(done, TaskChange):
            if wiring.observers:
                wiring.observe(done)
            woken = after_turn(done)
            if done.waits:
                woken += looks(done.task, wiring.now())
            await publish(wiring.queue, woken)
        elif done is None:
            await self._release(turn)
        else:
            await self._wake_later(turn, done)
        return leased.report(outcome)

    async def _wake_later(self, turn: Claim, parked: Lease) -> None:
        """Publish the wake-up of a parked turn, or one for mail that ended its park before it began."""
        wiring, task, not_before = self._wiring, turn.task, parked.expires
        if parked.park is not None and parked.park.urgent is not None:
            task = await load_task(wiring.store, task.key)
            not_before = 0.0 if parked.is_over(task, turn.mailbox) else not_before
        await publish(
            wiring.queue,
            [
                replace(wake_up, cause=parked.token, not_before=not_before)
                for wake_up in wake_ups(task, (turn.mailbox,))
            ],
        )

    async def _release(self, turn: Claim) -> None:
        """Release a turn that has no result, and wake its mailbox again: while it ran, other wake-ups were dropped."""
        wiring = self._wiring
        await wiring.store.release(turn)
        task = await wiring.store.load(turn.task.key)
        if task is None:
            return
        tier = None if turn.mailbox in task.queued else task.head_tier(turn.mailbox)
        closing_agent = wiring.swarm_of(task).closing_agent(task.entrypoint)
        may_run = task.generation.limit_notice is None or turn.mailbox == closing_agent
        if tier is not None and (has_no_messages(turn.mailbox) or (task.is_running and may_run)):
            not_before = task.not_before(turn.mailbox)
            await publish(
                wiring.queue,
                [WakeUp(task.key, turn.mailbox, tier, turn.lease.token, task.updated, task.seq, not_before)],
            )


def _unfinished(done: Lease | None) -> TurnReport.Outcome:
    return TurnReport.Outcome.HANDED_BACK if done is None else TurnReport.Outcome.PARKED


async def _nothing(_: float) -> None:
    """Do nothing in a turn: it is handed back."""
