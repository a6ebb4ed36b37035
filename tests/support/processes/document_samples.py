"""The blocks of a document: found, and the Python among them run as a reader would, from top to bottom."""

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVE_AS = re.compile(r"[Ss]ave this as\s+`([\w.]+)`:\s*\Z")


@dataclass(frozen=True)
class Block:
    """A fenced block, the text since the last one, and the file that it becomes, if it is said to."""

    language: str
    text: str
    before: str
    file: str | None


def read_blocks(document: Path) -> Iterator[Block]:
    """Return the blocks of a document, from top to bottom."""
    text, end = document.read_text(encoding="utf-8"), 0
    for found in _BLOCK.finditer(text):
        before, end = text[end : found.start()], found.end()
        name = _SAVE_AS.search(before)
        yield Block(found[1], found[2], before, name[1] if name else None)


def blocks(document: Path, *languages: str) -> Iterator[tuple[str, str]]:
    """Return the language and the text of each block in one of these languages."""
    return ((block.language, block.text) for block in read_blocks(document) if block.language in languages)


async def run(code: str, namespace: dict[str, Any]) -> None:
    """Run a sample. It may await at its top level; one that doesn't may begin an event loop, and runs in a thread."""
    compiled = compile(code, "<sample>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if compiled.co_flags & inspect.CO_COROUTINE:
        await eval(compiled, namespace)
    else:
        await asyncio.to_thread(exec, compiled, namespace)


async def run_in_order(
    document: Path, capsys: pytest.CaptureFixture[str], namespace: dict[str, Any] | None = None
) -> int:
    """Run the `python` blocks in one namespace. An `output` block is just what the one before it has printed.

    Returns how many outputs there were.
    """
    space = {"__name__": "document"} if namespace is None else namespace
    printed, expected = "", 0
    for language, text in blocks(document, "python", "output"):
        if language == "output":
            assert printed == text
            expected += 1
            continue
        await run(text, space)
        printed = capsys.readouterr().out
    return expected
