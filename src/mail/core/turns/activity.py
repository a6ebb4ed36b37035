"""What a running turn does: its model calls and actions, with start times and durations.

Code that calls a model reports it with `model_call`. The engine reports actions. A turn remembers both for its record
and, only if somebody watches its task, publishes live events about them.
"""

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from math import inf
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.clock import Clock
from mail.core.protocol.values import value
from mail.core.task.callbacks import MAX_PROGRESS
from mail.core.task.change import Turn
from mail.core.task.costs import Usage
from mail.core.task.fallback import Switch
from mail.core.task.leases import Lease
from mail.core.task.live import LiveEvent, LiveKind
from mail.core.task.task import TaskKey
from mail.core.task.turn_state import CallTiming, Receipt, TurnTiming
from mail.core.turns.usage import UsageMeter

NOTABLE_SECONDS = 1.0
"""A turn without model calls and actions that is quicker than this leaves no timing in the record."""

MANY_CALLS = 100
"""The number of model calls of a turn whose timing its record keeps."""

REPORT_SECONDS = 0.2
"""Seconds between two reports of the progress of an action; what it says meanwhile is left out."""

MAX_ERROR = 200
"""Maximum number of characters of an action's error in a live event."""

DeltaKind = Literal["text", "reasoning", "answer"]
"""What a model writes: text, reasoning, or the text of the call that completes the task."""


class LivePublisher(Protocol):
    """Passes live events on to those who watch a task."""

    @property
    def watched(self) -> Container[TaskKey]:
        """The tasks that somebody watches, here or at another server."""

    def publish(self, key: TaskKey, event: LiveEvent) -> None:
        """Pass an event on. Never raises, never waits."""

    def wants_deltas(self, key: TaskKey) -> bool:
        """Return whether somebody wants the pieces of models' replies, too."""


def _rounded(seconds: float) -> float:
    return round(seconds, 3)


