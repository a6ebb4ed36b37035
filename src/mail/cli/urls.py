"""The URLs by which people name a server on the command line."""

import re
from urllib.parse import parse_qs, urlsplit

import typer

_HOST = re.compile(r"[^\s/?#@\\]+")


def server_url(text: str) -> str:
    """The base URL that `text` names: an http(s) URL, or `swarm://connect?server=<host>` (then https).

    `swarm://invite` means the same as `connect`. Raises typer.BadParameter for anything else.
    """
    try:
        return _server_url(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} names no server; write http://host:port, https://host or swarm://connect?server=host"
        ) from None


def _server_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme in ("http", "https") and parts.hostname:
        return text.rstrip("/")
    if parts.scheme == "swarm" and parts.netloc in ("connect", "invite"):
        hosts = parse_qs(parts.query).get("server", [])
        if len(hosts) == 1 and _HOST.fullmatch(hosts[0]):
            return f"https://{hosts[0]}"
    raise ValueError(text)
