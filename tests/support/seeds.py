"""The documents that this project implements, where they are at hand: their fenced blocks.

They are not part of the repository. They are looked for in the folder that MAIL_SEEDS names, and beside the checkout.
"""

import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from textwrap import dedent

ROOT = Path(__file__).parents[2]
SEEDS = ("000", "001", "002")
"""By the numbers that their names begin with; the first one holds many documents, each under its name."""

_DOCUMENT = re.compile(r"===== `(.+)` =====")
_FENCE = re.compile(r"\s*```(\w*)\s*")


@dataclass(frozen=True)
class Block:
    """A fenced block: the `number`th of its language in its document, counted from 1.

    The document is a path, or the number of a seed that is one document.
    """

    document: str
    language: str
    number: int
    code: str

    @property
    def name(self) -> str:
        return f"{self.document} {self.language} {self.number}"


@cache
def blocks() -> tuple[Block, ...]:
    """Every block of the seeds; none where they aren't at hand."""
    return tuple(block for seed in SEEDS for block in _read(seed, text_of(seed)))


def text_of(seed: str) -> str:
    """The text of a seed; empty where it isn't at hand."""
    folders = [os.environ.get("MAIL_SEEDS"), ROOT.parent / "shared" / "seeds"]
    found = (path for folder in folders if folder for path in Path(folder).glob(f"{seed}_*.txt"))
    path = next(found, None)
    return "" if path is None else path.read_text(encoding="utf-8")


def _read(seed: str, text: str) -> Iterator[Block]:
    count: Counter[tuple[str, str]] = Counter()
    document, language, lines = seed, None, list[str]()
    for line in text.splitlines():
        if found := _DOCUMENT.fullmatch(line):
            document, language = found[1], None  # one document ends with a fence too many
        elif found := _FENCE.fullmatch(line):
            if language is None:
                language, lines = found[1], []
            else:
                count[document, language] += 1
                yield Block(document, language, count[document, language], dedent("\n".join(lines)) + "\n")
                language = None
        elif language is not None:
            lines.append(line)
