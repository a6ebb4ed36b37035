"""Views of a task's events: as a timeline, as a tree, or as they arrive in a stream."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TextIO

from mail.cli.output import Output, one_line
from mail.cli.session import Status, status_after
from mail.cli.views.live import SHORT, Durations, StatusLine, duration
from mail.cli.views.questions import Question, read_questions
from mail.errors import MAILError

if TYPE_CHECKING:
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
    "agent_error": "red",
    "action_error": "red",
    "interswarm_message_error": "red",
    "task_error": "bold red",
    "paused": "bold yellow",
}


MAXIMUM_DEPTH = 8
"""The deepest level of a tree; deeper requests, of agents that keep writing to each other, stay on this level."""

NOT_SHOWN = frozenset({"tool_call", "task_complete_call", "breakpoint_tool_call"})
"""Kinds of event that another event repeats: the message, the action, the answer or the question."""

NOT_IN_TREE = frozenset({"await_message", "help_called"})
"""Kinds of event that add nothing to a tree. The timeline shows them."""

_REPEATED = frozenset({"::action_complete::", "::action_error::"})
"""Subjects of messages by which the system wakes an agent with results that other events have shown."""

_RUNNING = re.compile(r".* executing action tool: (?P<name>\S+) with args: (?P<arguments>.*)", re.DOTALL)
"""The description of an `action_call` (SPEC, section 9)."""

Address = tuple[str, str]
"""The type of an address, and the address."""


@dataclass(frozen=True, slots=True)
class Line:
    """An event, `seconds` after the task's first one; `whom` is empty if it has no recipient, `id` if it is unknown."""

    seconds: float
    kind: str
    who: str
    whom: str
    text: str
    id: str = ""

    def columns(self) -> tuple[str, str, str, str]:
        """Return id and time, kind, who → whom and text, padded so that lines align."""
        parties = f"{self.who} → {self.whom}" if self.whom else self.who
        number = f"{self.id:>4}  " if self.id else ""
        return f"{number}{_duration(self.seconds)}", f"{self.kind:<14}", f"{parties:<27}", self.text


class Stopwatch:
    """A clock that starts at the first event it reads, and runs by the timestamps of the events."""

    def __init__(self) -> None:
        self._begun: datetime | None = None

    def read(self, data: Mapping[str, Any]) -> float:
        """Return the seconds of an event; 0 if it has no timestamp."""
        return self.at(data.get("timestamp"))

    def at(self, timestamp: object) -> float:
        """Return the seconds of a timestamp; 0 if it isn't one."""
        try:
            time = datetime.fromisoformat(timestamp)  # type: ignore[arg-type]  # a TypeError then
            self._begun = self._begun or time
            return (time - self._begun).total_seconds()
        except (TypeError, ValueError):  # TypeError: only one of them has an offset
            return 0.0


def read_event(event: "ServerSentEvent") -> tuple[str, dict[str, Any]]:
    """Return the kind and the data of an event. Raises MAILError."""
    return event.event or "message", read_data(event.data or "{}")


def read_data(text: str) -> dict[str, Any]:
    """Parse the data of an event. Raises MAILError if it is not a JSON object."""
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError) as error:
        raise MAILError(f"the server sent an invalid event: {text[:100]!r}") from error


_WITH_RESULT = {
    "action_complete": "action_complete",
    "action_error": "action_error",
    "breakpoint_action_complete": "answered",
}
"""Kinds whose description is a title, and a result below it; and the words for them."""


def read_line(kind: str, data: Mapping[str, Any], seconds: float) -> Line:
    """Summarize an event as the server streams it (SPEC, section 9)."""
    extra = data.get("extra_data") or {}
    if "full_message" in extra:
        payload = extra["full_message"]["message"]
        recipients = payload.get("recipients") or [payload["recipient"]]
        whom = ", ".join(recipient["address"] for recipient in recipients)
        return Line(seconds, kind, one_line(payload["sender"]["address"]), one_line(whom), _words(payload))
    if "response" in data:
        return Line(seconds, kind, "", "", one_line(data["response"]))
    # of mail to and from other swarms, an event of its own shows the message
    description = str(data.get("description", "")).partition(":\n<incoming_message>")[0]
    who = one_line(str(extra.get("agent", "")))
    if "tool_name" in extra:
        arguments = json.dumps(extra.get("tool_args", {}), ensure_ascii=False)
        return Line(seconds, kind, who, "", one_line(f"{extra['tool_name']} {arguments}"))
    if kind == "action_call" and (running := _RUNNING.fullmatch(description)):
        return Line(seconds, kind, who, "", one_line(f"{running['name']} {running['arguments']}"))
    if kind in _WITH_RESULT:
        description = description.partition("\n")[2] or description
    if kind == "await_message":
        description = extra.get("reason") or description
    return Line(seconds, _WITH_RESULT.get(kind, kind), who, "", one_line(description))


