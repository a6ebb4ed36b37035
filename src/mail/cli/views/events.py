"""Views of a task's items: as a timeline, as a tree, or as they arrive in a stream."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from mail.cli.output import Output, one_line
from mail.cli.session import Status
from mail.cli.views.live import SHORT, Animation, Durations, WorkingAgents, duration
from mail.cli.views.questions import Question, questions_of
from mail.errors import MAILError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree
    from sse_starlette import ServerSentEvent

    from mail.client import EventStream, MAILClient

_DEFAULT_SUBJECT = "New Message"

_PIPED_WIDTH = 160

STYLES = {
    "new_message": "bold cyan",
    "await_message": "dim",
    "action": "yellow",
    "task_complete": "bold green",
    "error": "red",
    "action_error": "red",
    "guard_decision": "yellow",
    "task_error": "bold red",
    "paused": "bold yellow",
    "working": "dim",
}
"""The colours of lines."""

WORK = frozenset({"model_call_started", "model_call_retried", "action_started", "action_retried"})
"""The live events that say who works on what."""

_ENDS = {
    "answer": "task_complete",
    "failed": "task_error",
    "cancelled": "task_cancelled",
    "forked": "task_forked",
    "opened": "task_opened",
}
"""What the timeline calls an item that is not about the work on the task."""

MAXIMUM_DEPTH = 8
"""The deepest level of a tree; deeper requests, of agents that keep writing to each other, stay on this level."""


@dataclass(frozen=True, slots=True)
class Line:
    """Something that happened, `seconds` after the task began; `whom` is empty without a recipient, `id` if unknown."""

    seconds: float
    kind: str
    who: str
    whom: str
    text: str
    id: str = ""

    @property
    def title(self) -> str:
        """Who wrote to whom, or who did what."""
        return f"{self.who} → {self.whom}" if self.whom else f"{self.who} {self.kind}".strip()

    def columns(self) -> tuple[str, str, str, str]:
        """Return id and time, kind, who → whom and text, padded so that lines align."""
        parties = f"{self.who} → {self.whom}" if self.whom else self.who
        number = f"{self.id:>4}  " if self.id else ""
        time = f"{self.seconds * 1000:7.1f} ms" if self.seconds < 1 else f"{duration(self.seconds):>10}"
        return f"{number}{time}", f"{self.kind:<14}", f"{parties:<27}", self.text


class Stopwatch:
    """A clock that starts at the first timestamp that it reads."""

    def __init__(self) -> None:
        self._begun: datetime | None = None

    def at(self, timestamp: object) -> float:
        """Return the seconds of a timestamp; 0 if it isn't one."""
        try:
            time = datetime.fromisoformat(timestamp)  # type: ignore[arg-type]  # a TypeError then
            self._begun = self._begun or time
            return (time - self._begun).total_seconds()
        except (TypeError, ValueError):  # TypeError: only one of them has an offset
            return 0.0


def read_data(text: str) -> dict[str, Any]:
    """Parse the data of an event. Raises MAILError if it is not a JSON object."""
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError) as error:
        raise MAILError(f"the server sent an invalid event: {text[:100]!r}") from error


def read_item(item: Mapping[str, Any]) -> tuple[Line, ...]:
    """Return the lines of an item (`mail.core.decisions.items`), without times; none for one that shows nothing."""
    number = str(item["seq"])
    who = one_line(item.get("who") or item.get("sender") or item.get("agent") or "")
    whom, text = one_line(", ".join(item.get("recipients") or ())), one_line(item.get("text") or "")
    match item["kind"]:
        case "message" | "mail" | "told":
            words = titled(one_line(item["subject"]), text)
            return (Line(0, "new_message", who, whom, words, number),)
        case "action":
            call = f"{item['name']} {json.dumps(item['arguments'], ensure_ascii=False)}"
            seconds = item["seconds"] or 0.0
            took = f" ({duration(seconds)})" if seconds >= SHORT else ""
            kind = "action_error" if item["has_failed"] else "action"
            ended = str(item["version"])
            result = "its result comes later" if item.get("is_waiting") else item["result"]
            return (Line(0, kind, who, "", one_line(f"{call} → {result}{took}"), ended),)
        case "fault" if not item["ended_task"]:
            return (Line(0, "error", who, "", text, number),)
        case "note":
            return (Line(0, one_line(item["name"]), who or ("system" if whom else ""), whom, text, number),)
        case "question":
            asked = Line(0, "paused", "", "", one_line(item["words"]), number)
            return (asked, *((_replied(item, who),) if item.get("reply") else ()))
        case kind if kind in _ENDS:
            text = text or f"a fork of task {one_line(item['forked_from'])}, as it was at {item['at']}"
            return (Line(0, _ENDS[kind], "", "", text, number),)
    return ()


def titled(subject: str, body: str) -> str:
    """Return the body of a message after its subject, if that says more."""
    return body if subject in (body, _DEFAULT_SUBJECT) else f"{subject} | {body}"


