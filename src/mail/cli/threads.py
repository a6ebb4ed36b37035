"""The commands about threads: `mail thread list` and `show`, with its answers to requests for help."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mail.cli.command import Command, Namespace, option, positional, switch
from mail.cli.output import Output, one_line
from mail.cli.program import program
from mail.cli.session import Session, Status
from mail.cli.values import Integer, Number, Task
from mail.cli.views.events import Line, Node, show_tree
from mail.cli.views.questions import Question
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.client import MAILClient

TASK = option("--task", "task_id", metavar="TASK", help="Only messages of this task.", type=Task())
ACK_WITHIN = option(
    "--ack-within",
    metavar="SECONDS",
    type=Number(min=0),
    help="Seconds after which a waiting message is overdue. [default: 900]",
)


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


async def thread(session: Session, given: Namespace) -> None:
    """Print a thread, or answer the request for help in it and print the outcome."""
    if given.reply is None:
        answer = await session.client.get_thread(
            given.thread_id, task_id=given.task_id, ack_within=given.ack_within
        )
        session.output.result(answer, lambda: show_thread(answer, session.output, in_full=given.full))
        return
    done = await reply(session.client, given.thread_id, given.reply, task_id=given.task_id)
    session.memory.add_task(done.task_id)
    session.memory.set_status(done.task_id, done.status)
    session.output.result(done.as_json, lambda: show_reply(done, session.output))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a reply: the task's next answer and status, and the calls that it waits for now."""

    task_id: str
    response: str
    status: Status | None
    calls: tuple[Question, ...]

    @property
    def as_json(self) -> dict[str, Any]:
        """The outcome for programs."""
        return {"task_id": self.task_id, "response": self.response, "status": self.status}


async def reply(client: "MAILClient", thread_id: str, text: str, *, task_id: str | None = None) -> Outcome:
    """Answer the request for help in a thread, or in the task with that id, and wait for the outcome.

    Raises MAILError if no task of the thread waits for an answer of the caller, or if several do.
    """
    thread = await client.get_thread(thread_id, task_id=task_id)
    waiting = {
        each: calls
        for each in thread["summary"]["task_ids"]
        if (calls := [call for call in await _calls(client, each) if asks_in(call, thread_id, each)])
    }
    if not waiting:
        raise _nothing_waits(thread_id)
    if len(waiting) > 1:
        raise MAILError(
            f"several tasks wait for an answer in thread {thread_id!r}: {', '.join(waiting)}; choose with --task"
        )
    [(chosen, calls)] = waiting.items()
    return await _answer(client, thread_id, chosen, calls[0], text)


async def _answer(client: "MAILClient", thread_id: str, task_id: str, call: Question, text: str) -> Outcome:
    """Send the text as the result of a call: unlike a message, it has no effect if no call waits any more."""
    from mail.client.errors import BadAnswer

    try:
        answer = await client.post_message(
            "",
            task_id=task_id,
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result=[{"call_id": call.call_id, "content": text}],
        )
    except BadAnswer as error:
        if call in await _calls(client, task_id):
            raise
        raise _nothing_waits(thread_id) from error
    status = Status(answer["status"])
    calls = await _calls(client, task_id) if status is Status.PAUSED else ()
    return Outcome(task_id, answer["response"], status, tuple(calls))


def show_reply(outcome: Outcome, output: Output) -> None:
    """Print the task's answer; if it has paused again, its next question and how to answer that."""
    if not outcome.calls:
        output.answer(outcome.response)
    for call in outcome.calls:
        for line in _lines(call, outcome.task_id):
            output.text(line)


def _lines(call: Question, task_id: str) -> Iterator[str]:
    if call.asks is None or "question" not in call.arguments:
        yield f"waits       {call.name} {one_line(json.dumps(call.arguments, ensure_ascii=False))}"
        return
    thread_id = call.thread_id or task_id
    yield f"thread      {thread_id}"
    yield f"question    {one_line(call.arguments['question'])}"
    yield "Answer with"
    yield f"  {program()} {shlex.join(['thread', 'show', thread_id, '--task', task_id])} --reply TEXT"


async def _calls(client: "MAILClient", task_id: str) -> list[Question]:
    from mail.cli.views.tasks import read_task

    return read_task(await client.get_task(task_id)).pending_tool_calls


def asks_in(call: Question, thread_id: str, task_id: str) -> bool:
    """Return whether a call is a question to the task's owner, in this thread or in the task of this id."""
    return call.asks is not None and thread_id in (call.thread_id, task_id)


def _nothing_waits(thread_id: str) -> MAILError:
    return MAILError(f"no task waits for your answer in thread {thread_id!r}")


COMMANDS = (
    Command(
        name="threads",
        shell_name="thread list",
        summary="List the threads of your tasks' mail.",
        details="A thread is about a bead (a unit of work that agents hand to each other), or about a task. The list "
        "shows who works on it, what is pending, and what is overdue.",
        operation="get_threads",
        view=show_threads,
        arguments=(
            switch("--pending", help="Only threads with messages that have to be acknowledged."),
            switch("--overdue", help="Only threads with messages that have waited for too long."),
            switch(
                "--open",
                "unfinished",
                help="Only threads of tasks that run or are paused, without beads that are done or failed.",
            ),
            option("--bead", help="Only threads about this bead."),
            TASK,
            ACK_WITHIN,
            option("--limit", type=Integer(1, 100), default=20, help="The number of threads, at most."),
            option("--cursor", help="Continue after the page that ended with this cursor."),
        ),
    ),
    Command(
        name="thread",
        shell_name="thread show",
        summary="Show a thread of mail, or answer the question in it.",
        details="Each message is below the one that it answers. With --reply, exit codes: 3 the task has failed, 4 "
        "it is paused again.",
        handler=thread,
        arguments=(
            positional(
                "thread_id",
                "The thread: usually the id of a bead or of a task.",
                metavar="ID",
                type=Task(may_be_new=True),
            ),
            switch("--full", help="Show whole messages, not a line of each."),
            option("--reply", metavar="TEXT", help="Answer the request for help that has paused a task."),
            TASK,
            ACK_WITHIN,
        ),
    ),
)
