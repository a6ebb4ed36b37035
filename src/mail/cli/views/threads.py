"""Views of threads."""

from collections.abc import Iterator, Mapping
from typing import Any

from mail.cli.output import Output, one_line
from mail.cli.views.events import Line, Node, show_tree


def show_threads(answer: Mapping[str, Any], output: Output) -> None:
    """Print a line per thread."""
    headings = ("thread", "state", "worker", "waits", "updated", "task", "title")
    output.table(headings, [_row(each, output) for each in answer["threads"]], none="no threads")
    if answer["next_cursor"] and output.is_terminal:
        output.text(f"There are more threads: --cursor {answer['next_cursor']}", style="dim")


def show_thread(answer: Mapping[str, Any], output: Output, *, in_full: bool = False) -> None:
    """Print a thread's facts, and its conversation: as a tree with a line per message, or in full."""
    for name, value in _facts(answer["summary"]):
        output.text(f"{name:<10}  {one_line(value)}")
    output.text("")
    if not in_full:
        show_tree(_tree(answer), output)
        return
    for turn in answer["conversation"]:
        message, indent = turn["message"], "  " * turn["level"]
        marked = f"{_mark(answer['summary'], message)}{message['subject']}"
        heading = one_line(f"{message['sender']} → {message['recipient']} {marked}")
        output.text(f"{indent}{heading}", style="bold")
        for line in message["body"].splitlines():
            output.text(f"{indent}  {line}".rstrip())
        output.text("")


def _row(summary: Mapping[str, Any], output: Output) -> tuple[str, ...]:
    """Return the cells of a thread; without a bead, it has the status and the title of its newest task."""
    first: Mapping[str, Any] = next(iter(summary.get("tasks") or ()), {})  # older servers send none
    task_id = summary["task_ids"][0]
    return (
        summary["thread_id"],
        summary["state"] if summary["bead_id"] else first.get("status", ""),
        summary["worker"],
        _waits(summary),
        output.time(summary["updated_at"]),
        "" if task_id == summary["thread_id"] else task_id,
        summary["title"] or first.get("title") or "",
    )


def _waits(summary: Mapping[str, Any]) -> str:
    """Return the numbers of messages that wait to be acknowledged, in words."""
    late = f", {len(summary['overdue'])} overdue" if summary["overdue"] else ""
    return f"{len(summary['pending'])} pending{late}" if summary["pending"] else ""


def _facts(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    yield "thread", summary["thread_id"]
    yield "tasks", ", ".join(summary["task_ids"])
    if summary["bead_id"]:
        yield "bead", f"{summary['bead_id']} {summary['title']}"
        yield "state", summary["state"]
        if len(tasks := summary.get("tasks") or ()) > 1:
            yield "by task", ", ".join(f"{task['task_id']} {task['state']}" for task in tasks)
    if worker := summary["worker"]:
        yield "worker", f"{worker} ({summary['session']})" if summary["session"] else worker
    if progress := summary["last_progress"]:
        yield "progress", f"{progress['step']}: {progress['status']}"
    if summary["context_usage"]:
        yield "context", f"{summary['context_usage']}%"
    if summary["commit_sha"]:
        yield "commit", summary["commit_sha"]
    if summary["files"]:
        yield "files", ", ".join(summary["files"])
    if request := summary["help_request"]:
        yield "question", request["question"]
    if waits := _waits(summary):
        yield "waits", waits


def _tree(answer: Mapping[str, Any]) -> list[Node]:
    """Build the tree of the conversation; messages that wait, or were closed, are marked."""
    roots: list[Node] = []
    above: list[Node] = []
    for turn in answer["conversation"]:
        message = turn["message"]
        mark = _mark(answer["summary"], message)
        words = one_line(f"{mark}{message['subject']} | {one_line(message['body'])}")
        line = Line(0, "", one_line(message["sender"]), one_line(message["recipient"]), words)
        del above[turn["level"] :]
        parent = above[-1] if above else None
        node = Node(line, parent, depth=len(above))
        (roots if parent is None else parent.children).append(node)
        above.append(node)
    return roots


def _mark(summary: Mapping[str, Any], message: Mapping[str, Any]) -> str:
    """Return the mark of a message that waits, or was closed without the answer that it required, with a blank."""
    if message["id"] in summary["pending"]:
        return "(overdue) " if message["id"] in summary["overdue"] else "(pending) "
    is_dropped = message.get("closed") and message.get("ack_required") and not message.get("acknowledged")
    return "(closed) " if is_dropped else ""
