"""Who may call a model now, and how long the others wait. Pure functions of the document that processes share.

A limit per minute is spread over the minute: slots for calls are earned at a steady rate. The calls that wait form a
line for each caller, and lines are called up in turn, so that a caller with many calls keeps nobody waiting. A call
that waits has a ticket, its number in the line of its caller, with which it asks again at its time.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import floor, inf

from mail.core.protocol.values import value
from mail.core.task.permits import NO_LIMITS, Ask, Line, ModelLimits, Permits, Reply, Report, Running

USED = 0.97
"""The part of a limit that is used, as calls arrive later than they begin, and not all equally late."""

AHEAD_SECONDS = 2.0
"""How long before its time a call is promised its slot; it waits so long in its process."""

FORGOTTEN_SECONDS = 3_600.0
"""Seconds after which a line in which nobody waits is forgotten."""

HOLD_SECONDS = 600.0
"""Seconds after which the calls of a process that says nothing more count as ended."""

LEAST_HOLD = 10.0
"""The least of these seconds for a function, which says nothing when a call ends."""

FULL_SECONDS = 3.0
"""The least wait for one of the concurrent calls to end."""

WEIGHT = 0.3
"""The weight of the latest calls in an average."""


@value
class Decision:
    """What is left, the replies in the order of the calls, and a block of permits that the process may use soon."""

    permits: Permits
    replies: tuple[Reply, ...]
    block: int


def decide(
    permits: Permits,
    limits: ModelLimits,
    asks: Sequence[Ask],
    process: str,
    report: Report,
    now: float,
    *,
    block: int = 0,
    freezes: bool = False,
) -> Decision:
    """Decide on calls of a process that want to begin; it would like a block of permits besides.

    One that `freezes` after a call, as a function does, says with its next call that the last one has ended. Until
    then its place counts as taken for as long as calls usually take, doubled.
    """
    shared = _Shared(permits, limits, now)
    shared.settle(report)
    tickets = [shared.enter(each) if each.waits and shared.is_metered else 0 for each in asks]
    shared.call_up()
    room = shared.room(process) - report.running
    replies = []
    for each, ticket in zip(asks, tickets, strict=True):
        wait = shared.wait(each.caller, ticket) if ticket else 0.0
        if wait > 0:
            reply = Reply(may_begin=False, wait=wait, ticket=ticket)
        elif room <= 0:
            reply = Reply(may_begin=False, wait=max(FULL_SECONDS, shared.seconds), ticket=ticket)
        elif ticket:
            reply = Reply(may_begin=True, wait=shared.delay(each.caller, ticket), ticket=ticket)
        else:
            reply = shared.pass_by()
        room -= reply.may_begin
        replies.append(reply)
    began = sum(reply.may_begin for reply in replies)
    spare = shared.take_block(block)
    hold = hold_of(shared.seconds) if freezes else HOLD_SECONDS
    return Decision(shared.sealed(process, report.running + began, now + hold), tuple(replies), spare)


def hold_of(seconds: float) -> float:
    """Return for how many seconds a function holds the place of a call, if calls take so long on average."""
    return min(max(LEAST_HOLD, 2 * seconds), HOLD_SECONDS)


def prolonged(permits: Permits, process: str, running: int, until: float) -> Permits:
    """Return the document after a process has said that its calls still run."""
    return replace(permits, running={**permits.running, process: Running(running, until)})


def refused(permits: Permits, learnt: ModelLimits, now: float, seconds: float) -> Permits:
    """Return what is left after a provider has refused a call, for so many seconds, and told its limits, if it has."""
    return replace(
        permits,
        closed_until=max(permits.closed_until, now + seconds),
        slots=min(permits.slots, 0.0),
        learnt=permits.learnt if learnt == NO_LIMITS else learnt,
    )


class _Shared:
    """A document as it is now, while a decision changes it."""

    def __init__(self, permits: Permits, limits: ModelLimits, now: float) -> None:
        self._permits = permits
        self._limits = limits
        self._now = now
        self._lines = dict(permits.lines)
        self._slots = permits.slots
        self._tokens = permits.tokens
        self.seconds = permits.seconds

    @property
    def _rate(self) -> float:
        """The slots that are earned in a second."""
        limits, rates = self._limits, [inf]
        if limits.requests_per_minute is not None:
            rates.append(limits.requests_per_minute * USED / 60)
        if limits.tokens_per_minute is not None:
            rates.append(limits.tokens_per_minute * USED / 60 / self._tokens)
        return min(rates)

    @property
    def is_metered(self) -> bool:
        """Whether calls wait for slots, and so in a line."""
        return self._rate < inf

    def settle(self, report: Report) -> None:
        """Take unused permits back, learn what calls take, and earn slots up to now."""
        permits, per_minute = self._permits, self._limits.tokens_per_minute
        slots = permits.slots + report.unused
        if report.ended:
            mean, before = report.tokens / report.ended, self._tokens
            self._tokens = max(1.0, before + WEIGHT * (mean - before))
            self.seconds += WEIGHT * (report.seconds / report.ended - self.seconds)
            if per_minute is not None and self._rate == per_minute * USED / 60 / self._tokens:
                slots -= (report.tokens - report.ended * before) / self._tokens
        rate = self._rate
        since = max(permits.at, min(permits.closed_until, self._now))
        self._slots = slots + rate * max(0.0, self._now - since) if rate < inf else inf

    def enter(self, ask: Ask) -> int:
        """Return the ticket of a call: its own, or the next one of its caller."""
        line = self._lines.get(ask.caller, Line())
        ticket = ask.ticket or line.issued + 1
        issued = max(line.issued, ticket)
        # a ticket that wasn't issued here is of a line that was forgotten, as all its calls were made
        called = ticket if ask.ticket > line.issued else line.called
        self._lines[ask.caller] = replace(line, issued=issued, called=called, last=self._now)
        return ticket

    def call_up(self) -> None:
        """Call up the lines in turn, as far as there are slots, now or soon."""
        rate = self._rate
        least = 1.0 - rate * AHEAD_SECONDS
        waiting = deque(caller for caller, line in self._lines.items() if line.issued > line.called)
        while waiting and self._slots >= least and self._now >= self._permits.closed_until:
            caller = waiting.popleft()
            line = self._lines.pop(caller)
            ready = self._now + max(0.0, (1.0 - self._slots) / rate)
            self._lines[caller] = line = replace(line, called=line.called + 1, ready=ready)  # now the last
            self._slots -= 1.0
            if line.issued > line.called:
                waiting.append(caller)
        self._slots = min(max(1.0, rate), self._slots)

    def pass_by(self) -> Reply:
        """Take a slot, now or soon, for a call that doesn't wait, unless others do."""
        closed = max(0.0, self._permits.closed_until - self._now)
        waiting = sum(line.issued - line.called for line in self._lines.values())
        wait = max(0.0, (1.0 + waiting - self._slots) / self._rate) if self._slots < inf else 0.0
        if closed or waiting or wait > AHEAD_SECONDS:
            return Reply(may_begin=False, wait=closed + wait)
        self._slots -= 1.0
        return Reply(may_begin=True, wait=wait)

    def delay(self, caller: str, ticket: int) -> float:
        """Return how long a call that is called up must wait in its process."""
        line = self._lines[caller]
        return max(0.0, line.ready - (line.called - ticket) / self._rate - self._now)

    def wait(self, caller: str, ticket: int) -> float:
        """Return how long a call waits until it should ask again; 0 if it is called up."""
        closed = max(0.0, self._permits.closed_until - self._now)
        place = ticket - self._lines[caller].called
        if place <= 0:
            return closed
        before = sum(min(line.issued - line.called, place) for line in self._lines.values())
        return closed + max(0.1, (before - self._slots) / self._rate)

    def room(self, process: str) -> float:
        """Return how many calls may run in a process."""
        if self._limits.concurrent is None:
            return inf
        others = (each for name, each in self._permits.running.items() if name != process)
        return self._limits.concurrent - sum(each.calls for each in others if each.until > self._now)

    def take_block(self, wanted: int) -> int:
        """Take permits for calls to come, if no call waits."""
        if self._limits.concurrent is not None or any(
            line.issued > line.called for line in self._lines.values()
        ):
            return 0
        block = wanted if self._slots == inf else max(0, min(wanted, floor(self._slots)))
        self._slots -= block
        return block

    def sealed(self, process: str, running: int, until: float) -> Permits:
        """Return the document, with so many calls of a process, which count until a time."""
        now = self._now
        others = {name: each for name, each in self._permits.running.items() if each.until > now}
        others.pop(process, None)
        if running and self._limits.concurrent is not None:
            others[process] = Running(calls=running, until=until)
        return replace(
            self._permits,
            at=max(now, self._permits.at),
            slots=1.0 if self._slots == inf else self._slots,
            tokens=self._tokens,
            seconds=self.seconds,
            lines={
                caller: line
                for caller, line in self._lines.items()
                if line.issued > line.called or line.last > now - FORGOTTEN_SECONDS
            },
            running=others,
        )