class TurnActivity:
    """The activity of one turn.

    Attributes:
        time: the clock that measures durations, in seconds.
        begin: when this attempt at the turn began, by that clock.
        spans: its model calls and actions so far.
        switch: the switch to another model that its call has made or prolonged, if any.
        hides_results: whether live events quote nothing that an action says, as guards judge it.
    """

    switch: Switch | None = None
    hides_results = False
    _n = 1  # the start of the turn
    _calls = 0

    def __init__(
        self,
        turn: Turn,
        clock: Clock,
        publisher: LivePublisher,
        time: Callable[[], float],
        earlier: TurnTiming | None = None,
        find_text_recipient: Callable[[], str] | None = None,
    ) -> None:
        self.time = time
        self.begin = time()
        self.spans: list[Span] = []
        self.agent = turn.mailbox
        # not the turn: a cancelled timer holds its context, and so the activity, until the time that it was set to
        self._key, self._lease, self._replaced = turn.task.key, turn.lease, turn.replaced
        self._clock = clock
        self._publisher = publisher
        self._earlier = earlier
        self._find_text_recipient = find_text_recipient

    @property
    def task_id(self) -> str:
        """The id of the turn's task."""
        return self._key.task_id

    def release(self) -> None:
        """Let go of the turn, which has ended."""
        self._find_text_recipient = None

    @cached_property
    def text_recipient(self) -> str:
        """Who receives text that the model writes, if it calls no tool: an agent, or `user`; empty for nobody."""
        return self._find_text_recipient() if self._find_text_recipient else ""

    @property
    def began(self) -> str:
        """When the turn, or its first attempt, began, in ISO 8601."""
        return self.iso(self.begin) if self._earlier is None else self._earlier.began

    @property
    def running(self) -> "list[Span]":
        """The model calls and actions that have not ended."""
        return [span for span in self.spans if span.seconds is None]

    def since(self) -> str:
        """Return when this attempt at the turn began, in ISO 8601."""
        return self.iso(self.begin)

    def timing(self) -> TurnTiming:
        """Return the timing of the turn so far, earlier attempts included."""
        calls = [
            CallTiming(
                model=span.name,
                after=self._after(span.begin),
                seconds=_rounded(span.seconds),
                attempts=span.attempts,
            )
            for span in self.spans
            if isinstance(span, ModelCall) and span.seconds is not None
        ]
        earlier = () if self._earlier is None else self._earlier.model_calls
        return TurnTiming(
            began=self.began,
            seconds=self._after(self.time()),
            model_calls=(*earlier, *calls)[:MANY_CALLS],
        )

    def timed(self, receipt: Receipt, span: "Span") -> Receipt:
        """Return the receipt of an action with its begin and duration."""
        return replace(
            receipt,
            after=self._after(span.begin),
            seconds=_rounded(span.seconds or 0.0),
            attempts=span.attempts,
        )

    def _after(self, at: float) -> float:
        """Return a time as seconds after the beginning of the turn."""
        if self._earlier is None:
            return _rounded(at - self.begin)
        first = datetime.fromisoformat(self._earlier.began)
        return _rounded(max(0.0, (self._at(at) - first).total_seconds()))

    @cached_property
    def _present(self) -> tuple[datetime, float]:
        """A moment by both clocks, read once, so that all reports of a begin agree."""
        return self._clock.now(), self.time()

    def _at(self, at: float) -> datetime:
        now, time = self._present
        return now + timedelta(seconds=at - time)

    def iso(self, at: float) -> str:
        """Return a time of the clock that measures durations in ISO 8601."""
        return self._at(at).isoformat(timespec="milliseconds")

    # ------------------------------------------------------------------------------------------- live events

    def report(self, call_id: str, progress: str) -> None:
        """Show those who watch how far a running action has come, at most every `REPORT_SECONDS`."""
        for span in self.running if self.is_watched and not self.hides_results else ():
            if isinstance(span, ActionRun) and span.call_id == call_id:
                span.report(progress)

    def current(self) -> Iterator[LiveEvent]:
        """Yield the events that tell someone who begins to watch what runs now."""
        yield self._started()
        for span in self.running:
            yield from span.current()

    def written(self) -> Iterator[LiveEvent]:
        """Yield what its models have written so far, each as one piece; after `current`, and for one watcher only."""
        for span in self.running:
            if isinstance(span, ModelCall):
                yield from span.written()

    def start(self) -> None:
        """Publish the start of the turn, and before it the end of an earlier attempt, whose worker is gone."""
        if not self.is_watched:
            return
        replaced = self._replaced
        if replaced is not None and replaced.park is None:
            text = f"the turn of agent {self.agent} was interrupted; it is run again"
            extra = {"agent": self.agent, "outcome": "taken_over"}
            now = self.iso(self.time())
            self.publish(LiveEvent(LiveKind.TURN_ENDED, replaced.token, 0, now, text, extra))
        self.publish(self._started())

    def end(self, outcome: str, parked: Lease | None = None) -> None:
        """Publish the end of the turn, and with it that of all that it was doing; `parked` is what it waits for."""
        now, text = self.time(), f"the turn of agent {self.agent} has ended"
        extra: dict[str, Any] = {"outcome": outcome, "seconds": _rounded(now - self.begin)}
        if parked is not None and parked.park is not None:
            left = parked.expires - self._clock.now().timestamp()
            text = f"agent {self.agent} waits for {parked.park.on}, {left:.0f} s"
            extra |= {"waits_for": parked.park.on, "until": _iso(parked.expires)}
        self.publish(self.event(LiveKind.TURN_ENDED, self.next(), now, text, extra))

    def _started(self) -> LiveEvent:
        attempt = self._lease.attempt
        extra = {"attempt": attempt} if attempt > 1 else {}
        return self.event(LiveKind.TURN_STARTED, 1, self.begin, f"agent {self.agent} has begun a turn", extra)

    def next(self) -> int:
        """Return the number of the next event."""
        self._n += 1
        return self._n

    def next_call(self) -> int:
        """Return the number of the next model call."""
        self._calls += 1
        return self._calls

    def event(self, kind: LiveKind, n: int, at: float, text: str, extra: dict[str, Any]) -> LiveEvent:
        """Return an event of the turn."""
        return LiveEvent(kind, self._lease.token, n, self.iso(at), text, {"agent": self.agent, **extra})

    def publish(self, event: LiveEvent) -> None:
        """Publish an event."""
        self._publisher.publish(self._key, event)

    @property
    def is_watched(self) -> bool:
        """Whether somebody watches the task."""
        return self._key in self._publisher.watched

    @property
    def wants_deltas(self) -> bool:
        """Whether somebody wants the pieces of models' replies."""
        return self.is_watched and self._publisher.wants_deltas(self._key)


