"""A task as a tree: below each request what was done about it, the requests to others among that."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from mail.cli.output import Output
from mail.cli.views.timeline import STYLES, Line, Stopwatch, read_line

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

DEEPEST = 8
"""How deep it gets: agents that keep asking each other go on beside the last question."""

LEFT_OUT = frozenset({"tool_call", "await_message", "task_complete_call", "help_called"})
"""Kinds of event that say nothing more than others do. The timeline has them."""

Party = tuple[str, str]
"""Somebody who writes: the kind of address, and the address."""


@dataclass(slots=True, eq=False)
class Node:
    """An event, with what it led to."""

    line: Line
    parent: Self | None = None
    children: list[Self] = field(default_factory=list)
    depth: int = 0


def read_tree(events: Iterable[tuple[str, Mapping[str, Any]]]) -> list[Node]:
    """The tree of a task's events, given their kinds and data; a root per message from outside."""
    reader = _Reader()
    for kind, data in events:
        reader.read(kind, data)
    return reader.roots


def show_tree(roots: list[Node], output: Output) -> None:
    """Print it: with lines on a terminal, else indented."""
    for root in roots:
        if output.is_terminal:
            output.console().print(_branches(root), no_wrap=True, overflow="ellipsis", crop=True)
        else:
            _print_indented(root, output)


class _Reader:
    def __init__(self) -> None:
        self.roots: list[Node] = []
        self._stopwatch = Stopwatch()
        self._requests: dict[str, Node] = {}
        self._at_work: dict[Party, Node] = {}

    def read(self, kind: str, data: Mapping[str, Any]) -> None:
        line = read_line(kind, data, self._stopwatch.read(data))
        message = (data.get("extra_data") or {}).get("full_message")
        if message is not None:
            self._read_message(line, message)
        elif "response" in data:
            self._add(line, self.roots[-1] if self.roots else None)
        elif kind not in LEFT_OUT:
            self._add(line, self._at_work.get(("agent", line.who)))

    def _read_message(self, line: Line, message: Mapping[str, Any]) -> None:
        """An answer goes below its request, all else below what its sender was asked last.

        What the system tells agents is left out, and so is the end, as there are events about both.
        """
        payload = message["message"]
        if payload["sender"]["address_type"] == "system" or message["msg_type"] == "broadcast_complete":
            return
        request = payload.get("request_id", "")
        asked = self._at_work.get(_party(payload["sender"]))
        if message["msg_type"] == "response":
            self._add(line, self._requests.get(request, asked))
            return
        node = self._add(line, asked)
        self._requests[request] = node
        for recipient in payload.get("recipients") or [payload["recipient"]]:
            self._at_work[_party(recipient)] = node

    def _add(self, line: Line, parent: Node | None) -> Node:
        while parent is not None and parent.depth >= DEEPEST:
            parent = parent.parent
        if parent is None:
            node = Node(line)
            self.roots.append(node)
        else:
            node = Node(line, parent, depth=parent.depth + 1)
            parent.children.append(node)
        return node


def _party(address: Mapping[str, Any]) -> Party:
    return address["address_type"], address["address"]


def _words(line: Line) -> tuple[str, str]:
    """Who does what, and the text."""
    if line.whom:
        return f"{line.who} → {line.whom}", line.text
    return f"{line.who} {line.kind}".strip(), line.text


def _print_indented(node: Node, output: Output) -> None:
    output.text(f"{'  ' * node.depth}{'  '.join(_words(node.line))}")
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

    title, text = _words(line)
    return Text.assemble((title, STYLES.get(line.kind, "") or "default"), "  ", text)
