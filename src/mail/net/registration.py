"""Registry entries: checked names and URLs, tokens, and the description that a swarm gives of itself."""

import re
from collections.abc import Mapping
from dataclasses import asdict
from ipaddress import ip_address
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic_core import to_json

from mail.core.protocol.values import value
from mail.core.task.interswarm import PeerRecord
from mail.errors import BadRequest, PeerRefused, PeerUnavailable
from mail.net.http import PROBE_SECONDS, Answer, PeerHTTP, Target
from mail.net.secrets import reference_for, variable_in
from mail.net.types import SwarmInfo

_NAME = re.compile(r"[^:@#\x00-\x1f\x7f]{1,128}")

MAX_URL = 2048


def is_name(name: str) -> bool:
    """Return whether a text is valid as the name of a swarm."""
    return _NAME.fullmatch(name) is not None and name == name.strip()


def check_name(name: str) -> str:
    """Return the name of a swarm. Raises BadRequest for an invalid one."""
    if not is_name(name):
        raise BadRequest(
            f"{name[:128]!r} can't be the name of a swarm: it has 1 to 128 characters, none of them ':', '@', '#' "
            "or a control character, and no space at an end"
        )
    return name


def check_url(url: str) -> str:
    """Return the base URL of a server, without a trailing slash.

    Raises BadRequest for schemes other than http and https, and for a URL with a user, query or fragment. The message
    does not repeat the URL, which may hold a password.
    """
    try:
        split = urlsplit(url.strip())
        host, port = split.hostname, split.port
    except ValueError as error:
        raise BadRequest(f"base_url is not a valid URL: {error}") from error
    if split.scheme not in ("http", "https") or not host or len(url) > MAX_URL or port == 0:
        raise BadRequest(
            "base_url must be of the form http://host or https://host, optionally with a port and a path"
        )
    if "@" in split.netloc:
        raise BadRequest("base_url must not contain a user or a password; tokens belong in auth_token")
    if split.query or split.fragment or "?" in url or "#" in url:
        raise BadRequest("base_url must have neither a query nor a fragment")
    if any(character.isspace() or not character.isprintable() for character in url.strip()):
        raise BadRequest("base_url must not contain spaces or control characters")
    return f"{split.scheme}://{split.netloc.lower()}{split.path.rstrip('/')}"


def host_of(url: str) -> str:
    """Return the host of a URL, empty if it has none."""
    return urlsplit(url).hostname or ""


def is_loopback(host: str) -> bool:
    """Return whether a host name or IP address is on the loopback interface."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def kind_of(url: str) -> Literal["mail", "a2a"]:
    """Return the protocol by which what is registered at a URL is called: A2A at that of an agent card."""
    return "a2a" if url.endswith(".json") else "mail"


def is_private(host: str) -> bool | None:
    """Return whether a host is `localhost`, or an IP address that is not public; None for names to look up."""
    if is_loopback(host):
        return True
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return None
    from mail.public_urls import is_public

    return not is_public(str(address))


Auth = Literal["bearer", "aws_iam"]

MAX_METADATA_BYTES = 16 * 1024


def new_entry(
    name: str,
    base_url: str,
    *,
    metadata: Mapping[str, Any] | None = None,
    auth: Auth = "bearer",
    caller_id: str = "",
    registered: str,
    kind: Literal["mail", "a2a"] = "mail",
) -> PeerRecord:
    """Return a checked entry. Raises BadRequest."""
    if metadata and len(to_json(metadata)) > MAX_METADATA_BYTES:
        raise BadRequest(f"metadata has more than {MAX_METADATA_BYTES} bytes")
    if auth == "aws_iam" and "mail_host" in (metadata or {}):
        raise BadRequest(
            "a URL with auth 'aws_iam' takes no mail of MAIL 2.0: leave out mail_host in metadata, or register "
            "the swarm at the URL of its HTTP API, without auth, with a token"
        )
    peer = PeerRecord(
        name=check_name(name),
        base_url=check_url(base_url),
        metadata=dict(metadata or {}),
        auth=auth,
        caller_id=check_name(caller_id) if caller_id else "",
        registered=registered,
        kind=kind,
    )
    try:
        target_of(peer)
    except PeerRefused as error:
        raise BadRequest(error.detail) from error
    return peer


@value
class Access:
    """The token, or reference to one, of an entry, and how long the entry lives."""

    auth_token: str
    volatile: bool
    expires: float | None


def amend(peer: PeerRecord, *, info: SwarmInfo | None = None, access: Access | None = None) -> PeerRecord:
    """Return the entry with a new description, or with a new token and lifetime."""
    described = {} if info is None else dict(info)
    owned = {} if access is None else asdict(access)
    return PeerRecord(**{**peer, **described, **owned, "name": peer.name})


def with_token(
    peer: PeerRecord,
    token: str | None,
    volatile: bool | None,
    expires: float | None,
    *,
    default_expiry: float,
) -> PeerRecord:
    """Return the entry with its token; only a volatile entry stores the token itself. Raises BadRequest."""
    is_literal = bool(token) and variable_in(token or "") is None
    if volatile is None:
        volatile = is_literal or expires is not None
    stored = token if token and volatile and is_literal else reference_for(peer.name, token)
    end = (default_expiry if expires is None else expires) if volatile else None
    return amend(peer, access=Access(stored, volatile, end))


def target_of(peer: PeerRecord) -> Target:
    """Return the target of requests to a swarm. Raises PeerRefused if the region to sign for is unknown."""
    return Target.of(peer.base_url, peer.auth, peer.metadata)


async def read_info(http: PeerHTTP, target: Target) -> tuple[SwarmInfo, Answer]:
    """Request a swarm's description from its `/`. Raises PeerRefused, PeerUnavailable."""
    answer = await http.get(target, "/", seconds=PROBE_SECONDS)
    answer.raise_for_status()
    return SwarmInfo.read(answer.json()), answer


async def describe(http: PeerHTTP, peer: PeerRecord) -> tuple[SwarmInfo, float] | None:
    """Return a swarm's description and the latency in seconds; None if it does not answer now.

    Raises BadRequest if another swarm answers at the URL, or the URL may not be called.
    """
    try:
        if peer.kind == "a2a":
            from mail.net.a2a import read_card

            card, answer = await read_card(http, target_of(peer))
            return card, answer.seconds
        info, answer = await read_info(http, target_of(peer))
    except PeerUnavailable:
        return None
    except PeerRefused as error:
        raise BadRequest(f"{peer.base_url} can't be registered: {error.detail}") from error
    if info.name != peer.name:
        raise BadRequest(f"{peer.base_url} is swarm {info.name[:128]!r}, not {peer.name!r}")
    return info, answer.seconds
