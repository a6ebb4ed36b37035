"""`mail token`: built-in tokens, for servers without an authentication service."""

import asyncio
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from mail.cli.options import AsJson, ConfigPath, Database, load_storage
from mail.cli.output import Output
from mail.errors import BadRequest, ConfigurationError, MAILError

if TYPE_CHECKING:
    from pathlib import Path

    from mail.auth.keys import Caller
    from mail.config import StorageConfig
    from mail.core.task.documents import StoredToken

SHOWN_CHARACTERS = 12
"""Of a token's digest: what tells one token from another."""

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
    as_json: AsJson = False,
) -> None:
    """Create a token and print it, this once. A server that runs on the database accepts it at once."""
    from mail.auth.keys import Caller

    try:
        caller = Caller(role.value, caller_id)
    except BadRequest as error:
        raise typer.BadParameter(error.detail, param_hint="--id") from None
    text = asyncio.run(_issue(_storage(config, database), caller))
    output = Output(sys.stdout, as_json)
    output.result({"token": text, "role": role, "id": caller_id}, lambda: output.write(text))


@app.command("list")
def list_tokens(config: ConfigPath = None, database: Database = None, as_json: AsJson = False) -> None:
    """List who has been let in: number, role, id, time. The tokens themselves can't be read again."""
    records = asyncio.run(_list(_storage(config, database)))
    output = Output(sys.stdout, as_json)
    output.result(
        [_describe(record) for record in records],
        lambda: output.table(
            ("number", "role", "id", "created"),
            (tuple(_describe(record).values()) for record in records),
        ),
    )


@app.command("revoke")
def revoke(
    number: Annotated[str, typer.Argument(metavar="NUMBER", help="As `mail token list` shows it.")],
    config: ConfigPath = None,
    database: Database = None,
) -> None:
    """Forget a token. Servers that run on the database refuse it a minute later at the latest."""
    asyncio.run(_revoke(_storage(config, database), number))


def _storage(config: "Path | None", database: str | None) -> "StorageConfig":
    """The database that keeps tokens. Raises ConfigurationError where it keeps nothing."""
    from mail.config.database import IN_MEMORY

    storage = load_storage(config, database)
    if storage.database == IN_MEMORY:
        raise ConfigurationError("the configured database keeps nothing; name a file with --database")
    return storage


def _describe(record: "StoredToken") -> dict[str, str]:
    return {
        "number": record.digest[:SHOWN_CHARACTERS],
        "role": record.role,
        "id": record.id,
        "created": record.created,
    }


async def _list(storage: "StorageConfig") -> "list[StoredToken]":
    from mail.bootstrap.backends import open_documents

    async with open_documents(storage) as records:
        return await records.tokens()


async def _revoke(storage: "StorageConfig", number: str) -> None:
    """Raises MAILError where no token has this number, or more than one."""
    from mail.bootstrap.backends import open_documents

    async with open_documents(storage) as records:
        found = [record.digest for record in await records.tokens() if record.digest.startswith(number)]
        if len(found) != 1 or len(number) < SHOWN_CHARACTERS:
            raise MAILError(f"no token has the number {number!r}; mail token list shows them")
        await records.remove_token(found[0])


async def _issue(storage: "StorageConfig", caller: "Caller") -> str:
    from mail.auth.tokens import issue_token
    from mail.bootstrap.backends import open_documents

    async with open_documents(storage) as records:
        return await issue_token(records, caller)
