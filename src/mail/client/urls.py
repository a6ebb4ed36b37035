"""The URLs by which people name a server."""

import re
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from mail.client.errors import InvalidConnection

_HOST = re.compile(r"[^\s/?#@\\]+")


class ServerAddress(NamedTuple):
    """Where a server is, without a slash at the end, and the key that the URL brought along."""

    url: str
    token: str | None = None


def read_server(text: str) -> ServerAddress:
    """Read `http(s)://host…`, or `swarm://connect?server=<host>&token=<key>`, which is https.

    `swarm://invite` means the same as `connect`. Raises InvalidConnection for anything else; as a URL may hold a
    key, the message does not repeat it.
    """
    try:
        return _read(text)
    except ValueError:
        raise InvalidConnection(
            "the URL names no server; write http://host:port, https://host or swarm://connect?server=host"
        ) from None


def _read(text: str) -> ServerAddress:
    parts = urlsplit(text)
    if parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment:
        _ = parts.port  # raises ValueError where it is none
        return ServerAddress(text.rstrip("/"))
    if parts.scheme == "swarm" and parts.netloc in ("connect", "invite"):
        query = parse_qs(parts.query)
        hosts, tokens = query.get("server", []), query.get("token", [])
        if len(hosts) == 1 and len(tokens) <= 1 and _HOST.fullmatch(hosts[0]):
            return ServerAddress(f"https://{hosts[0]}", tokens[0] if tokens else None)
    raise ValueError
