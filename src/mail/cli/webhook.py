"""`mail webhook`: URLs that what happens in one's tasks is sent to."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from mail.cli.options import ApiKey, AsJson, ConfigPath, ServerOption, Timeout
from mail.cli.output import Output

if TYPE_CHECKING:
    from mail.cli.connecting import CommandClient

app = typer.Typer(help="Be sent what happens in your tasks.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_webhooks(
    server: ServerOption,
    api_key: ApiKey = None,
    task_id: Annotated[
        str | None, typer.Option("--task", metavar="TASK", help="Those of this task, and how far each is.")
    ] = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """List your webhooks, the oldest first."""
    from mail.cli.connecting import connect
    from mail.cli.views.tasks import show_webhooks

    async def run(client: "CommandClient") -> None:
        async with client:
            answer = await client.get_webhooks(task_id)
        output.result(answer, lambda: show_webhooks(answer["webhooks"], output))

    output = Output(sys.stdout, as_json)
    asyncio.run(run(connect(server, api_key, timeout=timeout, config=config)))


@app.command("register")
def register(
    url: Annotated[str, typer.Argument(metavar="TO", help="Where events are posted to: https://…")],
    server: ServerOption,
    api_key: ApiKey = None,
    secret_ref: Annotated[
        str | None,
        typer.Option(help="The server's secret that requests are signed with, as ${WEBHOOK_SECRET_…}."),
    ] = None,
    events: Annotated[
        list[str] | None,
        typer.Option("--event", help="A kind of event, or * for all. [default: what ends or pauses a task]"),
    ] = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Have events of the tasks that you begin from now on sent to a URL. Prints the webhook's id."""
    from mail.cli.connecting import connect

    async def run(client: "CommandClient") -> None:
        async with client:
            answer = await client.register_webhook(url, secret_ref, events or None)
        output.result(answer, lambda: output.write(answer["id"]))

    output = Output(sys.stdout, as_json)
    asyncio.run(run(connect(server, api_key, timeout=timeout, config=config)))


@app.command("delete")
def delete(
    webhook_id: Annotated[str, typer.Argument(metavar="ID", help="As `mail webhook list` shows it.")],
    server: ServerOption,
    api_key: ApiKey = None,
    timeout: Timeout = None,
    config: ConfigPath = None,
    as_json: AsJson = False,
) -> None:
    """Forget a webhook. Tasks that have begun with it keep it."""
    from mail.cli.connecting import connect

    async def run(client: "CommandClient") -> None:
        async with client:
            answer = await client.delete_webhook(webhook_id)
        output.result(answer, lambda: output.write(f"webhook {webhook_id} is deleted"))

    output = Output(sys.stdout, as_json)
    asyncio.run(run(connect(server, api_key, timeout=timeout, config=config)))