class LineReader:
    """Summarizes the events of a task, in their order, without repetitions: an action is one line, and so is a pause.

    Times count from the first event; that of an action is when it began.
    """

    def __init__(self, stopwatch: Stopwatch | None = None) -> None:
        self._stopwatch = stopwatch or Stopwatch()
        self._asking_agent: str | None = None
        self._began: dict[str, float] = {}
        self._actions: dict[str, Line] = {}

    def read(self, kind: str, data: Mapping[str, Any], event_id: str | None = None) -> Line | None:
        """Return the line of an event; None if other events show the same."""
        extra = data.get("extra_data") or {}
        line = replace(read_line(kind, data, self._stopwatch.read(data)), id=one_line(event_id or ""))
        if "timing" in extra:
            self._began[line.who] = self._stopwatch.at(extra["timing"].get("began"))
        if kind == "breakpoint_tool_call":
            self._asking_agent = line.who
        elif kind == "action_call":
            if "after" in extra and line.who in self._began:
                line = replace(line, seconds=self._began[line.who] + extra["after"])
            self._actions[line.who] = line
            return None
        elif kind in ("action_complete", "action_error") and line.who in self._actions:
            return self._action(line, kind, extra)
        elif "response" in data:
            asking_agent, self._asking_agent = self._asking_agent, None
            questions = () if asking_agent is None else read_questions(str(data["response"]), asking_agent)
            if questions:
                return replace(line, kind="paused", text="; ".join(map(str, questions)))
        if (
            kind == "text_answer"
        ):  # the mail or the answer that it is taken as repeats it; a remark has no other event
            return replace(line, text=one_line(extra["content"])) if "content" in extra else None
        return None if kind in NOT_SHOWN or _is_repeated(extra) else line

    def _action(self, line: Line, kind: str, extra: Mapping[str, Any]) -> Line:
        """Return the line of an action that has ended."""
        begun = self._actions.pop(line.who)
        seconds = extra.get("seconds") or 0.0
        took = f" ({duration(seconds)})" if seconds >= SHORT else ""
        return replace(
            begun,
            kind="action" if kind == "action_complete" else kind,
            text=f"{begun.text} → {line.text}{took}",
            id=line.id,
        )


def _is_repeated(extra: Mapping[str, Any]) -> bool:
    """Return whether an event is a message that only wakes agents or ends the task, which other events show."""
    message = extra.get("full_message")
    if message is None:
        return False
    payload = message["message"]
    is_systems = payload["sender"]["address_type"] == "system"
    return message["msg_type"] == "broadcast_complete" or (is_systems and payload["subject"] in _REPEATED)


def printer(stream: TextIO) -> Callable[[Line], None]:
    """Return a function that prints lines to `stream`: styled and cut to the width of a terminal, else plain."""
    if stream.isatty():
        return _rich_printer(stream)

    def print_plain(line: Line) -> None:
        text = "  ".join(line.columns())
        stream.write(text if len(text) <= _PIPED_WIDTH else f"{text[: _PIPED_WIDTH - 1]}…")
        stream.write("\n")
        stream.flush()

    return print_plain


def _rich_printer(stream: TextIO) -> Callable[[Line], None]:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False)

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


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:7.1f} ms" if seconds < 100 else f"{seconds:8.1f} s"


def _words(payload: Mapping[str, Any]) -> str:
    subject, body = one_line(payload["subject"]), one_line(payload["body"])
    if payload["sender"]["address_type"] == "system":
        subject = subject.strip(":").replace("_", " ")
    return body if subject in (body, _DEFAULT_SUBJECT) else f"{subject} | {body}"


@dataclass(slots=True, eq=False)
class Node:
    """An event, with the events that it led to."""

    line: Line
    parent: Self | None = None
    children: list[Self] = field(default_factory=list)
    depth: int = 0


def read_tree(events: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Node]:
    """Build the tree of a task's events from their kinds and data; each message from outside is a root."""
    reader = _Reader()
    for kind, data in events:
        reader.read(kind, data)
    return reader.roots


def show_tree(roots: list[Node], output: Output) -> None:
    """Print a tree: with lines on a terminal, else indented."""
    for root in roots:
        if output.is_terminal:
            output.console().print(_branches(root), no_wrap=True, overflow="ellipsis", crop=True)
        else:
            _print_indented(root, output)


class _Reader:
    def __init__(self) -> None:
        self.roots: list[Node] = []
        self._lines = LineReader()
        self._requests: dict[str, Node] = {}
        self._at_work: dict[Address, Node] = {}

    def read(self, kind: str, data: Mapping[str, Any]) -> None:
        line = self._lines.read(kind, data)
        if line is None:
            return
        message = (data.get("extra_data") or {}).get("full_message")
        if message is not None:
            self._read_message(line, message)
        elif "response" in data:
            self._add(line, self.roots[-1] if self.roots else None)
        elif kind not in NOT_IN_TREE:
            self._add(line, self._at_work.get(("agent", line.who)))

    def _read_message(self, line: Line, message: Mapping[str, Any]) -> None:
        """Add an answer below its request, and any other message below the last message to its sender.

        Messages of the system to agents are left out.
        """
        payload = message["message"]
        if payload["sender"]["address_type"] == "system":
            return
        request = payload.get("request_id", "")
        last = self._at_work.get(_address(payload["sender"]))
        if message["msg_type"] == "response":
            self._add(line, self._requests.get(request, last))
            return
        node = self._add(line, last)
        self._requests[request] = node
        for recipient in payload.get("recipients") or [payload["recipient"]]:
            self._at_work[_address(recipient)] = node

    def _add(self, line: Line, parent: Node | None) -> Node:
        while parent is not None and parent.depth >= MAXIMUM_DEPTH:
            parent = parent.parent
        if parent is None:
            node = Node(line)
            self.roots.append(node)
        else:
            node = Node(line, parent, depth=parent.depth + 1)
            parent.children.append(node)
        return node


