"""A task's events as people read them: one line each, in columns; coloured where the terminal can."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from mail.cli.output import one_line
from mail.errors import MAILError

if TYPE_CHECKING:
    from sse_starlette import ServerSentEvent

_DEFAULT_SUBJECT = "New Message"

_PIPED_WIDTH = 160

STYLES = {
    "new_message": "bold cyan",
    "tool_call": "dim",
    "action_call": "yellow",
    "action_complete": "yellow",
    "task_complete_call": "green",
    "task_complete": "bold green",
    "agent_error": "red",
    "action_error": "red",
    "interswarm_message_error": "red",
    "task_error": "bold red",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One event, `seconds` after the task's first one; `who` did it, to `whom` where it has a recipient."""

    seconds: float
    kind: str
    who: str
    whom: str
    text: str

    def columns(self) -> tuple[str, str, str, str]:
        """Time, kind, who → whom, text; padded so that lines align."""
        parties = f"{self.who} → {self.whom}" if self.whom else self.who
        return _duration(self.seconds), f"{self.kind:<20}", f"{parties:<27}", self.text


class Stopwatch:
    """Seconds of a task's events since the first one that is read, by their own timestamps."""

    def __init__(self) -> None:
        self._begun: datetime | None = None

    def read(self, data: Mapping[str, Any]) -> float:
        """The seconds of an event; 0 where it has no time."""
        try:
            time = datetime.fromisoformat(data["timestamp"])
            self._begun = self._begun or time
            return (time - self._begun).total_seconds()
        except (KeyError, TypeError, ValueError):  # TypeError: only one of them has an offset
            return 0.0


def read_event(event: "ServerSentEvent") -> tuple[str, dict[str, Any]]:
    """The kind of an event, and its data. Raises MAILError."""
    return event.event or "message", read_data(event.data or "{}")


def read_data(text: str) -> dict[str, Any]:
    """The data of an event. Raises MAILError where it is no JSON object."""
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError) as error:
        raise MAILError(f"the server sends an event that can't be read: {text[:100]!r}") from error


def read_line(kind: str, data: Mapping[str, Any], seconds: float) -> Line:
    """Sum up an event as the server streams it (SPEC, section 9)."""
    extra = data.get("extra_data") or {}
    if "full_message" in extra:
        payload = extra["full_message"]["message"]
        recipients = payload.get("recipients") or [payload["recipient"]]
        whom = ", ".join(recipient["address"] for recipient in recipients)
        return Line(seconds, kind, one_line(payload["sender"]["address"]), one_line(whom), _words(payload))
    if "response" in data:
        return Line(seconds, kind, "", "", one_line(data["response"]))
    description = str(data.get("description", ""))
    who = one_line(str(extra.get("agent", "")))
    if "tool_name" in extra:
        arguments = json.dumps(extra.get("tool_args", {}), ensure_ascii=False)
        return Line(seconds, kind, who, "", one_line(f"{extra['tool_name']} {arguments}"))
    return Line(seconds, kind, who, "", one_line(description))


def printer(stream: TextIO) -> Callable[[Line], None]:
    """What prints a line to `stream`: styled and cut to the width of a terminal, else plain."""
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
        styled = Text.assemble(
            (time, "dim"), "  ", (kind, style), "  ", (parties, "bold"), "  ", (text, style and "default")
        )
        console.print(styled, no_wrap=True, overflow="ellipsis", crop=True)

    return print_styled


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:7.1f} ms" if seconds < 100 else f"{seconds:8.1f} s"


def _words(payload: Mapping[str, Any]) -> str:
    subject, body = one_line(payload["subject"]), one_line(payload["body"])
    return body if subject in (body, _DEFAULT_SUBJECT) else f"{subject} | {body}"
