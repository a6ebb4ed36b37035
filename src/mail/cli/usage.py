"""`mail usage`: what one's tasks have cost."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mail.cli.options import ApiKey, AsJson, ConfigPath, ServerOption, Timeout
from mail.cli.output import Output
from mail.cli.views.usage import By

if TYPE_CHECKING:
    from mail.cli.connecting import CommandClient


def usage(
    server: ServerOption,
    api_key: ApiKey = None,
    by: Annotated[By, typer.Option(help="What to tell apart.")] = By.AGENT,
    task_id: Annotated[str | None, typer.Option("--task-id", metavar="TASK", help="Only this task.")] = None,
    caller: Annotated[
        str | None, typer.Option(metavar="ROLE:ID", help="Only this caller's tasks. For admins.")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Only tasks that began at this time or later: a date, or 7d, 12h, 30m."
        ),
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only tasks that began before this time.")
    ] = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Show what the language models behind your tasks were paid; to admins, behind everybody's."""
    from mail.cli.connecting import connect
    from mail.cli.views.usage import ask_usage, show_usage

    async def run(client: "CommandClient") -> None:
        async with client:
            answer = await ask_usage(client, by, task_id=task_id, caller=caller, since=since, until=until)
        output.result(answer, lambda: show_usage(answer, by, output))

    output = Output(sys.stdout, as_json)
    asyncio.run(run(connect(server, api_key, timeout=timeout, config=config)))
