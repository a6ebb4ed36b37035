"""What indexes of tasks have in common: when they are written, the parts of a task, and the entries that find these."""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from math import inf
from time import monotonic
from unicodedata import combining

from pydantic_core import from_json

from mail.adapters.shared.cursors import foreign_cursor
from mail.core.protocol.message import DEFAULT_SUBJECT
from mail.core.task.search import LONGEST_WORD, Excerpt, fold
from mail.core.task.task import Task
from mail.errors import BadRequest, Subject

PART = 8_192
"""Characters of a part of a task, the unit of an index: what is added to a task changes its last part only."""

GRAM = 3
"""Characters of an entry of an index: a word is where all its runs of three characters are."""

PADDING = "\n" * (GRAM - 1)
"""At the end of a part, so that each of its characters begins an entry."""

OVERLAP = 2 * LONGEST_WORD
"""Characters at the end of a part of a long text with which the next one begins: a word, with accents of its own."""

BETWEEN = "\x1e"
"""Between the messages of a part; a white space, so that no word has it."""

PAUSE_SECONDS = 2.0
"""Seconds between a commit and the writing of its task, in which others may follow."""

SEARCH_SECONDS = 0.2
"""Seconds in which a search has what is new written before it begins."""

LONGEST_SEARCH = 2.0
"""Seconds after which a search ends without an answer, as others wait for it."""

MOST_PARTS = 1 << 16
"""The parts of a task at most, with its head; no limit of a task lets it have as many."""

NEWEST_PARTS = 16
"""Parts of a task, from the last one on, in which an excerpt is looked for: a word of its title may be in none."""

BEFORE, AFTER = 50, 70
"""Characters of an excerpt before the word that it shows and after it."""

_SPACES = re.compile(r"\s+")
_CUT_BEGIN, _CUT_END = re.compile(r"^\S{0,15}\s"), re.compile(r"\s\S{0,15}$")
"""A word that the limits of an excerpt have cut."""

_CURSOR = re.compile(r"(\d{1,18})@([0-9T:.+-]{1,40})", re.ASCII)

logger = logging.getLogger(__name__)

_NOBODYS = frozenset((*Subject, DEFAULT_SUBJECT))
"""Subjects that nobody has written."""

LAST = ("~", 0)
"""The place behind all tasks: a time, and the number of a task."""


def search_too_long() -> BadRequest:
    """Return the error of a search that takes too long, as none of its words is rare."""
    return BadRequest(
        f"this search takes more than {LONGEST_SEARCH:.0f} s; search for a rarer text, or for fewer days (since, until)"
    )


def grams_of(text: str) -> list[str]:
    """Return the runs of three characters of a word or part, each once; none of a shorter one."""
    return list(dict.fromkeys(text[n : n + GRAM] for n in range(len(text) - GRAM + 1)))


def head_of(task: Task) -> str:
    """Return the first part of a task: its id, title, agents and other swarms, folded."""
    others = (name for swarm, peer in task.peers.items() for name in (swarm, peer.agent))
    agents = dict.fromkeys((task.entrypoint, *task.histories, *task.pending, *others))
    return fold("\n".join((task.task_id, task.title or "", *agents))) + PADDING


def texts_of(events: bytes | str) -> Iterator[str]:
    """Yield what people wrote of the messages in a commit's events: the subject, if they did, and the body."""
    for *_, message in from_json(events):
        if message is not None:
            subject, body = message["message"]["subject"], message["message"]["body"]
            text = body if subject in _NOBODYS else f"{subject}\n{body}"
            yield text.replace("\0", " ")


def parts_of(begun: str, texts: Iterable[str]) -> Iterator[str]:
    """Yield the last part of a task, `begun` before, with further texts, and the parts after it, as they are written.

    The index has what `fold` makes of a part, and the part itself for excerpts.
    """
    part = begun.removesuffix(PADDING)
    for text in texts:
        if part and len(part) + len(text) > PART:
            yield part + PADDING
            part = ""
        part = f"{part}{BETWEEN}{text}" if part else text
        start = 0
        while len(part) - start > PART:
            yield part[start : start + PART]
            start += PART - OVERLAP
        part = part[start:]
    yield part + PADDING


def by_length(words: Iterable[str]) -> list[str]:
    """Return words in the order in which an excerpt prefers them: the longest say most."""
    return sorted(words, key=len, reverse=True)


