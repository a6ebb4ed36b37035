"""The commands about tasks: `mail task list`, `show`, `turn`, `watch`, `share`, `cancel`, `fork` and more."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import click

from mail.cli.command import Command, Namespace, option, positional, says, switch
from mail.cli.files import OUTPUT, write_bytes
from mail.cli.output import Output, one_line
from mail.cli.session import Session, Status, UsageError
from mail.cli.usage import read_time
from mail.cli.values import JSON, Integer, Moment, Number, Task, json_object
from mail.cli.views.events import show_stream
from mail.cli.views.questions import MARK, questions_of

TASK = positional(
    "task_id",
    "The task: its id, the beginning of it, or last.",
    metavar="TASK",
    type=Task(or_last=True),
    required=False,
)

OWNER = option("--caller", help="The owner of the task, such as user:ann, if it is not you. For admins.")

OPENED = (
    OWNER,
    option("--reason", help="Why you read the task of another caller, who sees it. For admins."),
)

CALL = option("--call", metavar="ID", help="The id of the call. [default: the only one that waits]")
ALL = switch("--all", help="Decide all calls that wait for a decision.")
SHOWN = option(
    "--shown",
    metavar="MARK",
    help="The mark of the call's arguments, as a command has shown it: other arguments are refused.",
)


FILTERS = (
    option(
        "-q",
        "--query",
        metavar="TEXT",
        help="Only tasks with these words in titles, ids, messages or names of agents.",
    ),
    option(
        "--since",
        metavar="TIME",
        help="Only tasks that have changed at this time or later: a date, or 7d, 12h, 30m.",
    ),
    option(
        "--until",
        metavar="TIME",
        help="Only tasks that have last changed before this time: a date, or 7d, 12h, 30m.",
    ),
    option("--min-cost", metavar="USD", type=float, help="Only tasks that have cost as much at least."),
)


async def find_tasks(
    session: Session, given: Namespace, status: str | None, *, forks: bool = True
) -> dict[str, dict[str, Any]]:
    """Return the caller's tasks that `FILTERS` and `--limit` ask for. Raises ConfigurationError for an invalid time."""
    now = datetime.now(UTC)
    return await session.client.get_tasks(
        limit=given.limit,
        status=status,
        summary=True,
        query=given.query,
        since=read_time(given.since, "--since", now),
        until=read_time(given.until, "--until", now),
        min_cost=given.min_cost,
        forks=forks,
    )


async def list_tasks(session: Session, given: Namespace) -> None:
    """Print a line per task, and remember the tasks."""
    from mail.cli.views.tasks import show_tasks

    tasks = await find_tasks(session, given, given.status)
    for task_id in reversed(tasks):
        session.memory.add_task(task_id)
    session.output.result(tasks, lambda: show_tasks(tasks.values(), session.output))


async def show(session: Session, given: Namespace) -> None:
    """Print a task, and remember it and its agents."""
    from mail.cli.views.tasks import read_task, show_task

    task = await session.client.get_task(
        given.task_id,
        at=given.at,
        items=not session.output.as_json,
        caller=given.caller,
        reason=given.reason,
    )
    view = read_task(task)
    for _, data in view.timeline():
        session.memory.learn(data)
    session.memory.add_task(view.task_id)
    session.output.result(task, lambda: show_task(view, session.output, events=given.events))


async def watch(session: Session, given: Namespace) -> None:
    """Print a task's events until it stops, then its answer and how to resume it if it is paused."""
    from mail.cli.views.tasks import read_task

    output = session.output
    stream = await session.client.watch_task(
        given.task_id, after=given.after, live=not output.as_json, deltas=output.is_terminal, items=True
    )
    session.memory.waiting_for = given.task_id
    await show_stream(session.client, stream, session.output, learn=session.memory.learn)
    view = read_task(await session.client.get_task(given.task_id))
    session.memory.set_status(given.task_id, view.state)
    if view.state == Status.PAUSED and not view.pending_tool_calls and not session.output.as_json:
        session.output.text("The task waits for a message.")
    else:
        session.show_status(given.task_id, view.state, questions=view.questions())


