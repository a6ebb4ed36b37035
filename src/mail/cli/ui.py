"""`mail ui`: open the page of a server in a browser, signed in."""

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mail.cli.options import (
    ApiKey,
    AsJson,
    ConfigPath,
    Database,
    ServerOption,
    ServerUrl,
    SwarmOfDatabase,
    choose_server,
)
from mail.cli.output import Output
from mail.cli.token import run, token_storage
from mail.errors import BadRequest, MAILError

if TYPE_CHECKING:
    from mail.auth.keys import Caller
    from mail.config import StorageConfig

DISPLAY_VARIABLES = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""On Linux a browser that can show the page needs one of these."""


class PageRole(StrEnum):
    """The roles that the page is for."""

    ADMIN = "admin"
    USER = "user"


@dataclass(frozen=True, slots=True)
class _Page:
    """The address to open, and what to say about it."""

    url: str
    note: str
    fields: dict[str, Any]


def ui(
    url: ServerUrl = None,
    server: ServerOption = None,
    api_key: ApiKey = None,
    role: Annotated[
        PageRole | None,
        typer.Option(
            help="The role to sign in as, if you give no key: user or admin. "
            "[default: user, with a second session for what only admins see]",
            show_default=False,
        ),
    ] = None,
    caller_id: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="ID", help="The id to sign in as. [default: the role's name]", show_default=False
        ),
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the link, or only print it.")] = True,
    config: ConfigPath = None,
    database: Database = None,
    swarm_name: SwarmOfDatabase = None,
    as_json: AsJson = False,
) -> None:
    """Open the server's page in a browser, signed in.

    The page opens with a link that works once, within ten minutes. With an API key, the link signs in the key's own caller.
    Without one, run it where the server runs: the link signs in the caller of your commands. With --role or --id it is
    written to the server's database, as `mail token create` does.
    """
    from mail.cli.connection import connect, is_on_this_machine

    chosen = [
        name
        for name, value in (("--role", role), ("--id", caller_id), ("--database", database))
        if value is not None
    ]
    server = choose_server(url, server)
    client = connect(server, api_key, config=config)
    if api_key is not None and chosen:
        raise typer.BadParameter(
            f"{chosen[0]} can't be combined with an API key, whose own caller the link signs in",
            param_hint=chosen[0],
        )
    if (client.api_key or client.local_keys) and not chosen:
        page = run(_over_http(client))
    elif server is not None and not is_on_this_machine(client.base_url):
        raise typer.BadParameter(
            "the server is on another machine: add --api-key, or set MAIL_API_KEY", param_hint="--server"
        )
    else:
        caller = _caller(role or PageRole.USER, caller_id) if role or caller_id else None
        page = run(_from_database(token_storage(config, database, swarm_name), client.base_url, caller))
    output = Output(sys.stdout, as_json)
    output.result({"url": page.url, **page.fields}, lambda: output.write(f"{page.url}\n{page.note}"))
    if browser and not _open(page.url) and not as_json:
        output.write("No browser was found here; open the address yourself.")


def _caller(role: PageRole, caller_id: str | None) -> "Caller":
    """Return whom to sign in. Raises typer.BadParameter."""
    from mail.auth.keys import Caller

    try:
        return Caller(role.value, caller_id or role)
    except BadRequest as error:
        raise typer.BadParameter(error.detail, param_hint="--id") from None


async def _over_http(client: Any) -> _Page:
    """Let the server make a link for the client's key; the plain page if the server makes none."""
    from mail.auth.tokens import sign_in_url
    from mail.client.errors import BadAnswer

    async with client:
        try:
            link = await client.create_sign_in_link()
        except BadAnswer as error:
            if error.status != 404:
                raise
            note = f"It has no sign-in links: enter your API key there. The server says: {error.detail}"
            return _Page(f"{client.base_url}/ui", note, {"expires": None})
        server = client.local_keys.url if client.local_keys else client.base_url
        return _Page(sign_in_url(server, link["code"]), NOTE, {"expires": link["expires"]})


async def _from_database(storage: "StorageConfig", server: str, caller: "Caller | None") -> _Page:
    """Write a link to the server's database, if the server answers; without a caller, for the one who runs the server."""
    from mail.auth.tokens import expiry_of, issue_link, issue_operator_link, sign_in_url
    from mail.bootstrap import issues_tokens
    from mail.bootstrap.backends import open_documents
    from mail.cli.connection import connect_anonymously
    from mail.client.errors import ServerUnreachable

    try:
        async with connect_anonymously(server, timeout=PING_TIMEOUT) as client:
            await client.ping()
    except ServerUnreachable as error:
        raise MAILError(
            f"{error.detail}; start a server with mail server, or name one with --server"
        ) from error
    if not issues_tokens():
        note = "An external authentication service issues the keys of this server: enter yours there."
        return _Page(f"{server}/ui", note, {"expires": None})
    async with open_documents(storage) as documents:
        link = await (issue_operator_link(documents) if caller is None else issue_link(documents, caller))
    fields = {"expires": expiry_of(link)}
    if caller is None:
        return _Page(sign_in_url(server, link.code), NOTE, fields)
    fields = {"role": caller.role, "id": caller.id, **fields}
    return _Page(sign_in_url(server, link.code), f"{NOTE} It signs in {caller.role}:{caller.id}.", fields)


NOTE = "The link works once, within ten minutes."

PING_TIMEOUT = 5.0
"""Seconds to wait for the server."""


def _open(url: str) -> bool:
    """Open a browser that runs scripts; return whether there is one."""
    import webbrowser

    if sys.platform.startswith("linux") and not any(map(os.environ.get, DISPLAY_VARIABLES)):
        return False
    return webbrowser.open(url)
