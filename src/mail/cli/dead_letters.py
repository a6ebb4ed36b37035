"""The commands about dead letters: `mail dead-letter list`, `redrive`, `discard`."""

from collections.abc import Iterable, Mapping
from typing import Any

from mail.cli.command import Command, Handler, Namespace, option, positional, switch
from mail.cli.output import Output, one_line
from mail.cli.session import Session, UsageError
from mail.cli.values import Integer, Task

SOME_FAILED = 3
"""The exit code if some dead letters could not be redriven or discarded."""

CALLER = option("--caller", help="Only tasks of this caller, such as user:ann@swarm. For admins.")

SELECTION = (
    positional(
        "task_id",
        "The task: its id, the beginning of it, or last.",
        required=False,
        metavar="TASK",
        type=Task(),
    ),
    positional(
        "seq",
        "One dead letter of the task. [default: all]",
        required=False,
        metavar="SEQ",
        type=Integer(min=1),
    ),
    switch("--all", help="All dead letters that the list shows."),
    CALLER,
)


def show_dead_letters(dead_letters: Iterable[Mapping[str, Any]], output: Output) -> None:
    """Print a line per dead letter."""
    columns = (
        *("task_id", "seq", "task_status", "mailbox", "attempts"),
        *("sender", "subject", "reason", "caller"),
    )
    rows = [tuple(str(each[column]) for column in columns) for each in dead_letters]
    headings = ("task", "seq", "status", "for", "tries", "from", "subject", "reason", "caller")
    output.table(headings, rows, none="no dead letters")


def _settle(operation: str, done: str) -> Handler:
    async def settle(session: Session, given: Namespace) -> int | None:
        if (given.task_id is None) is not given.all:
            raise UsageError("name a task, or give --all")
        answer = await getattr(session.client, operation)(**vars(given))
        session.output.result(answer, lambda: _show_settled(answer, done, session.output))
        return SOME_FAILED if answer["failed"] else None

    return settle


def _show_settled(answer: Mapping[str, Any], done: str, output: Output) -> None:
    for each in answer[done]:
        what = "is discarded"
        if done == "redriven":
            how = "waits until the task is resumed" if each["waits"] else "is processed again"
            what = f"for {each['mailbox']} {how}"
        output.text(one_line(f"{_name(each)} {what}"))
    for each in answer["failed"]:
        output.text(one_line(f"{_name(each)} stays: {each['reason']}"))
    if not answer[done] and not answer["failed"]:
        output.text("no dead letters")


def _name(dead_letter: Mapping[str, Any]) -> str:
    return f"{dead_letter['task_id']} {dead_letter['seq'] or '(all)'}"


COMMANDS = (
    Command(
        name="dead-letters",
        shell_name="dead-letter list",
        summary="List the messages that could not be processed.",
        details="Those of your tasks; for admins, of all tasks.",
        operation="get_dead_letters",
        view=show_dead_letters,
        arguments=(
            option("--task", "task_id", help="Only this task.", type=Task()),
            CALLER,
            option("--limit", type=Integer(min=1), default=100, help="The number of dead letters, at most."),
        ),
    ),
    Command(
        name="redrive",
        shell_name="dead-letter redrive",
        summary="Process dead letters again.",
        details=f"One of a task, all of a task, or --all. Exit code {SOME_FAILED}: some could not be redriven.",
        handler=_settle("redrive_dead_letters", "redriven"),
        arguments=SELECTION,
    ),
    Command(
        name="discard",
        shell_name="dead-letter discard",
        summary="Remove dead letters from the list without processing them.",
        details=f"Exit code {SOME_FAILED}: some could not be discarded.",
        handler=_settle("discard_dead_letters", "discarded"),
        arguments=SELECTION,
    ),
)
