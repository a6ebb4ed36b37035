"""Permits for model calls: asks the document that all processes share, for many calls at once.

A server asks at most once a second. Calls that want to begin meanwhile use the block of permits that it got the last
time, or wait for the next one. A function asks for each call, as it may be frozen after it, and says with the next one
that the last one has ended.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from math import inf
from typing import Any

from mail.core.decisions.permits import HOLD_SECONDS, Decision, decide, hold_of, prolonged, refused
from mail.core.protocol.clock import Clock
from mail.core.task.documents import Document, Kind, PutIf
from mail.core.task.fallback import Breaker, BreakerChange
from mail.core.task.permits import NO_LIMITS, Ask, ModelLimits, Permits, Reply, Report
from mail.core.task.ports import Documents
from mail.core.task.stored import read_permits, write_permits
from mail.core.turns.context import leave_task
from mail.errors import StoreUnavailable

logger = logging.getLogger(__name__)

TRIES = 5
"""The number of attempts to change the document while others change it, too."""

CONFLICT_SECONDS = 0.02
"""The pause before the second attempt; twice as long after each further one."""

PAUSE_SECONDS = 1.0
"""The pause between two requests for permits, in a process that makes many calls."""

LEARNT_SECONDS = 600.0
"""Seconds for which a model without configured limits asks for permits, after its provider has refused a call."""

HELD = 0.8
"""The part of the time for which a place is held after which it is held for longer."""

BREAKER_SECONDS = 5.0
"""Seconds for which a process relies on the breakers that it has read."""


class ModelPermits:
    """`mail.core.task.permits.PermitSource` on documents.

    Args:
        limits: by the pattern of the models that share them, such as `anthropic/*`.
        pause: seconds between two requests for permits; 0 asks for each call, in a process that freezes after it.
    """

    def __init__(
        self,
        documents: Documents,
        clock: Clock,
        limits: Mapping[str, ModelLimits],
        *,
        pause: float = PAUSE_SECONDS,
    ) -> None:
        self._documents = documents
        self._clock = clock
        self._limits = limits
        self._pause = pause
        self._gates: dict[str, Gate] = {}
        self._patterns: dict[str, str] = {}

    def gate(self, model: str) -> "Gate | None":
        """Return the gate through which calls of a model go; None if this process knows of no limits."""
        if pattern := self._pattern(model):
            return self._gate(pattern)
        gate = self._gates.get(model)
        if gate is None or gate.permits.closed_until + LEARNT_SECONDS <= self._clock.now().timestamp():
            return None
        return gate

    def streams(self, caller: str, limit: int) -> "Gate":
        """Return a gate for streams of a caller, who may have so many at once in all processes."""
        limits = ModelLimits(concurrent=limit)
        return Gate(f"streams/{caller}", limits, self._documents, self._clock, pause=0.0)

    async def refuse(self, model: str, learnt: ModelLimits, seconds: float) -> None:
        """Keep calls of a model back for so many seconds, as its provider has refused one, and told its limits."""
        now = self._clock.now().timestamp()
        await self._shared(model).change(lambda permits: refused(permits, learnt, now, seconds))

    def now(self) -> float:
        """Return the time by which breakers open and close, in seconds since the epoch."""
        return self._clock.now().timestamp()

    def breaker(self, model: str) -> Breaker | None:
        """Return the breaker of a model as this process knows it; None if it is closed."""
        return self._shared(model).permits.breakers.get(model)

    async def learn_breakers(self, *models: str, once: bool = False) -> None:
        """Read the breakers and limits of models, unless they were read a moment ago, or ever (`once`)."""
        for model in models:
            await self._shared(model).learn(once=once)

    async def change_breaker(self, model: str, change: BreakerChange) -> bool:
        """Change the breaker of a model for all processes, and return whether this call has changed it."""
        return await self._shared(model).change_breaker(model, change)

    def _shared(self, model: str) -> "Gate":
        """Return the gate with the document of a model, whether the model has limits or not."""
        return self._gate(self._pattern(model) or model)

    def _pattern(self, model: str) -> str:
        """Return the longest pattern that matches a model; empty if none does."""
        if model not in self._patterns:
            matching = [each for each in self._limits if fnmatchcase(model, each)]
            self._patterns[model] = max(matching, key=len, default="")
        return self._patterns[model]

    def _gate(self, name: str) -> "Gate":
        gate = self._gates.get(name)
        if gate is None:
            limits = self._limits.get(name, NO_LIMITS)
            gate = self._gates[name] = Gate(
                name, limits, self._documents, self._clock, self._pause, freezes=not self._pause
            )
        return gate


class Gate:
    """The calls of this process under the limits of one document.

    Attributes:
        permits: the document as it was last seen.
    """

    def __init__(
        self,
        name: str,
        limits: ModelLimits,
        documents: Documents,
        clock: Clock,
        pause: float,
        *,
        freezes: bool = False,
    ) -> None:
        self.permits = Permits()
        self._name = name
        self._limits = limits
        self._documents = documents
        self._clock = clock
        self._pause = pause
        self._freezes = freezes
        self._process = ""
        self._waiting: list[tuple[Ask, asyncio.Future[Reply]]] = []
        self._asking: asyncio.Task[None] | None = None
        self._learning: asyncio.Task[None] | None = None
        self._holding: asyncio.Task[None] | None = None
        self._asked = self._read = -inf
        self._must_report = False
        self._block = 0
        self._wanted = 0
        self._running = self._ended = self._tokens = 0
        self._seconds = 0.0

    async def take(self, caller: str, ticket: int = 0, *, waits: bool = True) -> Reply:
        """Ask for a permit for a call, with the ticket that it has got before (`Ask`); without a store it may begin."""
        self._wanted += 1
        if self._block and not ticket:
            self._block -= 1
            reply = Reply(may_begin=True)
        else:
            answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
            self._waiting.append((Ask(caller, ticket, waits), answer))
            _ = self._ask_soon()
            reply = await answer
        self._running += reply.may_begin
        if reply.may_begin and self._freezes and self._is_concurrent and self._holding is None:
            self._holding = asyncio.get_running_loop().create_task(self._hold())
        return reply

    async def end(self, tokens: int, seconds: float) -> None:
        """Note that a call has ended, and what it took."""
        self._running -= 1
        self._ended += 1
        self._tokens += tokens
        self._seconds += seconds
        if self._holding is not None and not self._running:
            self._holding.cancel()
            self._holding = None
        if self._is_concurrent and not self._freezes:
            self._must_report = True
            asking = self._ask_soon()
            if not self._pause:
                await asyncio.shield(asking)

    @property
    def _is_concurrent(self) -> bool:
        return self._limits.concurrent is not None or self.permits.learnt.concurrent is not None

    async def _hold(self) -> None:
        """Hold the places of calls that last longer than usual, each time for as long again."""
        leave_task()
        seconds = hold_of(self.permits.seconds)
        while True:
            await asyncio.sleep(seconds * HELD)
            seconds = min(2 * seconds, HOLD_SECONDS)
            until = self._clock.now().timestamp() + seconds
            await self.change(partial(prolonged, process=self._process, running=self._running, until=until))

    async def read(self) -> tuple[Permits, str]:
        """Read the document, and its version; empty if there is none."""
        now = self._clock.now().timestamp()
        document = await self._documents.get(Kind.PERMITS, self._name)
        self._read = now
        if document is None:
            return Permits(at=now), ""
        self.permits = read_permits(document.fields["record"])
        return self.permits, document.fields["version"]

    async def learn(self, *, once: bool) -> None:
        """Read the document if this process hasn't for a while, or never (`once`); calls at once share one request."""
        if self._clock.now().timestamp() < self._read + BREAKER_SECONDS or (once and self._read > -inf):
            return
        self._learning = _joined(self._learning, self._learn)
        await asyncio.shield(self._learning)

    async def _learn(self) -> None:
        leave_task()
        try:
            await self.read()
        except StoreUnavailable:
            logger.warning("the permits of %s can't be read", self._name)

    async def change(self, how: Callable[[Permits], Permits]) -> bool:
        """Change the document, and return whether it has; if that fails, the next call finds out for itself."""
        try:
            for n in range(TRIES):
                permits, version = await self.read()
                if (changed := how(permits)) == permits:
                    return False
                if await self._write(changed, version):
                    return True
                await _pause(n)
        except StoreUnavailable:
            logger.warning("the permits of %s can't be stored", self._name)
        return False

    async def change_breaker(self, model: str, change: BreakerChange) -> bool:
        """Change a breaker as this process knows it, so that its other calls see it at once, then in the document."""

        def how(permits: Permits) -> Permits:
            before = permits.breakers.get(model)
            after = change(before, self._clock.now().timestamp())
            if after == before:
                return permits
            others = {name: each for name, each in permits.breakers.items() if name != model}
            return replace(permits, breakers=others if after is None else {**others, model: after})

        if (changed := how(self.permits)) is self.permits:
            return False
        self.permits = changed
        return await self.change(how)

    async def _write(self, permits: Permits, version: str) -> bool:
        document = Document(
            (self._name,), {"record": write_permits(permits), "version": str(int(version or 0) + 1)}
        )
        if version:
            condition, where = PutIf.PRESENT, {"version": version}
        else:
            condition, where = PutIf.ABSENT, None
        if not await self._documents.put(Kind.PERMITS, document, condition=condition, where=where):
            return False
        self.permits = permits
        return True

    def _ask_soon(self) -> "asyncio.Task[None]":
        self._asking = asking = _joined(self._asking, self._ask_for_all)
        return asking

    async def _ask_for_all(self) -> None:
        leave_task()
        time = asyncio.get_running_loop().time
        while self._waiting or self._must_report:
            await asyncio.sleep(max(0.0, min(self._pause, self._asked + self._pause - time())))
            waiting, self._waiting = self._waiting, []
            self._asked, self._must_report = time(), False
            try:
                replies = await self._decide([ask for ask, _ in waiting])
            except StoreUnavailable:
                logger.warning("no permits of %s can be read; its models are called without", self._name)
                replies = []
            except Exception:  # nobody awaits this task
                logger.exception("no permits of %s", self._name)
                replies = []
            for (_, answer), reply in zip(
                waiting, replies or [Reply(may_begin=True)] * len(waiting), strict=True
            ):
                if not answer.done():
                    answer.set_result(reply)

    async def _decide(self, asks: Sequence[Ask]) -> Sequence[Reply]:
        """Return the replies to calls; none if others have changed the document again and again."""
        self._process = self._process or self._clock.new_id()
        report = Report(self._running, self._ended, self._tokens, self._seconds, self._block)
        wanted, self._block, self._wanted = self._wanted if self._pause else 0, 0, 0
        for n in range(TRIES):
            permits, version = await self.read()
            limits = permits.learnt if self._limits == NO_LIMITS else self._limits
            now = self._clock.now().timestamp()
            process, freezes = self._process, self._freezes
            decision = decide(permits, limits, asks, process, report, now, block=wanted, freezes=freezes)
            is_written = self._must_write(permits, limits, report, asks, decision)
            if is_written and not await self._write(decision.permits, version):
                await _pause(n)
                continue
            self._block = decision.block
            if is_written:
                self._ended -= report.ended
                self._tokens -= report.tokens
                self._seconds -= report.seconds
            return decision.replies
        return []

    def _must_write(
        self, before: Permits, limits: ModelLimits, report: Report, asks: Sequence[Ask], decision: Decision
    ) -> bool:
        """Return whether other processes must know of a decision. What it leaves unsaid goes with the next one."""
        is_new = any(
            not ask.ticket and (reply.ticket or reply.may_begin)
            for ask, reply in zip(asks, decision.replies, strict=True)
        )
        has_spent = limits.tokens_per_minute is not None and report.ended > 0 and not self._freezes
        if is_new or has_spent or decision.block or report.unused:
            return True
        if limits.concurrent is None:
            return False
        known, runs = (each.running.get(self._process) for each in (before, decision.permits))
        has_ended = not self._freezes and known is not None and (runs is None or runs.calls < known.calls)
        return has_ended or any(reply.may_begin for reply in decision.replies)


def _joined(
    task: "asyncio.Task[None] | None", work: Callable[[], Coroutine[Any, Any, None]]
) -> "asyncio.Task[None]":
    """Return the task if it still runs in this event loop, else a new one that does the work."""
    loop = asyncio.get_running_loop()
    if task is None or task.done() or task.get_loop() is not loop:
        return loop.create_task(work())
    return task


async def _pause(n: int) -> None:
    await asyncio.sleep(CONFLICT_SECONDS * 2**n)