def _replied(item: Mapping[str, Any], who: str) -> Line:
    """Return the line of a person's reply to a question."""
    reply = item["reply"]
    words = (
        reply["text"]
        if reply["decision"] is None
        else ": ".join(filter(None, (reply["decision"], reply["reason"])))
    )
    return Line(0, "answered", who, "", one_line(words), str(item["version"]))


class LineReader:
    """Reads the items of a task, in the order in which they come; one that comes again may have got a further line.

    Times count from `start`, or the first item.
    """

    def __init__(self, start: str | None = None) -> None:
        self._stopwatch = Stopwatch()
        self._stopwatch.at(start)
        self._shown: dict[str, int] = {}

    def read(self, item: Mapping[str, Any]) -> list[Line]:
        """Return the lines of an item that are new."""
        lines = read_item(item)
        new = lines[self._shown.get(item["id"], 0) :]
        self._shown[item["id"]] = len(lines)
        times = [item["time"], *([item["reply"]["time"]] if len(lines) > 1 else [])][-len(new) :]
        return [
            replace(line, seconds=self._stopwatch.at(time)) for line, time in zip(new, times, strict=False)
        ]

    def timed(self, line: Line, timestamp: object) -> Line:
        """Return a line with the seconds from the beginning of the task to a timestamp."""
        return replace(line, seconds=self._stopwatch.at(timestamp))


def read_event_line(kind: str, data: Mapping[str, Any]) -> Line:
    """Return the line of an event of a server that has no items, by its description."""
    who = (data.get("extra_data") or {}).get("agent", "")
    return Line(0, kind, one_line(who), "", one_line(data.get("response", data.get("description", ""))))


def printer(output: Output, console: "Console | None" = None) -> Callable[[Line], None]:
    """Return a function that prints lines: styled and cut to the width of a terminal, else plain."""
    if output.is_terminal:
        return _rich_printer(console or output.console())

    def print_plain(line: Line) -> None:
        text = "  ".join(line.columns())
        output.write(text if len(text) <= _PIPED_WIDTH else f"{text[: _PIPED_WIDTH - 1]}…")

    return print_plain


def _rich_printer(console: "Console") -> Callable[[Line], None]:
    from rich.text import Text

    def print_styled(line: Line) -> None:
        time, kind, parties, text = line.columns()
        style = STYLES.get(line.kind, "")
        styled = Text.assemble((time, "dim"), "  ", (kind, style), "  ", (parties, "bold"))
        told = Text(text, style and "default")
        if styled.cell_len + 2 + told.cell_len <= console.width:
            styled = Text.assemble(styled, "  ", told)
        else:  # a line of its own, as little of it would fit beside the columns
            styled.rstrip()
            styled = Text.assemble(styled, "\n", " " * (len(time) + 2), told)
        console.print(styled, no_wrap=True, overflow="ellipsis", crop=True)

    return print_styled


@dataclass(slots=True, eq=False)
class Node:
    """A line, with those of what it led to."""

    line: Line
    parent: Self | None = None
    children: list[Self] = field(default_factory=list)
    depth: int = 0


