"""Where a peer is: the names and URLs that can be registered."""

import re
from ipaddress import ip_address
from urllib.parse import urlsplit

from mail.errors import BadRequest

_NAME = re.compile(r"[^:@#\x00-\x1f\x7f]{1,128}")
_LAMBDA_HOST = re.compile(r"\.lambda-url\.([a-z0-9-]+)\.on\.aws$")

MAX_URL = 2048


def is_name(name: str) -> bool:
    """Whether this can be the name of a swarm."""
    return _NAME.fullmatch(name) is not None and name == name.strip()


def check_name(name: str) -> str:
    """The name of a swarm. Raises BadRequest for one that can't be part of an address."""
    if not is_name(name):
        raise BadRequest(
            f"{name[:128]!r} can't be the name of a swarm: it has 1 to 128 characters, none of them ':', '@', '#' "
            "or a control character, and no space at an end"
        )
    return name


def check_url(url: str) -> str:
    """The base URL of a server, without a slash at its end.

    Raises BadRequest for any but http and https, and for what has no place in a base URL: a user, a query, a fragment.
    The message does not repeat the URL, which may hold a password.
    """
    try:
        parts = urlsplit(url.strip())
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise BadRequest(f"base_url is no URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host or len(url) > MAX_URL or port == 0:
        raise BadRequest(
            "base_url must be of the form http://host or https://host, a port and a path may follow"
        )
    if "@" in parts.netloc:
        raise BadRequest("base_url must not hold a user or a password; tokens have a field of their own")
    if parts.query or parts.fragment or "?" in url or "#" in url:
        raise BadRequest("base_url must have neither a query nor a fragment")
    if any(character.isspace() or not character.isprintable() for character in url.strip()):
        raise BadRequest("base_url must not hold spaces or control characters")
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def host_of(url: str) -> str:
    """The host of a URL, empty where it has none."""
    return urlsplit(url).hostname or ""


def is_loopback(host: str) -> bool:
    """Whether a host, a name or an IP address, is this machine as only it sees itself."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def lambda_region(url: str) -> str | None:
    """The region of a Lambda function URL; None for any other URL."""
    found = _LAMBDA_HOST.search(host_of(url))
    return found[1] if found else None