class Span:
    """Something that a turn does for a while. Use it as a context manager.

    Attributes:
        name: the name of the model or the action.
        begin: when it began, by the clock of its turn.
        seconds: how long it took, with all attempts; None until it has ended.
        attempts: their number so far.
    """

    started: LiveKind
    retried: LiveKind
    ended: LiveKind
    label: str

    def __init__(self, activity: TurnActivity | None, name: str) -> None:
        self.name = name
        self.begin = 0.0
        self.seconds: float | None = None
        self.attempts = 1
        self._activity = activity
        self._n = 0
        self._last: LiveEvent | None = None
        self._error = ""

    def __enter__(self) -> Self:
        if (activity := self._activity) is not None:
            self.begin = activity.time()
            self._n = activity.next()
            activity.spans.append(self)
            if activity.is_watched:
                activity.publish(self._start(activity))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (activity := self._activity) is None:
            return
        end = activity.time()
        self.seconds = end - self.begin
        if kind is not None:
            self._error = kind.__name__
        if activity.is_watched:
            failure = {"error": self._error} if self._error else {}
            extra = {**self._facts(), "seconds": _rounded(self.seconds), **self._result(), **failure}
            text = f"{self.label} {self.name} has {'failed' if self._error else 'ended'}"
            activity.publish(activity.event(self.ended, activity.next(), end, text, extra))

    def retry(self, reason: str, after: float) -> None:
        """Report that an attempt has failed, and that the next one begins `after` this number of seconds."""
        self.attempts += 1
        if (activity := self._activity) is None:
            return
        now = activity.time()
        extra = {
            **self._facts(),
            "attempt": self.attempts,
            "reason": reason,
            "retry_in": _rounded(after),
        }
        text = f"agent {activity.agent}: {self.name}: {reason}; attempt {self.attempts} in {after:.1f} s"
        self._last = activity.event(self.retried, activity.next(), now, text, extra)
        if activity.is_watched:
            activity.publish(self._last)

    def current(self) -> Iterator[LiveEvent]:
        """Yield the events that tell that it runs."""
        if self._activity is not None:
            yield self._start(self._activity)
            if self._last is not None:
                yield self._last

    def since(self) -> str:
        """Return when it began, in ISO 8601."""
        return "" if self._activity is None else self._activity.iso(self.begin)

    def _start(self, activity: TurnActivity) -> LiveEvent:
        text = f"agent {activity.agent}: {self.label} {self.name}"
        return activity.event(self.started, self._n, self.begin, text, self._facts())

    def _facts(self) -> dict[str, Any]:
        raise NotImplementedError

    def _result(self) -> dict[str, Any]:
        return {}


@value(kw_only=True)
class Exchange:
    """What a model is asked, for traces.

    Attributes:
        parameters: those of the request, by their names in Chat Completions.
        tools: the declarations of the tools, in either style.
        messages: returns the history, as messages of Chat Completions.
    """

    parameters: Mapping[str, Any]
    system: str
    tools: Sequence[Mapping[str, Any]]
    messages: Callable[[], Sequence[Mapping[str, Any]]]


class CallTracer(Protocol):
    """Traces the calls of models."""

    def model_call(self, call: "ModelCall") -> AbstractContextManager[object]:
        """Trace a call, until its end; then its attributes say what there is to record."""


MOST_WRITTEN = 65_536
"""Characters of a reply that is being written that are kept for those who begin to watch; a longer one is not."""


