"""`mail ui`: open the page of a server in a browser, signed in."""

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import click

from mail.cli.options import api_key, as_json, choose_server, on_database, run, server_option, server_url
from mail.cli.output import Output
from mail.cli.token import named_caller, token_storage
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.auth.keys import Caller
    from mail.config import StorageConfig

PageRole = Literal["admin", "user"]
"""The roles that the page is for."""

DISPLAY_VARIABLES = ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY")
"""On Linux a browser that can show the page needs one of these."""


@dataclass(frozen=True, slots=True)
class _Page:
    """The address to open, and what to say about it."""

    url: str
    note: str
    fields: dict[str, Any]


@click.command()
@server_url
@server_option
@api_key
@click.option(
    "--role",
    type=click.Choice(("admin", "user")),
    help="The role to sign in as, if you give no key: user or admin. "
    "[default: user, with a second session for what only admins see]",
)
@click.option("--id", "caller_id", metavar="ID", help="The id to sign in as. [default: the role's name]")
@click.option("--browser/--no-browser", default=True, help="Open the link, or only print it.")
@on_database
@as_json
def ui(
    url: str | None,
    server: str | None,
    api_key: str | None,
    role: "PageRole | None",
    caller_id: str | None,
    browser: bool,
    output: Output,
    **storage: Any,
) -> None:
    """Open the server's page in a browser, signed in.

    The page opens with a link that works once, within ten minutes. With an API key, the link signs in the key's own
    caller. Without one, run it where the server runs: the link signs in the caller of your commands. With --role or
    --id it is written to the server's database, as `mail token create` does.
    """
    from mail.cli.connection import connect, is_on_this_machine

    chosen = [
        name
        for name, value in (("--role", role), ("--id", caller_id), ("--database", storage["database"]))
        if value is not None
    ]
    server = choose_server(url, server)
    client = connect(server, api_key, config=storage["config"])
    if api_key is not None and chosen:
        raise click.BadParameter(
            f"{chosen[0]} can't be combined with an API key, whose own caller the link signs in",
            param_hint=chosen[0],
        )
    if (client.api_key or client.local_keys) and not chosen:
        page = run(_over_http(client))
    elif server is not None and not is_on_this_machine(client.base_url):
        raise click.BadParameter(
            "the server is on another machine: add --api-key, or set MAIL_API_KEY", param_hint="--server"
        )
    else:
        caller = named_caller(role or "user", caller_id or role or "user") if role or caller_id else None
        page = run(_from_database(token_storage(**storage), client.base_url, caller))
    output.result({"url": page.url, **page.fields}, lambda: output.write(f"{page.url}\n{page.note}"))
    if browser and not _open(page.url) and not output.as_json:
        output.write("No browser was found here; open the address yourself.")


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
    """Write a link to the server's database, if the server answers; without a caller, for the server's operator."""
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