def _address(address: Mapping[str, Any]) -> Address:
    return address["address_type"], address["address"]


def _cells(line: Line) -> tuple[str, str]:
    """Return the title of a node, and its text."""
    if line.whom:
        return f"{line.who} → {line.whom}", line.text
    return f"{line.who} {line.kind}".strip(), line.text


def _print_indented(node: Node, output: Output) -> None:
    output.text(f"{'  ' * node.depth}{'  '.join(_cells(node.line))}")
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

    title, text = _cells(line)
    return Text.assemble((title, STYLES.get(line.kind, "") or "default"), "  ", text)


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
    questions: tuple[Question, ...]


class StreamView(Protocol):
    """A way to print the events of a stream."""

    def live(self, kind: str, data: Mapping[str, Any]) -> None:
        """Show a live event."""

    async def event(self, event: "ServerSentEvent", kind: str, data: Mapping[str, Any]) -> None:
        """Show an event of the task."""

    async def run(self) -> None:
        """Refresh what is shown again and again, until cancelled."""


async def follow(
    stream: "EventStream",
    view: StreamView,
    learn: Callable[[str, Mapping[str, Any]], None] = lambda kind, data: None,
) -> Shown:
    """Show the events of a stream as they arrive, up to the end, and pass the kind and data of each to `learn`."""
    import asyncio

    from mail.client.stream import LIVE, PING, TERMINAL

    answer: str | None = None
    asking_agent = ""
    kinds: list[str] = []
    durations = Durations()
    refreshing = asyncio.create_task(view.run())
    try:
        async with stream:
            async for event in stream:
                if event.event == PING:
                    continue
                kind, data = read_event(event)
                if kind in LIVE:
                    view.live(kind, data)
                    continue
                learn(kind, data)
                kinds.append(kind)
                durations.read(data)
                if kind == "breakpoint_tool_call":
                    asking_agent = str((data.get("extra_data") or {}).get("agent", ""))
                await view.event(event, kind, data)
                if kind in TERMINAL:
                    answer = str(data["response"])
    finally:
        refreshing.cancel()
        await asyncio.gather(refreshing, return_exceptions=True)
    status = status_after(kinds)
    questions = read_questions(answer, asking_agent) if status is Status.PAUSED else ()
    return Shown(answer, status, durations.line(), questions)


class Timeline:
    """Prints a line per event; on a terminal, with a last line that says who works."""

    def __init__(self, client: "MAILClient", task_id: str, output: Output) -> None:
        self._client = client
        self._task_id = task_id
        self._output = output
        self._status = StatusLine(output.stream)
        self._show = printer(output.stream)
        self._lines: LineReader | None = None

    def live(self, kind: str, data: Mapping[str, Any]) -> None:
        if self._output.is_terminal:
            self._status.read(kind, data)

    async def event(self, event: "ServerSentEvent", kind: str, data: Mapping[str, Any]) -> None:
        if self._lines is None:
            stopwatch = await stopwatch_for(self._client, self._task_id, event.id, self._output)
            self._lines = LineReader(stopwatch)
        line = self._lines.read(kind, data, event.id)
        if self._output.as_json:
            self._output.result({"event": kind, "id": event.id, "data": data})
        elif line is not None:
            with self._status.hidden():
                self._show(line)

    async def run(self) -> None:
        if self._output.is_terminal:
            await self._status.run()


async def show_stream(
    client: "MAILClient",
    stream: "EventStream",
    output: Output,
    *,
    learn: Callable[[str, Mapping[str, Any]], None] = lambda kind, data: None,
) -> Shown:
    """Print events as a timeline, as `follow` does."""
    return await follow(stream, Timeline(client, stream.task_id, output), learn)


async def stopwatch_for(
    client: "MAILClient", task_id: str, first_id: str | None, output: Output
) -> Stopwatch:
    """Return a stopwatch that the task's first event has started, even if a later one is shown first."""
    stopwatch = Stopwatch()
    if first_id != "1" and not output.as_json:
        with suppress(MAILError, LookupError, TypeError):  # then times count from the first event shown
            events = (await client.get_task(task_id))["events"]
            stopwatch.read(read_data(events[0]["data"]))
    return stopwatch


def show_answer(shown: Shown, output: Output) -> None:
    """Print the whole answer below a timeline, which shows only its beginning; on a terminal, how long agents worked."""
    if shown.answer is None or output.as_json:
        return
    if not shown.questions:
        output.text(f"\nAnswer: {shown.answer}")
    if shown.durations and output.is_terminal:
        output.text(shown.durations, style="dim")
