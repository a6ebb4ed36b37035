"""`mail token`: API tokens of servers without an authentication service."""

from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import click

from mail.cli.command import Group
from mail.cli.examples import epilog
from mail.cli.options import as_json, load_storage, on_database, run
from mail.cli.output import Output
from mail.cli.values import Integer
from mail.errors import BadRequest, ConfigurationError, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from mail.auth.keys import Caller
    from mail.config import StorageConfig
    from mail.core.engine.documents import ServerDocuments
    from mail.core.task.audit import Act


@click.group(cls=Group)
def token() -> None:
    """Create, list and revoke API tokens."""


@token.command(epilog=epilog("token create"))
@click.option(
    "--role",
    type=click.Choice(("admin", "user", "agent")),
    required=True,
    help="The bearer's role: admin, user, or agent (another swarm).",
)
@click.option("--id", "caller_id", metavar="ID", required=True, help="The bearer's id, without ':' and '@'.")
@click.option(
    "--days",
    type=Integer(min=1, max=3650),
    metavar="DAYS",
    help="Days after which the token expires. [default: never]",
)
@on_database
@as_json
def create(
    role: Literal["admin", "user", "agent"], caller_id: str, days: int | None, output: Output, **storage: Any
) -> None:
    """Create a token and print it. It can't be shown again. Running servers accept it immediately."""
    text = run(issue(token_storage(**storage), named_caller(role, caller_id), days, makes_account=True))
    output.result({"token": text, "role": role, "id": caller_id}, lambda: output.write(text))


@token.command("list", epilog=epilog("token list"))
@on_database
@as_json
def list_tokens(output: Output, **storage: Any) -> None:
    """List tokens: number, role, id, times of creation and expiry. The tokens themselves can't be shown again."""
    tokens = run(_list(token_storage(**storage)))
    headings = ("number", "role", "id", "created", "expires")
    rows = [
        (
            each["number"],
            each["role"],
            each["id"],
            *(output.time(each[time] or "") or "never" for time in headings[3:]),
        )
        for each in tokens
    ]
    output.result(tokens, lambda: output.table(headings, rows))


@token.command(epilog=epilog("token revoke"))
@click.argument("number", help="The token's number, as `mail token list` shows it.")
@on_database
def revoke(number: str, **storage: Any) -> None:
    """Revoke a token. Running servers refuse it within five seconds."""
    run(_revoke(token_storage(**storage), number))


def named_caller(role: Literal["admin", "user", "agent"], caller_id: str) -> "Caller":
    """Return the caller that options name. Raises click.BadParameter."""
    from mail.auth.keys import Caller

    try:
        return Caller(role, caller_id)
    except BadRequest as error:
        raise click.BadParameter(error.detail, param_hint="--id") from None


def token_storage(config: "Path | None", database: str | None, swarm_name: str | None) -> "StorageConfig":
    """Return the storage of the tokens. Raises ConfigurationError if it is in memory."""
    from mail.core.task.documents import IN_MEMORY

    storage = load_storage(config, database, swarm_name)
    if storage.database == IN_MEMORY:
        raise ConfigurationError("the configured database is in memory; name a file with --database")
    return storage


async def _list(storage: "StorageConfig") -> list[dict[str, Any]]:
    from mail.auth.tokens import describe, valid_tokens
    from mail.bootstrap.backends import open_documents

    async with open_documents(storage) as documents:
        return [describe(token) for token in await valid_tokens(documents)]


async def _revoke(storage: "StorageConfig", number: str) -> None:
    """Revoke a token. Raises TokenNotFound unless exactly one token has this number."""
    from mail.auth.tokens import revoke_token
    from mail.core.task.audit import Act

    async with _audited(storage, Act.REVOKE_TOKEN, number) as documents:
        await revoke_token(documents, number)


@asynccontextmanager
async def _audited(storage: "StorageConfig", act: "Act", on: str) -> "AsyncIterator[ServerDocuments]":
    """Open the database for an act of the operator, which its audit keeps. Raises ConfigurationError."""
    from mail.bootstrap.backends import open_documents
    from mail.core.protocol.clock import SYSTEM_CLOCK
    from mail.core.task.audit import OPERATOR, AuditEntry

    entry, now = AuditEntry.begin(SYSTEM_CLOCK, act, OPERATOR, on), SYSTEM_CLOCK.now().timestamp()
    outcome, seconds = "refused", storage.audit_days * 86_400.0
    async with open_documents(storage) as documents:
        await documents.add_act(entry, now=now, until=now + seconds if seconds else None)
        try:
            yield documents
            outcome = "done"
        finally:
            await documents.end_act(replace(entry, outcome=outcome))


async def issue(
    storage: "StorageConfig", caller: "Caller", days: int | None, *, makes_account: bool = False
) -> str:
    """Create a token and return it. Raises ConfigurationError.

    With `makes_account`, make its bearer's account of MAIL 2.0, so that mail to it arrives from now on.
    """
    import time

    from mail.auth import tokens
    from mail.bootstrap.backends import open_accounts
    from mail.core.task.audit import Act

    expires = None if days is None else time.time() + days * 24 * 3600
    async with _audited(storage, Act.CREATE_TOKEN, f"{caller.role}:{caller.id}") as documents:
        if makes_account:
            async with open_accounts(storage, documents) as accounts:
                with suppress(Unauthenticated):  # agents have none, nor has an id that no address may have
                    await accounts.ensure(caller)
        return (await tokens.issue(documents, caller, expires=expires)).text