async def fork(session: Session, given: Namespace) -> None:
    """Fork a task; with a message, resume the fork with it and print its events."""
    forked = await session.client.fork_task(
        given.task_id,
        given.at,
        run=given.run,
        actions=given.actions,
        draft=given.draft,
        idempotency_key=given.idempotency_key,
    )
    session.memory.add_task(forked["task_id"])
    session.output.result(forked, lambda: show_forked(forked, session.output))
    if given.run and session.output.is_terminal and not session.output.as_json:
        session.output.text(f"Watch it with\n  {session.watch_command(forked['task_id'])}")
    if given.message is not None:
        stream = await session.client.post_message_stream(
            given.message, task_id=forked["task_id"], drop_question=True, **session.streamed
        )
        shown = await show_stream(session.client, stream, session.output, learn=session.memory.learn)
        session.memory.set_status(stream.task_id, shown.status)


async def approve(session: Session, given: Namespace) -> None:
    """Approve calls, and print the task's answer."""
    await _decide(session, given, session.client.approve, arguments=given.arguments)


async def reject(session: Session, given: Namespace) -> None:
    """Reject calls, and print the task's answer."""
    await _decide(session, given, session.client.reject)


async def _decide(
    session: Session, given: Namespace, decide: Callable[..., Awaitable[dict[str, Any]]], **edited: Any
) -> None:
    call_id, digest = await _shown(session, given)
    answer = await decide(
        given.task_id,
        call_id=call_id,
        arguments_sha256=digest,
        all=given.all,
        reason=given.reason,
        show_events=session.output.as_json,
        **edited,
    )
    status = answer["status"]
    session.memory.add_task(given.task_id)
    session.memory.set_status(given.task_id, status)
    questions = questions_of(answer["pending_tool_calls"])
    if not questions or not session.output.is_terminal:
        session.output.result(answer, lambda: session.output.answer(answer["response"]))
    if status != Status.COMPLETED:
        session.show_status(given.task_id, status, questions=questions)


async def _shown(session: Session, given: Namespace) -> tuple[str | None, str | None]:
    """Return the id of the call to decide, and the SHA-256 of its arguments, if the command line has their mark.

    Raises UsageError if no call that waits has these arguments.
    """
    if given.shown is None:
        return given.call, None
    if given.all or len(given.shown) < MARK:
        raise UsageError(f"--shown is for one call, and takes the {MARK} characters that were shown, or more")
    task = await session.client.get_task(given.task_id, summary=True)
    for question in questions_of(task["pending_tool_calls"]):
        is_meant = given.call in (None, question.call_id)
        if is_meant and question.digest is not None and question.digest.startswith(given.shown):
            return question.call_id, question.digest
    raise UsageError("no call that waits has the arguments that were shown; look at the task again")


def show_turn(answer: Mapping[str, Any], output: Output) -> None:
    """Print a turn."""
    from mail.cli.views import turns

    turns.show_turn(answer, output)


async def _share(session: Session, given: Namespace) -> None:
    """Make a link to a task, and print its address, which can't be shown again.

    It begins with the address of the server that the command was given.
    """
    share = await session.client.share_task(given.task_id, days=given.days)
    url = f"{session.client.base_url}/ui#shared={share['code']}"
    text = f"{url}\nIt is link {share['number']}, and expires {share['expires']}."
    session.output.result({**share, "url": url}, lambda: session.output.text(text))
    host = urlsplit(url).hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        note = (
            "only this machine can open the link; for others, give --server with the address that they reach"
        )
        click.echo(f"note: {note}", err=True)


def show_shares(answer: Mapping[str, Any], output: Output) -> None:
    """Print a line per link to a task."""
    rows = [(share["number"], share["created"], share["expires"]) for share in answer["shares"]]
    output.table(("number", "created", "expires"), rows, none="nobody has a link")


