"""Views of what agents do: a line that says who works on what, and how long each worked."""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import cycle
from time import time
from typing import TYPE_CHECKING, Any

from mail.cli.output import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAME_SECONDS = 0.1
TAIL = 60
"""Characters at the end of a model's text that are shown while it writes."""

STDIN = 0
"""The descriptor of the standard input."""

SHORT = 0.05
"""Seconds that are not worth telling."""


@dataclass(slots=True)
class _Work:
    """Something that an agent does: `label` says what, `note` why it takes long, `said` is what its model writes."""

    label: str
    begun: float
    note: str = ""
    said: str = ""


@dataclass(slots=True)
class _Agent:
    begun: float
    work: dict[str, _Work] = field(default_factory=dict)


class WorkingAgents:
    """The agents that work, and the calls that finish later, as the events of a task say."""

    def __init__(self) -> None:
        self._agents: dict[str, _Agent] = {}
        self._calls: dict[tuple[str, str], _Work] = {}

    def read(self, kind: str, data: Mapping[str, Any], now: float) -> None:
        """Note a live event that has come at `now`, in seconds."""
        extra = data.get("extra_data") or {}
        name = one_line(extra.get("agent", ""))
        if kind == "action_progress":
            label = f"waits for {one_line(extra.get('name', ''))}"
            due = f"due {time_of_day(extra.get('due', ''))}"
            begun = now - _age(extra.get("since", ""))
            work = _Work(label, begun, due, one_line(extra.get("progress", "")))
            self._calls[name, str(extra.get("call_id"))] = work
            return
        if kind == "turn_ended":
            self._agents.pop(name, None)
            if waits_for := extra.get("waits_for"):
                wait = _Work(
                    f"waits for {one_line(waits_for)} until {time_of_day(extra.get('until', ''))}", now
                )
                self._agents[name] = _Agent(now, {"wait": wait})
            return
        agent = self._agents.setdefault(name, _Agent(now))
        key = str(extra.get("tool_call_id") or extra.get("call") or "")
        match kind:
            case "turn_started":
                self._agents[name] = _Agent(now)
            case "model_call_started":
                agent.work[key] = _Work(one_line(extra.get("model", "")), now)
            case "action_started":
                agent.work[key] = _Work(one_line(extra.get("tool_name", "")), now)
            case "model_call_retried" | "action_retried" if key in agent.work:
                agent.work[key].note = (
                    f"{one_line(extra.get('reason', ''))}, attempt {extra.get('attempt')} "
                    f"after {extra.get('retry_in')} s"
                )
                agent.work[key].said = ""
            case "action_reported" if key in agent.work:
                agent.work[key].said = one_line(extra.get("progress", ""))
            case "text_delta" if key in agent.work and extra.get("kind") != "reasoning":
                agent.work[key].said = f"{agent.work[key].said}{extra.get('delta', '')}"[-TAIL:]
            case "model_call_ended" | "action_ended":
                agent.work.pop(key, None)

    def read_record(self, kind: str, data: Mapping[str, Any], now: float) -> None:
        """Note an event of the record: that a call waits, or has ended."""
        extra = data.get("extra_data") or {}
        key = one_line(extra.get("agent", "")), str(extra.get("tool_call_id"))
        if kind == "action_waiting":
            due = f"due {time_of_day(datetime.fromtimestamp(extra.get('finish_by', 0.0), UTC).isoformat())}"
            label = f"waits for {one_line(extra.get('tool_name', ''))}"
            self._calls[key] = _Work(label, now - _age(data.get("timestamp", "")), due)
        elif kind in ("action_complete", "action_error"):
            self._calls.pop(key, None)

    def line(self, now: float) -> str:
        """Return who works on what and for how long, in one line; empty if nobody does."""
        shown = [work for name, agent in self._agents.items() for work in self._described(name, agent, now)]
        for (name, _), work in self._calls.items():
            said = f": {work.said}" if work.said else ""
            shown.append(f"{name} {work.label}, {duration(now - work.begun)}, {work.note}{said}")
        return " · ".join(shown)

    def _described(self, name: str, agent: _Agent, now: float) -> Iterator[str]:
        if not agent.work:
            yield f"{name}, {duration(now - agent.begun)}"
        for work in agent.work.values():
            note = f": {one_line(work.said)}" if work.said else f" ({work.note})" if work.note else ""
            yield f"{name}: {work.label}, {duration(now - work.begun)}{note}"


