"""`mail token`: API tokens of servers without an authentication service."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mail.cli.examples import epilog
from mail.cli.options import AsJson, ConfigPath, Database, SwarmOfDatabase, load_storage
from mail.cli.output import Output
from mail.errors import BadRequest, ConfigurationError, MAILError

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from mail.auth.keys import Caller
    from mail.config import StorageConfig
    from mail.core.task.documents import StoredToken

SHOWN_CHARACTERS = 12
"""The length of the part of a digest that identifies a token."""

app = typer.Typer(help="Create, list and revoke API tokens.", no_args_is_help=True, rich_markup_mode=None)


class TokenRole(StrEnum):
    """The roles of a token's bearer; an `agent` is another swarm."""

    ADMIN = "admin"
    USER = "user"
    AGENT = "agent"


@app.callback()
def token() -> None:
    """Create, list and revoke API tokens."""


@app.command("create", epilog=epilog("token create"))
def create(
    role: Annotated[
        TokenRole, typer.Option(help="The bearer's role: admin, user, or agent (another swarm).")
    ],
    caller_id: Annotated[str, typer.Option("--id", help="The bearer's id; without ':' and '@'.")],
    config: ConfigPath = None,
    database: Database = None,
    swarm_name: SwarmOfDatabase = None,
    as_json: AsJson = False,
) -> None:
    """Create a token and print it. It can't be shown again. Running servers accept it immediately."""
    from mail.auth.keys import Caller

    try:
        caller = Caller(role.value, caller_id)
    except BadRequest as error:
        raise typer.BadParameter(error.detail, param_hint="--id") from None
    text = _run(_issue(_storage(config, database, swarm_name), caller))
    output = Output(sys.stdout, as_json)
    output.result({"token": text, "role": role, "id": caller_id}, lambda: output.write(text))


@app.command("list", epilog=epilog("token list"))
def list_tokens(
    config: ConfigPath = None,
    database: Database = None,
    swarm_name: SwarmOfDatabase = None,
    as_json: AsJson = False,
) -> None:
    """List tokens: number, role, id, time of creation. The tokens themselves can't be shown again."""
    tokens = [_describe(token) for token in _run(_list(_storage(config, database, swarm_name)))]
    output = Output(sys.stdout, as_json)
    headings = ("number", "role", "id", "created")
    output.result(tokens, lambda: output.table(headings, (tuple(each.values()) for each in tokens)))


@app.command("revoke", epilog=epilog("token revoke"))
def revoke(
    number: Annotated[
        str, typer.Argument(metavar="NUMBER", help="The token's number, as `mail token list` shows it.")
    ],
    config: ConfigPath = None,
    database: Database = None,
    swarm_name: SwarmOfDatabase = None,
) -> None:
    """Revoke a token. Running servers refuse it within a minute."""
    _run(_revoke(_storage(config, database, swarm_name), number))


def _run[T](coroutine: "Coroutine[Any, Any, T]") -> T:
    import asyncio  # late, as `mail --help` has no use for it

    return asyncio.run(coroutine)


def _storage(config: "Path | None", database: str | None, swarm: str | None) -> "StorageConfig":
    """Return the storage of the tokens. Raises ConfigurationError if it is in memory."""
    from mail.core.task.documents import IN_MEMORY

    storage = load_storage(config, database, swarm)
    if storage.database == IN_MEMORY:
        raise ConfigurationError("the configured database is in memory; name a file with --database")
    return storage


def _describe(token: "StoredToken") -> dict[str, str]:
    number = token.digest[:SHOWN_CHARACTERS]
    return {"number": number, "role": token.role, "id": token.id, "created": token.created}


async def _list(storage: "StorageConfig") -> "list[StoredToken]":
    from mail.bootstrap.backends import open_documents

    async with open_documents(storage) as documents:
        return await documents.tokens()


async def _revoke(storage: "StorageConfig", number: str) -> None:
    """Remove a token. Raises MAILError unless exactly one token has this number."""
    from mail.bootstrap.backends import open_documents

    async with open_documents(storage) as documents:
        found = [each.digest for each in await documents.tokens() if each.digest.startswith(number)]
        if len(found) != 1 or len(number) < SHOWN_CHARACTERS:
            raise MAILError(f"no token has the number {number!r}; mail token list shows them")
        await documents.remove_token(found[0])


async def _issue(storage: "StorageConfig", caller: "Caller") -> str:
    from mail.auth.tokens import issue_token
    from mail.bootstrap.backends import open_documents

    async with open_documents(storage) as documents:
        return await issue_token(documents, caller)
