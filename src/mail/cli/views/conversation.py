"""The view of a chat: what agents do while they work, folded into one line when they are done."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from mail.cli.output import Output, counted, one_line
from mail.cli.views.events import Stopwatch, StreamView, read_item
from mail.cli.views.live import Animation, WorkingAgents, duration

if TYPE_CHECKING:
    from rich.text import Text
    from sse_starlette import ServerSentEvent

STEPS = {"mail": "message", "action": "action", "fault": "error"}
"""The kinds of items that are steps, and the words for them."""

LINES = 8
"""The newest steps that are shown while agents work."""

OTHERS = 3
"""Lines of what an agent writes to others, which is gone when the work is done."""


@dataclass(slots=True)
class Reply:
    """The text that a model writes: `answer` goes to the user, `text` is everything else that it says.

    `to` is who gets the text if the model calls no tool: an agent, or `user`; empty for nobody.
    """

    call: object = None
    answer: str = ""
    text: str = ""
    to: str = ""

    @property
    def is_for_user(self) -> bool:
        """Whether it is the answer, or becomes it."""
        return bool(self.answer) or self.to == "user"

    def shown(self, agent: str) -> str:
        """Return the text for a person: after who writes to whom, unless it is the answer."""
        if self.answer or not self.text or self.to == "user":
            return self.answer or self.text
        return f"{agent} → {self.to}: {self.text}" if self.to else f"{agent}: {self.text}"


@dataclass(slots=True)
class Steps:
    """The steps of a task that somebody who waits wants to see: mail between agents, and actions."""

    lines: list[str] = field(default_factory=list)
    seconds: float = 0.0
    _seen: set[str] = field(default_factory=set)
    _counts: dict[str, int] = field(default_factory=dict)
    _stopwatch: Stopwatch = field(default_factory=Stopwatch)

    def read(self, item: Mapping[str, Any]) -> str | None:
        """Return the line of an item of the conversation; None if it is no step."""
        self.seconds = max(self.seconds, *map(self._stopwatch.at, (item["time"], item.get("last"))))
        lines = read_item(item) if item["kind"] in STEPS and item["id"] not in self._seen else ()
        self._seen.add(item["id"])  # it may come again, changed
        if not lines:
            return None
        [line] = lines
        noun = "error" if line.kind.endswith("error") else STEPS[item["kind"]]
        self._counts[noun] = self._counts.get(noun, 0) + 1
        self.lines.append("  ".join(part for part in (line.title, line.text) if part))
        return self.lines[-1]

    def summary(self) -> str:
        """Return how many steps there were, and how long they took; empty for none."""
        counts = [counted(count, noun) for noun, count in self._counts.items()]
        return ", ".join((*counts, duration(self.seconds))) if counts else ""


class Conversation(StreamView):
    """The view of a chat. This one prints nothing but the answer, for scripts."""

    def fold(self, command: str) -> list[str]:
        """Print one line in place of the steps, with what shows them; nothing if they stay. Return the steps."""
        return []


class PlainConversation(Conversation):
    """Prints a line per step, for a pipe."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._steps = Steps()

    async def item(self, item: Mapping[str, Any]) -> None:
        line = self._steps.read(item)
        if line is not None and not self._output.as_json:
            self._output.text(f"  {line}")


class LiveConversation(Conversation):
    """Shows the newest steps, the text that models write, and who works, at the end of a terminal."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._steps = Steps()
        self._agents = WorkingAgents()
        self._replies: dict[str, Reply] = {}
        self._newest = ""
        self._written: tuple[str, int, list[Text]] = ("", 0, [])
        self._console = output.console()
        self._animation = Animation(self._console, self._shown)

    def live(self, kind: str, data: Mapping[str, Any]) -> None:
        extra = data.get("extra_data") or {}
        if kind == "text_delta":
            self._write(one_line(extra.get("agent", "")), extra)
            return
        # the text begins again, or it was no answer
        if kind in ("model_call_started", "model_call_retried", "action_started"):
            self._replies.pop(one_line(extra.get("agent", "")), None)
        self._agents.read(kind, data, monotonic())

    def _write(self, agent: str, extra: Mapping[str, Any]) -> None:
        reply = self._replies.setdefault(agent, Reply())
        if reply.call != extra.get("call"):
            reply = self._replies[agent] = Reply(extra.get("call"))
        match extra.get("kind"):
            case "answer":
                reply.answer += str(extra.get("delta", ""))
            case "text":
                reply.text += str(extra.get("delta", ""))
                reply.to = one_line(extra.get("to", ""))
        newest = self._replies.get(self._newest)
        if newest is None or reply.is_for_user or not newest.is_for_user:
            self._newest = agent

    async def item(self, item: Mapping[str, Any]) -> None:
        self._steps.read(item)

    async def event(self, event: "ServerSentEvent", kind: str, data: Mapping[str, Any]) -> None:
        self._agents.read_record(kind, data, monotonic())

    async def run(self) -> None:
        await self._animation.run()

    def _shown(self, sign: str) -> "Text":
        """Return the newest steps, the end of the text that is being written, and who works."""
        from rich.text import Text

        size = self._console.size
        shown = Text(no_wrap=True, overflow="ellipsis")
        for line in self._steps.lines[-LINES:]:
            shown.append(f"{line}\n", "dim")
        if reply := self._replies.get(self._newest):
            room = max(size.height - LINES - 3, 1) if reply.is_for_user else OTHERS
            for written in self._lines_of(reply.shown(self._newest), size.width)[-room:]:
                shown.append_text(written).append("\n")
        working = self._agents.line(monotonic())
        return shown.append(f"{sign} {working}", "cyan")

    def _lines_of(self, text: str, width: int) -> "list[Text]":
        """Return the lines of a reply, as its Markdown will look; they are made once for each of its states."""
        from mail.cli.views.markdown import render

        if self._written[:2] != (text, width):
            self._written = (text, width, render(text, self._console))
        return self._written[2]

    def fold(self, command: str) -> list[str]:
        if summary := self._steps.summary():
            self._output.text(f"· {summary} ({command})", style="dim")
        return self._steps.lines

    def interrupted(self) -> None:
        for line in self._steps.lines:
            self._output.text(line, style="dim")
        if reply := self._replies.get(self._newest):
            self._output.answer(reply.shown(self._newest))


def conversation(output: Output, *, is_quiet: bool = False) -> Conversation:
    """Return the view for this output; into a pipe, a quiet one prints the answer only."""
    if output.is_terminal:
        return LiveConversation(output)
    return Conversation() if is_quiet else PlainConversation(output)
