"""`mail token create`: built-in tokens, for servers without an authentication service."""

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mail.cli.options import ConfigPath, Database, load_storage
from mail.errors import BadRequest, ConfigurationError

if TYPE_CHECKING:
    from mail.config import StorageConfig
    from mail.utils.callers import Caller

app = typer.Typer(help="Let people and other swarms in.", no_args_is_help=True, rich_markup_mode=None)


class TokenRole(StrEnum):
    """What the bearer of a token may be; an `agent` is another swarm."""

    ADMIN = "admin"
    USER = "user"
    AGENT = "agent"


@app.callback()
def token() -> None:
    """Let people and other swarms in."""


@app.command("create")
def create(
    role: Annotated[TokenRole, typer.Option(help="What the bearer is: a person, or another swarm (agent).")],
    caller_id: Annotated[str, typer.Option("--id", help="Who the bearer is; without ':' and '@'.")],
    config: ConfigPath = None,
    database: Database = None,
) -> None:
    """Create a token and print it, this once. A server that runs on the database accepts it at once."""
    from mail.config.database import IN_MEMORY
    from mail.utils.callers import Caller

    try:
        caller = Caller(role.value, caller_id)
    except BadRequest as error:
        raise typer.BadParameter(error.detail, param_hint="--id") from None
    storage = load_storage(config, database)
    if storage.database == IN_MEMORY:
        raise ConfigurationError("the configured database keeps nothing; name a file with --database")
    typer.echo(asyncio.run(_issue(storage, caller)))


async def _issue(storage: "StorageConfig", caller: "Caller") -> str:
    from mail.bootstrap import open_records
    from mail.utils.tokens import issue_token

    async with open_records(storage) as records:
        return await issue_token(records, caller)
