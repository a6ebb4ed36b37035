"""`mail dead-letter`: what could not be processed."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mail.cli.options import ApiKey, AsJson, ConfigPath, ServerOption, Timeout
from mail.cli.output import Output

if TYPE_CHECKING:
    from mail.cli.connecting import CommandClient

app = typer.Typer(
    help="See what could not be processed, and redrive it.", no_args_is_help=True, rich_markup_mode=None
)

Caller = Annotated[
    str | None, typer.Option(help="Only those of this caller's tasks, such as user:ann@swarm (admin).")
]
Task = Annotated[str | None, typer.Argument(metavar="TASK", help="The task's id.", show_default=False)]
Seq = Annotated[
    int | None, typer.Argument(metavar="SEQ", min=1, help="One of the task's.", show_default=False)
]
Every = Annotated[bool, typer.Option("--all", help="All that list shows.")]


@app.command("list")
def list_letters(
    server: ServerOption,
    api_key: ApiKey = None,
    task: Annotated[str | None, typer.Option(help="Only those of this task.")] = None,
    caller: Caller = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, at most.")] = 100,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """List what could not be processed in your tasks; for admins, in everybody's."""
    from mail.cli.connecting import connect
    from mail.cli.views.dead_letters import show_letters

    async def run(client: "CommandClient") -> None:
        async with client:
            letters = await client.get_dead_letters(task_id=task, caller=caller, limit=limit)
        output.result(letters, lambda: show_letters(letters, output))

    output = Output(sys.stdout, as_json)
    asyncio.run(run(connect(server, api_key, timeout=timeout, config=config)))


@app.command("redrive")
def redrive(
    server: ServerOption,
    task: Task = None,
    seq: Seq = None,
    every: Every = False,
    caller: Caller = None,
    api_key: ApiKey = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Let dead letters be processed again: one of a task, all of it, or --all. Exit code 3: some could not be."""
    from mail.cli.connecting import connect
    from mail.cli.views.dead_letters import show_redriven

    _check(task, every)

    async def run(client: "CommandClient") -> dict[str, Any]:
        async with client:
            answer = await client.redrive_dead_letters(task, seq, caller=caller, all=every)
        output.result(answer, lambda: show_redriven(answer, output))
        return answer

    output = Output(sys.stdout, as_json)
    _exit(asyncio.run(run(connect(server, api_key, timeout=timeout, config=config))))


@app.command("discard")
def discard(
    server: ServerOption,
    task: Task = None,
    seq: Seq = None,
    every: Every = False,
    caller: Caller = None,
    api_key: ApiKey = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Take dead letters off the list without processing them. Exit code 3: some could not be."""
    from mail.cli.connecting import connect
    from mail.cli.views.dead_letters import show_discarded

    _check(task, every)

    async def run(client: "CommandClient") -> dict[str, Any]:
        async with client:
            answer = await client.discard_dead_letters(task, seq, caller=caller, all=every)
        output.result(answer, lambda: show_discarded(answer, output))
        return answer

    output = Output(sys.stdout, as_json)
    _exit(asyncio.run(run(connect(server, api_key, timeout=timeout, config=config))))


def _check(task: str | None, every: bool) -> None:
    if (task is None) is not every:
        raise typer.BadParameter("name a task, or give --all")


def _exit(answer: dict[str, Any]) -> None:
    if answer["failed"]:
        raise typer.Exit(3)