def read_tree(items: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Build the tree of a task from its items; each message from outside is a root."""
    roots: list[Node] = []
    messages: dict[int, Node] = {}
    for item in items:
        is_aside = item["kind"] in ("note", "forked") and item.get("name") != "guard_decision"
        if is_aside or not (lines := read_item(item)):
            continue
        is_end = item["kind"] in ("question", *_ENDS)
        parent = (roots[-1] if roots else None) if is_end else messages.get(item["cause"])
        while parent is not None and parent.depth >= MAXIMUM_DEPTH:
            parent = parent.parent
        node = Node(lines[0], parent, depth=0 if parent is None else parent.depth + 1)
        (roots if parent is None else parent.children).append(node)
        if lines[0].whom:
            messages[item["seq"]] = node
    return roots


def show_tree(roots: list[Node], output: Output) -> None:
    """Print a tree: with lines on a terminal, else indented."""
    for root in roots:
        if output.is_terminal:
            output.console().print(_branches(root), no_wrap=True, overflow="ellipsis", crop=True)
        else:
            _print_indented(root, output)


def _print_indented(node: Node, output: Output) -> None:
    output.text(f"{'  ' * node.depth}{node.line.title}  {node.line.text}")
    for child in node.children:
        _print_indented(child, output)


def _branches(node: Node) -> "Tree":
    from rich.tree import Tree

    tree = Tree(_styled(node.line), guide_style="dim")
    waiting = [(node, tree)]
    while waiting:
        parent, branch = waiting.pop()
        waiting += [(child, branch.add(_styled(child.line))) for child in parent.children]
    return tree


def _styled(line: Line) -> "Text":
    from rich.text import Text

    return Text.assemble((line.title, STYLES.get(line.kind, "") or "default"), "  ", line.text)


class Shown(NamedTuple):
    """The last answer in a stream, if there is one, and what the stream has told of the task.

    Attributes:
        status: the task's status after the answer.
        durations: how long agents worked, in one line.
        questions: what a paused task asks.
    """

    answer: str | None
    status: Status | None
    durations: str
    questions: tuple[Question, ...] = ()


class StreamView:
    """A way to print the events of a stream. This one shows nothing."""

    def live(self, kind: str, data: Mapping[str, Any]) -> None:
        """Show a live event."""

    async def item(self, item: Mapping[str, Any]) -> None:
        """Show an item."""

    async def event(self, event: "ServerSentEvent", kind: str, data: Mapping[str, Any]) -> None:
        """Show an event of the task."""

    async def run(self) -> None:
        """Refresh what is shown again and again, until cancelled."""

    def interrupted(self) -> None:
        """Leave what was shown on the screen, as nobody waits for the rest."""


async def follow(
    stream: "EventStream",
    view: StreamView,
    learn: Callable[[Mapping[str, Any]], None] = lambda data: None,
) -> Shown:
    """Show the events of a stream as they arrive, up to the end, and pass the data of each to `learn`."""
    import asyncio

    from mail.client.stream import ITEM, LIVE, PING, status_of

    answer: str | None = None
    status: str | None = None
    durations = Durations()
    refreshing = asyncio.create_task(view.run())
    try:
        async with stream:
            async for event in stream:
                if event.event == PING:
                    continue
                kind, data = event.event or "message", read_data(event.data or "{}")
                if kind == ITEM:
                    durations.read(data)
                    await view.item(data)
                    continue
                if kind in LIVE:
                    view.live(kind, data)
                    continue
                learn(data)
                await view.event(event, kind, data)
                if found := status_of(kind, data):
                    status, answer = found, str(data["response"])
    finally:
        refreshing.cancel()
        await asyncio.gather(refreshing, return_exceptions=True)
        if status is None:
            view.interrupted()
    return Shown(answer, None if status is None else Status(status), durations.line())


class Timeline(StreamView):
    """Prints a line per item, and who works: on a terminal as its last line, else as lines. As JSON, the events."""

    def __init__(self, client: "MAILClient", task_id: str, output: Output) -> None:
        self._client = client
        self._task_id = task_id
        self._output = output
        self._agents = WorkingAgents()
        console = output.console() if output.is_terminal else None
        self._animation = (
            None if console is None or console.is_dumb_terminal else Animation(console, self._working)
        )
        self._show = printer(output, console)
        self._lines: LineReader | None = None

    def _working(self, sign: str) -> "Text":
        from rich.text import Text

        return Text(f"{sign} {self._agents.line(monotonic())}", no_wrap=True, overflow="ellipsis")

    def live(self, kind: str, data: Mapping[str, Any]) -> None:
        self._agents.read(kind, data, monotonic())
        if self._animation is not None:
            self._animation.draw()
            return
        extra = data.get("extra_data") or {}
        if self._output.as_json or kind not in WORK:
            return
        what = one_line(extra.get("model") or extra.get("tool_name") or "")
        again = (
            f", attempt {extra['attempt']}: {one_line(extra.get('reason', ''))}" if "attempt" in extra else ""
        )
        line = Line(0, "working", one_line(extra.get("agent", "")), "", f"{what}{again}")
        self._print([self._lines.timed(line, data.get("timestamp"))] if self._lines else [line])

    async def item(self, item: Mapping[str, Any]) -> None:
        if self._output.as_json:
            return
        if self._lines is None:
            self._lines = LineReader(await self._start() if item["seq"] > 1 else item["time"])
        self._print(self._lines.read(item))

    async def _start(self) -> str | None:
        """Return when the task began, of which a later part is shown; None if the server doesn't tell."""
        with suppress(MAILError, LookupError):
            return str((await self._client.get_task(self._task_id, summary=True))["start_time"])
        return None

    async def event(self, event: "ServerSentEvent", kind: str, data: Mapping[str, Any]) -> None:
        self._agents.read_record(kind, data, monotonic())
        if self._output.as_json:
            self._output.result({"event": kind, "id": event.id, "data": data})
        elif self._lines is None:
            self._print([read_event_line(kind, data)])

    def _print(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._show(line)

    async def run(self) -> None:
        if self._animation is not None:
            await self._animation.run()


async def show_stream(
    client: "MAILClient",
    stream: "EventStream",
    output: Output,
    *,
    learn: Callable[[Mapping[str, Any]], None] = lambda data: None,
) -> Shown:
    """Print a stream with items as a timeline, as `follow` does, and the answer; ask what a paused task waits for."""
    shown = await follow(stream, Timeline(client, stream.task_id, output), learn)
    if shown.status is Status.PAUSED and not output.as_json:
        task = await client.get_task(stream.task_id, summary=True)
        shown = shown._replace(questions=questions_of(task.get("pending_tool_calls") or ()))
    _show_answer(shown, output)
    return shown


def _show_answer(shown: Shown, output: Output) -> None:
    """Print the whole answer below a timeline, which shows its beginning; on a terminal, how long agents worked."""
    if shown.answer is None or output.as_json:
        return
    if not shown.questions:
        output.text("\nAnswer:" if output.is_terminal else f"\nAnswer: {shown.answer}", style="bold")
        if output.is_terminal:
            output.answer(shown.answer)
    if shown.durations and output.is_terminal:
        output.text(shown.durations, style="dim")