class Animation:
    """What a terminal shows below everything else while agents work; `show` returns it, given the sign of a moment."""

    def __init__(self, console: "Console", show: "Callable[[str], Text]") -> None:
        from rich.live import Live

        self._show = show
        self._sign = FRAMES[0]
        self._live = Live(
            console=console, auto_refresh=False, transient=True, redirect_stdout=False, redirect_stderr=False
        )

    def draw(self) -> None:
        """Show the present state."""
        self._live.update(self._show(self._sign), refresh=True)

    async def run(self) -> None:
        """Draw again and again, until cancelled; then nothing of it is left."""
        from asyncio import sleep

        with without_echo(), self._live:
            for self._sign in cycle(FRAMES):
                self.draw()
                await sleep(FRAME_SECONDS)


@contextmanager
def without_echo() -> Iterator[None]:
    """Keep what somebody types meanwhile off the screen, where it would leave lines; the prompt gets it later.

    Ctrl+C works. Nothing happens where that isn't possible: without a terminal, in the background, on Windows.
    """
    try:
        import termios

        has_terminal = os.tcgetpgrp(STDIN) == os.getpgrp()
    except (ImportError, OSError):
        has_terminal = False
    if not has_terminal:
        yield
        return
    before = termios.tcgetattr(STDIN)
    quiet = [*before]
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(STDIN, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSANOW, before)


class Durations:
    """How long agents worked, by the items of their turns, model calls and actions."""

    def __init__(self) -> None:
        self._spans: dict[str, tuple[str, str, float]] = {}

    def read(self, item: Mapping[str, Any]) -> None:
        """Note an item; it replaces the one with its id."""
        if (seconds := item.get("seconds")) is None or not item.get("is_timed", True):
            return
        names = {"turn": "", "model_call": "models", "action": one_line(item.get("name", ""))}
        if item["kind"] in names:
            self._spans[item["id"]] = (one_line(item["agent"]), names[item["kind"]], seconds)

    def line(self) -> str:
        """Return how long each agent worked, in one line; empty for quick ones."""
        totals: dict[str, dict[str, float]] = {}
        for agent, name, seconds in self._spans.values():
            times = totals.setdefault(agent, {"": 0.0, "models": 0.0})
            times[name] = times.get(name, 0.0) + seconds
        return " · ".join(
            self._described(agent, times.pop(""), times)
            for agent, times in totals.items()
            if times[""] >= SHORT
        )

    def _described(self, agent: str, turns: float, spent: Mapping[str, float]) -> str:
        most = ", ".join(f"{name} {duration(took)}" for name, took in spent.items() if took >= SHORT)
        return f"{agent} {duration(turns)}" + (f" ({most})" if most else "")


def _age(timestamp: str) -> float:
    """Return the seconds since a timestamp; 0 for what is no timestamp, or in the future."""
    try:
        return max(0.0, time() - datetime.fromisoformat(timestamp).timestamp())
    except ValueError:
        return 0.0


def time_of_day(timestamp: str) -> str:
    """Return the time of day of a timestamp in local time; what is no timestamp, as it is."""
    try:
        return f"{datetime.fromisoformat(timestamp).astimezone():%H:%M:%S}"
    except ValueError:
        return one_line(timestamp)


def duration(seconds: float) -> str:
    """Return a number of seconds as people read it."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
