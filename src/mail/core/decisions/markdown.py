"""A task's conversation as Markdown, for people who have no access to the server. Pure.

It has what people and agents said and did, and nothing that the models were given: no prompts and no reasoning. Their
texts are quotations, so that none of them can look like another entry.
"""

from collections.abc import Iterable, Iterator, Sequence
from json import dumps
from re import findall
from typing import Any

from mail.core.decisions.items import (
    Action,
    Answer,
    Cancelled,
    Failed,
    Fault,
    Forked,
    Item,
    Mail,
    Message,
    Note,
    Opened,
    Question,
    Reply,
    Told,
    Work,
)
from mail.core.protocol.visible_text import printable
from mail.core.task.events import EventKind
from mail.core.task.task import Task

LONGEST_STEP = 2_000
"""Characters of a text in a step of the agents' work; the rest is left out."""

MOST_HELD = 1024 * 1024
"""Bytes of events after which an item no longer waits for what may change it."""

_UNSAID = frozenset({EventKind.AWAIT_MESSAGE, EventKind.CONTEXT_CUT, EventKind.TASK_SHARED})
"""Kinds of notes that are about the task itself, and nothing that anybody said or did in it."""


class Transcript:
    """Writes the items of a conversation in their order, each when nothing is expected to change it any more."""

    def __init__(self) -> None:
        self._held: dict[str, Item] = {}
        self._size = 0
        self._last = (0, 0)

    def add(self, items: Iterable[Item], size: int) -> str:
        """Take the items that an event of some bytes adds or changes; return what is written by now."""
        self._held |= {item.id: item for item in items if _place(item) > self._last}
        self._size += size
        written = ""
        while self._held and (is_final(item := next(iter(self._held.values()))) or self._size > MOST_HELD):
            self._last = _place(self._held.pop(item.id))
            written += markdown_of(item)
        if not self._held:
            self._size = 0
        return written

    def end(self) -> str:
        """Return what is left."""
        return "".join(map(markdown_of, self._held.values()))


def _place(item: Item) -> tuple[int, int]:
    """Return the place of an item in its conversation: the event that added it, and its number there."""
    seq, _, n = item.id.partition(".")
    return int(seq), int(n)


def heading(task: Task) -> str:
    """Return how the Markdown of a task begins."""
    facts = f"Task `{task.task_id}`, {task.status}. Begun {task.started}, last changed {task.updated}."
    return f"# {_line(task.title or task.task_id)}\n\n{facts}\n"


def is_final(item: Item) -> bool:
    """Return whether no later event usually changes an item."""
    match item:
        case Work():
            return item.ended is not None
        case Question():
            is_run = item.reply is not None and item.reply.decision in ("approve", "edit")
            return not item.is_open and (item.result is not None or not is_run)
        case Action():
            return not item.is_waiting
    return True


def markdown_of(item: Item) -> str:
    """Return the Markdown of an item, after an empty line; an empty text for one that says nothing by itself."""
    return "".join(f"\n{paragraph}\n" for paragraph in _paragraphs(item))


def _paragraphs(item: Item) -> Iterator[str]:
    match item:
        case Message() | Told():
            yield f"## {_line(item.who)} to {_names(item.recipients)}"
            if item.subject:
                yield f"**{_line(item.subject)}**"
            yield _quoted(item.text)
            if isinstance(item, Message):
                yield from _files(item.files)
        case Answer():
            yield f"## {_line(item.who) or 'The swarm'} answered"
            yield _quoted(item.text)
            yield from _files(item.files)
        case Question():
            yield from _question(item)
        case Work() if item.turns:
            turns = "1 turn" if item.turns == 1 else f"{item.turns} turns"
            yield f"*{turns} of {_names(item.agents)}*"
        case Mail():
            text = f"{item.subject}: {item.text}" if item.subject else item.text
            yield f"- {_line(item.sender)} wrote to {_names(item.recipients)}:\n{_indented(_quoted(_short(text)))}"
            yield from _files(item.files)
        case Action():
            yield f"- {_line(item.agent)} used `{_line(item.name)}`\n{_indented(_json(item.arguments))}"
            if item.is_waiting:
                yield "  Its result is to come."
            else:
                yield f"  {'Error' if item.has_failed else 'Result'}:\n{_indented(_fenced(_short(item.result)))}"
        case Fault():
            yield f"- Error of {_line(item.agent) or 'the system'}:\n{_indented(_quoted(_short(item.text)))}"
        case Note() if item.name not in _UNSAID:
            about = " ".join(filter(None, (item.agent, item.name.replace("_", " "))))
            yield f"- {_line(about)}:\n{_indented(_quoted(_short(item.text)))}"
        case Failed() | Cancelled():
            yield f"## The task {'failed' if isinstance(item, Failed) else 'was cancelled'}"
            yield _quoted(item.text)
        case Forked():
            yield f"*It continues task `{item.forked_from}` from event {item.at}.*"
        case Opened():
            yield f"*{_line(item.by)} opened the task: {_line(item.reason)}*"


def _question(item: Question) -> Iterator[str]:
    yield f"## {_line(item.agent)} asked"
    if item.asked is not None:
        yield _quoted(item.asked.text)
    else:
        yield _line(item.words)
        yield _json(item.arguments)
    if item.reply is not None:
        yield from _reply(item.reply)
    else:
        yield "*It waits for an answer.*" if item.is_open else "*It was not answered.*"
    if item.result is not None:
        yield "Result:"
        yield _fenced(item.result)


def _reply(reply: Reply) -> Iterator[str]:
    by = f" by {_line(reply.by)}" if reply.by else ""
    reason = f": {_line(reply.reason)}" if reply.reason else "."
    match reply.decision:
        case None | "answer":
            yield f"### Answer{by}"
            yield _quoted(reply.text or "")
        case "approve":
            yield f"Approved{by}{reason}"
        case "edit":
            yield f"Approved with other arguments{by}{reason}"
            yield _json(reply.arguments or {})
        case "reject":
            yield f"Rejected{by}{reason}"


def _files(files: Sequence[dict[str, Any]]) -> Iterator[str]:
    for file in files:
        yield f"- File: {_line(str(file['name']))}, {_line(str(file['type']))}, {file['bytes']} bytes"


def _line(text: str) -> str:
    """Return a name or title as one line, with everything in it visible."""
    return " ".join(printable(text).split())


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(_line, names))


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_STEP else f"{text[:LONGEST_STEP]}… ({len(text)} characters)"


def _json(arguments: dict[str, Any]) -> str:
    return _fenced(_short(dumps(arguments, ensure_ascii=False, indent=2)), "json")


def _fenced(text: str, language: str = "") -> str:
    """Return a text as a block of code, whatever fences it has itself."""
    fence = "`" * max(3, 1 + max(map(len, findall("`+", text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def _quoted(text: str) -> str:
    """Return a text as a quotation."""
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _indented(text: str) -> str:
    """Return a text as a part of an item of a list."""
    return "\n" + "\n".join(f"  {line}".rstrip() for line in text.splitlines())
