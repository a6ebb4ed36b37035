"""The URLs by which people name a server on the command line."""

import typer


def server_url(text: str) -> str:
    """The base URL that `text` names: an http(s) URL, or `swarm://connect?server=<host>` (then https).

    `swarm://invite` means the same as `connect`. Raises typer.BadParameter for anything else.
    """
    from mail.client.errors import InvalidConnection  # brings httpx
    from mail.client.urls import read_server

    try:
        return read_server(text).url
    except InvalidConnection as error:
        raise typer.BadParameter(f"{error.detail}, not {text!r}") from None
