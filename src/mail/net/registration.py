"""What makes an entry: what was given, less what can't be used, and what the swarm says of itself."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic_core import to_json

from mail.core.task.interswarm import PeerRecord
from mail.errors import BadRequest, PeerRefused, PeerUnavailable
from mail.net.http import Answer, PeerHTTP, Target
from mail.net.secrets import reference_for, variable_in
from mail.net.types import SwarmInfo

_NAME = re.compile(r"[^:@#\x00-\x1f\x7f]{1,128}")

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


Auth = Literal["bearer", "aws_iam"]

LOOK_SECONDS = 10.0
"""How long a peer may take to say how it is."""

MAX_METADATA_BYTES = 16 * 1024


def new_entry(
    name: str,
    base_url: str,
    *,
    metadata: Mapping[str, Any] | None = None,
    auth: Auth = "bearer",
    caller_id: str = "",
    registered: str,
) -> PeerRecord:
    """An entry of what was given. Raises BadRequest."""
    if metadata and len(to_json(metadata)) > MAX_METADATA_BYTES:
        raise BadRequest(f"metadata has more than {MAX_METADATA_BYTES} bytes")
    record = PeerRecord(
        name=check_name(name),
        base_url=check_url(base_url),
        metadata=dict(metadata or {}),
        auth=auth,
        caller_id=check_name(caller_id) if caller_id else "",
        registered=registered,
    )
    try:
        target_of(record)
    except PeerRefused as error:
        raise BadRequest(error.detail) from error
    return record


def with_token(
    record: PeerRecord,
    token: str | None,
    volatile: bool | None,
    expires: float | None,
    *,
    default_expiry: float,
) -> PeerRecord:
    """The entry with its token: only a volatile one keeps a token itself. Raises BadRequest."""
    is_literal = bool(token) and variable_in(token or "") is None
    if volatile is None:
        volatile = is_literal or expires is not None
    kept = token if volatile and is_literal else reference_for(record.name, token)
    end = (default_expiry if expires is None else expires) if volatile else None
    return record.model_copy(update={"auth_token": kept, "volatile": volatile, "expires": end})


def target_of(record: PeerRecord) -> Target:
    """How a swarm is called. Raises PeerRefused where that is not known."""
    return Target.of(record.base_url, record.auth, record.metadata)


async def read_info(http: PeerHTTP, target: Target) -> tuple[SwarmInfo, Answer]:
    """What a swarm says of itself at its `/`. Raises PeerRefused, PeerUnavailable."""
    answer = await http.get(target, "/", seconds=LOOK_SECONDS)
    answer.raise_for_status()
    return SwarmInfo.read(answer.json()), answer


async def describe(http: PeerHTTP, record: PeerRecord) -> tuple[SwarmInfo, float] | None:
    """What a swarm says of itself, and how many seconds that took; None where it does not answer now.

    Raises BadRequest where what answers is not that swarm, or may not be called.
    """
    try:
        info, answer = await read_info(http, target_of(record))
    except PeerUnavailable:
        return None
    except PeerRefused as error:
        raise BadRequest(f"{record.base_url} can't be registered: {error.detail}") from error
    if info.name != record.name:
        raise BadRequest(f"{record.base_url} is swarm {info.name[:128]!r}, not {record.name!r}")
    return info, answer.seconds