def show_cancelled(answer: Mapping[str, Any], output: Output) -> None:
    """Print that a task is cancelled, and what of it has not stopped yet."""
    left = [f"{agent}'s turn still runs, and will be discarded" for agent in answer["running_agents"]]
    left += [f"swarm {swarm} has not confirmed yet" for swarm in answer["waiting_swarms"]]
    output.text(one_line(f"task {answer['task_id']} is cancelled{'; ' if left else ''}{'; '.join(left)}"))


def show_forked(answer: Mapping[str, Any], output: Output) -> None:
    """Print which task was forked into which, and the fork's status."""
    mail = f"; waiting mail: {answer['waiting']}" if answer["waiting"] else ""
    fork = f"task {answer['task_id']} is a fork of {answer['forked_from']} at {answer['at']}"
    output.text(
        one_line(f"{fork}: {answer['status']}{mail}{_FORK_ACTIONS.get(answer.get('actions', ''), '')}")
    )


_FORK_ACTIONS = {
    "ask": "; actions wait for approval",
    "refuse": "; only read-only actions run",
}


async def _export(session: Session, given: Namespace) -> None:
    form: Literal["lines", "markdown"] = "markdown" if given.markdown else "lines"
    exported = await session.client.export_task(given.task_id, files=given.files, form=form)
    write_bytes(session, exported, given.path)


WAIT_CANCELLED = says("{id} is cancelled; task {task_id} is {task_status}")

