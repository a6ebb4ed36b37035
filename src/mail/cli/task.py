"""`mail task`: one's tasks on a server."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mail.cli.options import ApiKey, AsJson, ConfigPath, ServerOption, Timeout
from mail.cli.output import Output
from mail.cli.status import Status, exit_code

if TYPE_CHECKING:
    from mail.cli.connecting import CommandClient

app = typer.Typer(
    help="Look at your tasks, cancel them, and fork them.", no_args_is_help=True, rich_markup_mode=None
)


TaskId = Annotated[str, typer.Argument(metavar="TASK", help="The task's id.")]


@app.command("list")
def list_tasks(
    server: ServerOption,
    api_key: ApiKey = None,
    status: Annotated[Status | None, typer.Option(help="Only tasks in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, at most.")] = 20,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """List your tasks, the newest first."""
    from mail.cli.connecting import connect
    from mail.cli.views.tasks import show_tasks

    async def run(client: "CommandClient") -> None:
        async with client:
            records = await client.get_tasks(limit=limit, status=status)
        output.result(records, lambda: show_tasks(records.values(), output))

    output = Output(sys.stdout, as_json)
    asyncio.run(run(connect(server, api_key, timeout=timeout, config=config)))


@app.command("show")
def show(
    task_id: TaskId,
    server: ServerOption,
    api_key: ApiKey = None,
    events: Annotated[
        bool, typer.Option("--events", help="Every event in its order, not the tree of requests.")
    ] = False,
    at: Annotated[
        int | None, typer.Option(metavar="ID", help="As it was once the event with this id had happened.")
    ] = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Show a task: its state, and below each request what was done about it."""
    from mail.cli.connecting import connect
    from mail.cli.views.tasks import read_task, show_task

    async def run(client: "CommandClient") -> None:
        async with client:
            record = await client.get_task(task_id, at=at)
        output.result(record, lambda: show_task(read_task(record), output, events=events))

    output = Output(sys.stdout, as_json)
    asyncio.run(run(connect(server, api_key, timeout=timeout, config=config)))


@app.command("watch")
def watch(
    task_id: TaskId,
    server: ServerOption,
    api_key: ApiKey = None,
    after: Annotated[
        int | None, typer.Option(min=0, metavar="ID", help="Only the events past the one with this id.")
    ] = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Show a task's events as they happen, until it stops. The exit code tells how: 3 failed, 4 paused."""
    from mail.cli.connecting import connect

    client = connect(server, api_key, timeout=timeout, config=config)
    code = asyncio.run(_watch(client, task_id, after, Output(sys.stdout, as_json)))
    if code:
        raise typer.Exit(code)


async def _watch(client: "CommandClient", task_id: str, after: int | None, output: Output) -> int:
    from mail.cli.views.tasks import read_task
    from mail.cli.watching import answering_command, answering_line, show_answer, show_stream

    async with client:
        stream = await client.watch_task(task_id, after=after)
        show_answer((await show_stream(client, stream, output)).answer, output)
        view = read_task(await client.get_task(task_id))
    if view.state == Status.PAUSED and not output.as_json:
        if view.pending_tool_calls:
            command = answering_command(client.base_url, answering_line(task_id))
            output.text(f"It waits for the results of these calls. Answer with\n  {command}")
        else:
            output.text("It waits for a message.")
    return exit_code([view.state])


@app.command("cancel")
def cancel(
    task_id: TaskId,
    server: ServerOption,
    api_key: ApiKey = None,
    reason: Annotated[str, typer.Option(help="Why; the task's timeline and other swarms are told.")] = "",
    wait: Annotated[
        float | None, typer.Option(min=0, help="Seconds to wait until nothing of it is left; ten otherwise.")
    ] = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Cancel a task that runs or is paused. Its mail stays; a message to it resumes it."""
    from mail.cli.connecting import connect
    from mail.cli.views.tasks import show_cancelled

    async def run(client: "CommandClient") -> None:
        async with client:
            answer = await client.cancel_task(task_id, reason, wait=wait)
        output.result(answer, lambda: show_cancelled(answer, output))

    output = Output(sys.stdout, as_json)
    asyncio.run(run(connect(server, api_key, timeout=timeout, config=config)))


@app.command("fork")
def fork(
    task_id: TaskId,
    server: ServerOption,
    api_key: ApiKey = None,
    at: Annotated[
        int | None,
        typer.Option(
            metavar="ID", help="The moment: once the event with this id had happened. By default, now."
        ),
    ] = None,
    run: Annotated[
        bool, typer.Option("--run", help="Let the fork of a running moment go on at once.")
    ] = False,
    message: Annotated[
        str | None,
        typer.Option("--message", "-m", metavar="BODY", help="Resume it with this, and show what happens."),
    ] = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Make a new task that goes on from any moment of another one: to try another message, or another swarm."""
    from mail.cli.connecting import connect

    client = connect(server, api_key, timeout=timeout, config=config)
    code = asyncio.run(_fork(client, task_id, at, message, Output(sys.stdout, as_json), run=run))
    if code:
        raise typer.Exit(code)


async def _fork(
    client: "CommandClient", task_id: str, at: int | None, message: str | None, output: Output, *, run: bool
) -> int:
    from mail.cli.views.tasks import show_forked
    from mail.cli.watching import show_answer, show_stream

    async with client:
        made = await client.fork_task(task_id, at, run=run)
        output.result(made, lambda: show_forked(made, output))
        if message is None:
            return 0
        stream = await client.post_message_stream(message, task_id=made["task_id"])
        shown = await show_stream(client, stream, output)
    show_answer(shown.answer, output)
    return exit_code([] if shown.status is None else [shown.status])