def excerpt_of(part: str, words: Iterable[str]) -> Excerpt:
    """Return what the last message of a part with its longest word says around that, on one line, as it is written."""
    longest_first, folded = by_length(words), fold(part).split(BETWEEN)
    word, n = next(
        (word, n) for word in longest_first for n in reversed(range(len(folded))) if word in folded[n]
    )
    message, at = part.split(BETWEEN)[n], folded[n].rindex(word)
    begin, end = _span(message, at, at + len(word))
    before, after = message[:begin], message[end:].rstrip()
    cut_before, cut_after = len(before) > BEFORE, len(after) > AFTER
    if cut_before:
        before = _CUT_BEGIN.sub("", before[-BEFORE:])
    if cut_after:
        after = _CUT_END.sub("", after[:AFTER])
    text = _SPACES.sub(" ", before.lstrip() + message[begin:end] + after)
    pieces, done = ["…" * cut_before], 0
    for found in re.finditer("|".join(map(re.escape, longest_first)), fold(text)):
        begin, end = _span(text, *found.span())
        if begin >= done:  # two words may share a letter such as ß
            pieces[-1] += text[done:begin]
            pieces += text[begin:end], ""
            done = end
    pieces[-1] += text[done:] + "…" * cut_after
    return tuple(pieces)


def _span(text: str, begin: int, end: int) -> tuple[int, int]:
    """Return where the characters are that a range of a folded text is made of, with their accents."""
    if text.isascii():
        return begin, end
    first, behind = 0, len(text) - 1
    while first < behind:
        middle = (first + behind + 1) // 2
        length = len(fold(text[first:middle]))
        if length <= begin:
            first, begin, end = middle, begin - length, end - length
        else:
            behind = middle - 1
    last = first
    while last < len(text) and (end > 0 or combining(text[last])):
        end -= len(fold(text[last]))
        last += 1
    return first, last


def make_place(updated: str, number: int) -> str:
    """Return the cursor behind a task in a list ordered by the last change."""
    return f"{number}@{updated}"


def read_place(cursor: str | None) -> tuple[str, int]:
    """Return the time and number of the task that a page begins behind. Raises BadRequest for a foreign cursor."""
    if cursor is None:
        return LAST
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise foreign_cursor(cursor)
    return found[2], int(found[1])


class Behind[K: Hashable]:
    """The tasks that an index has not caught up with, and what makes it: some seconds after a commit, or for a search.

    Args:
        write: writes what is new in tasks for a while, and returns in how many of the first of them.
        compare: returns the next tasks that differ in the index and the store, and whether others follow.
        compare_again: seconds after which that is repeated, for a store with other processes, which may have died.
        is_lazy: whether only searches have it written.
    """

    def __init__(
        self,
        write: Callable[[Sequence[K]], Awaitable[int]],
        compare: Callable[[], Awaitable[tuple[Iterable[K], bool]]],
        *,
        compare_again: float = inf,
        is_lazy: bool = False,
    ) -> None:
        self._write = write
        self._compare = compare
        self._compare_again = compare_again
        self._begins_by_itself = not is_lazy
        self._changed: dict[K, None] = {}
        self._compare_at = -inf
        self._one_at_a_time = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def note(self, task: K) -> None:
        """Note that a task has changed; this is all that a commit does for the index."""
        self._changed[task] = None
        if self._timer is None:
            self._begin_later()

    def compare_again(self) -> None:
        """Compare the index and the store again, as one of them has been replaced."""
        self._compare_at = -inf
        self._begin_later()

    def _begin_later(self) -> None:
        if self._timer is None and self._begins_by_itself:
            self._timer = asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write_all())

    async def _write_all(self) -> None:
        try:
            while await self._write_some():
                pass
        except Exception:
            logger.exception("the index for searches can't be written; it is tried again")
            self._begin_later()
        if self._changed:  # meanwhile
            self._begin_later()

    async def _write_some(self) -> bool:
        """Write some of what was new when it was called; return whether there is more of that."""
        async with self._one_at_a_time:  # what another caller is writing is not found yet
            return await self._write_next()

    async def _write_next(self) -> bool:
        tasks = list(self._changed)
        if not tasks and monotonic() >= self._compare_at:
            differing, has_more = await self._compare()
            self._changed |= dict.fromkeys(differing)
            if not has_more:
                self._compare_at = monotonic() + self._compare_again
            return has_more or bool(self._changed)
        done = 0
        if tasks:
            self._changed = {}
            try:
                done = await self._write(tasks)
            finally:
                self._changed = dict.fromkeys(tasks[done:]) | self._changed
        return done < len(tasks) or monotonic() >= self._compare_at

    async def catch_up(self, seconds: float = SEARCH_SECONDS) -> bool:
        """Have what is new written for so many seconds; return whether that was all."""
        end = monotonic() + seconds
        try:
            while has_more := await self._write_some():
                if monotonic() > end:
                    break
        finally:
            if self._changed or monotonic() >= self._compare_at:
                self._begin_later()
        return not has_more

    def close(self) -> None:
        """Stop writing, for good."""
        self._begins_by_itself = False
        with suppress(RuntimeError):  # the loop may be closed
            if self._timer is not None:
                self._timer.cancel()
            if self._writing is not None:
                self._writing.cancel()