class ModelCall(Span):
    """A call of a model, with all of its attempts.

    Attributes:
        usage: what it has cost so far; None if nothing has been reported.
        finish: why the reply ended, as OpenTelemetry names it: `stop`, `length`, `content_filter`, `tool_call`.
        replied: the name of the model that has replied, as its provider has it; empty if unknown.
        first_chunk: seconds from the begin of the last attempt to the first piece of a streamed reply.
        exchange: what the model is asked.
        reply: returns its reply, as messages of Chat Completions.
    """

    started = LiveKind.MODEL_CALL_STARTED
    retried = LiveKind.MODEL_CALL_RETRIED
    ended = LiveKind.MODEL_CALL_ENDED
    label = "the call of"

    def __init__(
        self,
        activity: TurnActivity | None,
        model: str,
        meter: UsageMeter | None,
        tracer: CallTracer | None = None,
        *,
        is_private: bool = False,
        is_judged: bool = False,
    ) -> None:
        super().__init__(activity, model)
        self._is_private = is_private
        self._is_judged = is_judged
        self.usage: Usage | None = None
        self.finish = self.replied = ""
        self.first_chunk: float | None = None
        self.exchange: Exchange | None = None
        self.reply: Callable[[], Sequence[Mapping[str, Any]]] | None = None
        self._meter = meter
        self._trace = None if tracer is None else tracer.model_call(self)
        self._attempt_begin = 0.0
        self.broken_prefix: tuple[str, ...] = ()
        """What changed since the previous call, so that the provider's cache was not read."""
        self._number = 0 if activity is None else activity.next_call()
        self._pieces: dict[DeltaKind, list[str]] | None = {}
        self._written = 0

    def __enter__(self) -> Self:
        if self._trace is not None:
            self._trace.__enter__()
        entered = super().__enter__()
        self._attempt_begin = self.begin
        return entered

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        if self._trace is not None:
            self._trace.__exit__(kind, error, trace)

    @property
    def is_traced(self) -> bool:
        """Whether anybody records what the model is asked and replies."""
        return self._trace is not None and not self._is_judged

    @property
    def task_id(self) -> str:
        """The id of its task; empty outside of tasks."""
        return "" if self._activity is None else self._activity.task_id

    @property
    def wants_deltas(self) -> bool:
        """Whether somebody wants the pieces of the reply."""
        return self._activity is not None and self._activity.wants_deltas and not self._is_private

    @property
    def tokens(self) -> int:
        """The tokens that it has read and written so far."""
        return 0 if self.usage is None else self.usage.tokens

    def wait(self, provider: str, seconds: float) -> None:
        """Report that the provider takes the call only in so many seconds."""
        if (activity := self._activity) is None:
            return
        extra = {**self._facts(), "on": provider, "seconds": _rounded(seconds)}
        text = f"agent {activity.agent} waits for {provider}, {seconds:.0f} s"
        self._last = activity.event(LiveKind.MODEL_CALL_WAITS, activity.next(), activity.time(), text, extra)
        if activity.is_watched:
            activity.publish(self._last)

    def retry(self, reason: str, after: float) -> None:
        """Report that an attempt has failed, and that the next one begins `after` this number of seconds."""
        super().retry(reason, after)
        self.first_chunk = None
        self._pieces, self._written = {}, 0
        if self._activity is not None:
            self._attempt_begin = self._activity.time() + after

    def note_chunk(self) -> None:
        """Note the time of a piece of a streamed reply, if it is the first."""
        if self.first_chunk is None and self._activity is not None:
            self.first_chunk = self._activity.time() - self._attempt_begin

    def delta(self, kind: DeltaKind, piece: str) -> None:
        """Report a piece of the reply. Only replies that somebody watches from the start come in pieces."""
        if (activity := self._activity) is None or self._is_private:
            return
        if self._pieces is not None:
            self._written += len(piece)
            if self._written > MOST_WRITTEN:
                self._pieces = None
            else:
                self._pieces.setdefault(kind, []).append(piece)
        if self.wants_deltas:
            activity.publish(self._delta(activity, activity.next(), kind, piece))

    def written(self) -> Iterator[LiveEvent]:
        """Yield what it has written so far, for somebody who begins to watch."""
        if self._activity is not None:
            for kind, pieces in (self._pieces or {}).items():
                yield self._delta(self._activity, self._n, kind, "".join(pieces))

    def _delta(self, activity: TurnActivity, n: int, kind: DeltaKind, piece: str) -> LiveEvent:
        extra = {**self._facts(), "kind": kind, "delta": piece}
        if kind == "text" and activity.text_recipient:
            extra["to"] = activity.text_recipient
        return activity.event(LiveKind.TEXT_DELTA, n, activity.time(), "", extra)

    def report(self, usage: Usage) -> None:
        """Report the cost of the call, as `report_usage` does."""
        self.usage = usage if self.usage is None else self.usage + usage
        if self._meter is not None:
            self._meter.add(usage, self.name)

    def _facts(self) -> dict[str, Any]:
        return {"model": self.name, "call": self._number}

    def _result(self) -> dict[str, Any]:
        broken = {"prefix_broken_by": list(self.broken_prefix)} if self.broken_prefix else {}
        return broken if self.usage is None else {"usage": asdict(self.usage), **broken}


