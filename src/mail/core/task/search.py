"""The search for tasks: what is asked, and how texts are compared.

A query is plain text. Each of its words must occur in a task as it stands, also inside a longer word, so that signs
such as `**` need no quoting and languages without spaces are found. Case and accents don't count.
"""

import re
from enum import StrEnum
from functools import partial
from unicodedata import normalize

from mail.core.protocol.values import value
from mail.core.task.task import Task, TaskStatus
from mail.errors import BadRequest

MOST_WORDS = 16

LONGEST_WORD = 128
"""Characters of a word."""

type Excerpt = tuple[str, ...]
"""What a message says around the words of a search: every second piece, from the second on, is one of them."""

_drop_accents = partial(re.compile("[\u0300-\u036f]").sub, "")


class Searched(StrEnum):
    """What of the tasks was searched."""

    TEXTS = "texts"
    SOME_TEXTS = "some texts"
    TITLES = "titles"


@value
class Search:
    """What the tasks must have that are searched for.

    Attributes:
        words: each occurs in the title, the id, a message, or the name of an agent or another swarm.
        since: the last change of a task is not before this time, in ISO 8601, UTC; "" for any.
        until: it is before this one; "" for any.
        min_cost: what its models have cost at least, in US dollars.
    """

    words: tuple[str, ...] = ()
    status: TaskStatus | None = None
    since: str = ""
    until: str = ""
    min_cost: float = 0.0

    def admits(self, task: Task) -> bool:
        """Return whether a task has what is asked besides the words."""
        return (
            (self.status is None or task.status is self.status)
            and task.updated >= self.since
            and (not self.until or task.updated < self.until)
            and cost_of(task) >= self.min_cost
        )


def fold(text: str) -> str:
    """Return a text as it is compared: without case and accents; compatible forms of a character are one.

    The length of what a character becomes doesn't depend on its neighbours.
    """
    if not text.isascii():
        text = _drop_accents(normalize("NFKD", text.casefold()))
    return text.casefold().replace("\0", " ")


def words_of(query: str) -> tuple[str, ...]:
    """Return the words of a query. Raises BadRequest for too many or too long ones."""
    words = tuple(dict.fromkeys(fold(query).split()))
    if len(words) > MOST_WORDS or any(len(word) > LONGEST_WORD for word in words):
        raise BadRequest(f"q has more than {MOST_WORDS} words, or one of more than {LONGEST_WORD} characters")
    return words


def cost_of(task: Task) -> float:
    """Return what the models of a task have cost, in US dollars."""
    return sum(usage.cost for usage in task.usage.values())