COMMANDS = (
    Command(
        name="tasks",
        also=("tasks-get",),
        shell_name="task list",
        summary="List your tasks, newest first.",
        details="A search lists the last changed first.",
        handler=list_tasks,
        arguments=(
            *FILTERS,
            option(
                "--status",
                help="Only tasks in this state.",
                type=click.Choice([status.value for status in Status]),
            ),
            option("--limit", help="The number of tasks, at most.", type=Integer(1, 1000), default=20),
        ),
    ),
    Command(
        name="task",
        also=("task-get",),
        shell_name="task show",
        summary="Show a task: its state, and its messages as a tree.",
        handler=show,
        arguments=(
            TASK,
            switch("-e", "--events", help="Show the events in order, instead of the tree."),
            option("--at", metavar="ID", type=int, help="The task as of the event with this id."),
            *OPENED,
        ),
    ),
    Command(
        shell_name="task turn",
        summary="Show what an agent read and replied in a turn, and its tools.",
        operation="get_turn",
        view=show_turn,
        arguments=(
            TASK,
            positional("seq", "The id of an event of the turn.", metavar="ID", type=Integer(min=1)),
            option(
                "--limit", type=Integer(0, 1000), help="The number of history entries, at most. [default: 50]"
            ),
            *OPENED,
        ),
    ),
    Command(
        shell_name="task watch",
        summary="Show a task's events as they happen, until it stops.",
        details="Exit codes: 3 the task has failed or was cancelled, 4 it is paused. What has happened in a turn is "
        "shown, with its time, when the turn is stored; what agents are working on at once. So later times may come "
        "first.",
        handler=watch,
        arguments=(
            TASK,
            option(
                "--after", metavar="ID", type=Integer(min=0), help="Only events after the one with this id."
            ),
        ),
    ),
    Command(
        shell_name="task cancel",
        summary="Cancel a running or paused task.",
        details="Its mail stays; a message resumes it.",
        operation="cancel_task",
        view=show_cancelled,
        arguments=(
            TASK,
            option(
                "--reason",
                help="The reason, for the task's timeline and other swarms.",
                default="",
                show_default=False,
            ),
            option(
                "--wait",
                type=Number(min=0),
                metavar="SECONDS",
                help="Seconds to wait until everything has stopped. [default: 10]",
            ),
            OWNER,
        ),
    ),
    Command(
        shell_name="task delete",
        summary="Delete a stopped task, with everything that it stores.",
        details="This can't be undone. Forks of the task keep their copies.",
        operation="delete_task",
        view=says("task {task_id} is deleted; it stored {stored_bytes:,} bytes"),
        arguments=(TASK, OWNER),
    ),
    Command(
        shell_name="task export",
        summary="Write all of a task as lines of JSON, or its mail as Markdown.",
        details="Files are lines without their bytes, unless you ask for them.",
        handler=_export,
        arguments=(
            TASK,
            switch("--markdown", help="The conversation as a text for people, without prompts."),
            switch("--files", help="With the bytes of files, in base64."),
            OUTPUT,
        ),
    ),
    Command(
        shell_name="task share",
        summary="Make a link with which anybody can read a task.",
        details="It shows the conversation and the trace: no prompts, no arguments or results of actions, no other "
        "tasks.",
        handler=_share,
        arguments=(
            TASK,
            option(
                "--days", type=Number(min=0), help="Days after which it expires, at most 90. [default: 7]"
            ),
        ),
    ),
    Command(
        shell_name="task shares",
        summary="List the links to a task that can be used.",
        operation="get_task_shares",
        view=show_shares,
        arguments=(TASK, OWNER),
    ),
    Command(
        shell_name="task revoke-share",
        summary="Revoke a link to a task.",
        details="mail task shares lists them, with their numbers.",
        operation="revoke_task_share",
        view=says("link {number} is revoked"),
        arguments=(TASK, positional("number", "The number of the link."), OWNER),
    ),
    Command(
        shell_name="task cancel-timer",
        summary="Cancel a reminder, or a message that was to be posted later.",
        details="mail task show lists those that wait, with their ids.",
        operation="cancel_timer",
        view=WAIT_CANCELLED,
        arguments=(TASK, positional("timer_id", "The id of the timer.", metavar="TIMER")),
    ),
    Command(
        shell_name="task cancel-call",
        summary="Cancel a call of an action that finishes later.",
        details="mail task show lists those that wait, with their ids. The agent reads an error.",
        operation="cancel_call",
        view=WAIT_CANCELLED,
        arguments=(TASK, positional("call_id", "The id of the call.", metavar="CALL")),
    ),
    Command(
        shell_name="task approve",
        summary="Approve calls of a task; the server then runs them.",
        details="Exit codes: 3 the task has failed, 4 it is paused again.",
        handler=approve,
        arguments=(
            TASK,
            CALL,
            ALL,
            SHOWN,
            option(
                "--arguments",
                type=JSON(json_object),
                help="Run the call with these arguments instead of the model's.",
            ),
            option("--reason", help="A note for the task's timeline.", default="", show_default=False),
        ),
    ),
    Command(
        shell_name="task reject",
        summary="Reject calls of a task; they are not run.",
        details="Exit codes: 3 the task has failed, 4 it is paused again.",
        handler=reject,
        arguments=(
            TASK,
            CALL,
            ALL,
            SHOWN,
            option("--reason", help="The reason, which the agent reads.", default="", show_default=False),
        ),
    ),
    Command(
        shell_name="task fork",
        summary="Create a new task from any earlier state of another one.",
        details="Use it to try another message, or another version of the swarm.",
        handler=fork,
        arguments=(
            TASK,
            option(
                "--at",
                metavar="ID",
                type=Moment(),
                help="Fork the task as of the event with this id, or of the last message of a person: message. "
                "[default: now]",
            ),
            switch("--run", help="Run the fork immediately, if the task was running then."),
            option(
                "--actions",
                type=click.Choice(["run", "ask", "refuse"]),
                help="Whether actions that are not read-only run, wait for your approval, or are refused. "
                "[default: as in the task; run if it is not a fork]",
            ),
            option(
                "--draft",
                metavar="NAME",
                help="Run the fork on a draft of the swarm. See mail draft list.",
            ),
            option(
                "-m",
                "--message",
                metavar="BODY",
                help="Resume the fork with this message, and show its events.",
            ),
            option(
                "--idempotency-key",
                metavar="KEY",
                help="A key of your choice. Repeating the command with it within a day returns the same fork.",
            ),
        ),
    ),
)