class ActionRun(Span):
    """A run of an action, with all of its attempts."""

    started = LiveKind.ACTION_STARTED
    retried = LiveKind.ACTION_RETRIED
    ended = LiveKind.ACTION_ENDED
    label = "the action"

    def __init__(self, activity: TurnActivity | None, call: AgentToolCall) -> None:
        super().__init__(activity, call.tool_name)
        self.call_id = call.tool_call_id
        self._reported = -inf

    def report(self, progress: str) -> None:
        """Report how far it has come, unless it has just reported."""
        activity = self._activity
        if activity is None or (now := activity.time()) < self._reported + REPORT_SECONDS:
            return
        self._reported, extra = now, {**self._facts(), "progress": progress[:MAX_PROGRESS]}
        text = f"agent {activity.agent} runs {self.name}: {extra['progress']}"
        self._last = activity.event(LiveKind.ACTION_REPORTED, activity.next(), now, text, extra)
        activity.publish(self._last)

    def fail(self, error: str) -> None:
        """Note that the action has failed: the first line of the error's text, cut to `MAX_ERROR` characters."""
        self._error = self._quoted(error)

    def retry(self, reason: str, after: float) -> None:
        super().retry(self._quoted(reason), after)

    def _quoted(self, error: str) -> str:
        is_hidden = self._activity is not None and self._activity.hides_results
        return "error" if is_hidden else shortened(error)

    def _facts(self) -> dict[str, Any]:
        return {"tool_name": self.name, "tool_call_id": self.call_id}


def shortened(error: str) -> str:
    """Return the first line of an error's text, cut to `MAX_ERROR` characters."""
    return error.strip().partition("\n")[0][:MAX_ERROR] or "error"


@value
class Work:
    """A model call or an action that runs, or a wait of a parked turn: its kind and name, in ISO 8601 since when.

    Attributes:
        name: for a wait, the provider or the action that it is for.
        until: when a wait ends; None for anything else.
    """

    kind: Literal["model_call", "action", "wait"]
    name: str
    since: str
    until: str | None = None


@value
class Working:
    """An agent that takes a turn.

    Attributes:
        since: when the turn, or its latest attempt, began, in ISO 8601; None if that is not known.
        on: its model calls and actions that run; empty if that is not known.
    """

    agent: str
    since: str | None
    on: tuple[Work, ...]


def describe(agent: str, lease: Lease, activity: TurnActivity | None) -> Working:
    """Return what is known of a turn: from its lease, and its activity if it runs in this process."""
    if activity is not None:
        on = tuple(
            Work("model_call" if isinstance(span, ModelCall) else "action", span.name, span.since())
            for span in activity.running
        )
        return Working(agent, activity.since(), on)
    began, park = lease.since, lease.park
    since = None if began is None else _iso(began)
    if park is None:
        return Working(agent, since, ())
    return Working(agent, since, (Work("wait", park.on, _iso(park.since), _iso(lease.expires)),))


def _iso(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")


Activities = Callable[[TaskKey], "list[TurnActivity]"]
"""Returns the activities of the turns of a task that run in this process."""
