"""`mail inbox` and `mail thread`: the mail of one's tasks, by what it is about."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mail.cli.options import ApiKey, AsJson, ConfigPath, ServerOption, Timeout
from mail.cli.output import Output
from mail.cli.status import exit_code

if TYPE_CHECKING:
    from mail.cli.connecting import CommandClient

OfTask = Annotated[str | None, typer.Option("--task", metavar="TASK", help="Only what is in this task.")]
AckWithin = Annotated[
    float | None,
    typer.Option(min=0, metavar="SECONDS", help="After how long what waits is overdue. [default: 900]"),
]


def inbox(
    server: ServerOption,
    api_key: ApiKey = None,
    pending: Annotated[
        bool, typer.Option("--pending", help="Only threads in which something has to be acknowledged.")
    ] = False,
    overdue: Annotated[
        bool, typer.Option("--overdue", help="Only threads in which that has waited for too long.")
    ] = False,
    bead: Annotated[str | None, typer.Option(help="Only threads about this bead.")] = None,
    task: OfTask = None,
    ack_within: AckWithin = None,
    limit: Annotated[
        int, typer.Option(min=1, max=100, help="In how many of the newest tasks, at most.")
    ] = 20,
    cursor: Annotated[
        str | None, typer.Option(help="Go on behind the page that has ended with this.")
    ] = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """List threads of mail, by bead or task: who works on it, what is pending, and what is overdue."""
    from mail.cli.connecting import connect
    from mail.cli.views.threads import show_threads

    async def run(client: "CommandClient") -> None:
        async with client:
            answer = await client.get_threads(
                task_id=task,
                bead=bead,
                pending=pending,
                overdue=overdue,
                ack_within=ack_within,
                limit=limit,
                cursor=cursor,
            )
        output.result(answer, lambda: show_threads(answer, output))

    output = Output(sys.stdout, as_json)
    asyncio.run(run(connect(server, api_key, timeout=timeout, config=config)))


def thread(
    thread_id: Annotated[
        str, typer.Argument(metavar="ID", help="The thread: the id of a bead or of a task, as a rule.")
    ],
    server: ServerOption,
    api_key: ApiKey = None,
    reply: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Answer the request for help that a paused task waits for."),
    ] = None,
    task: OfTask = None,
    ack_within: AckWithin = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Show a thread: what is known, and each message below the one it answers. Or answer who waits in it.

    After a reply the exit code tells how the task has ended: 3 failed, 4 paused.
    """
    from mail.cli.connecting import connect
    from mail.cli.thread_replies import answer_appeal, show_reply
    from mail.cli.views.threads import show_thread

    async def run(client: "CommandClient") -> int:
        async with client:
            if reply is not None:
                answer = await answer_appeal(client, thread_id, reply, task_id=task)
                output.result(answer.record, lambda: show_reply(answer, output))
                return exit_code([answer.status] if answer.status else [])
            record = await client.get_thread(thread_id, task_id=task, ack_within=ack_within)
        output.result(record, lambda: show_thread(record, output))
        return 0

    output = Output(sys.stdout, as_json)
    if code := asyncio.run(run(connect(server, api_key, timeout=timeout, config=config))):
        raise typer.Exit(code)
