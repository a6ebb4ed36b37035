"""Keys for the commands on the machine of a server: new at each start, and valid only in the process that made them.

The server writes them to a file that only its user can read, one per address; the commands look there. A file that a
killed server has left behind holds keys that no server accepts.
"""

import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

from mail.auth.keys import Authenticator, Caller, digest
from mail.auth.tokens import ADMIN, USER, new_token
from mail.core.protocol.values import value

logger = logging.getLogger(__name__)

_IPV4, _IPV6 = "127.0.0.1", "::1"

_REACHED_AT = {"127.0.0.1": _IPV4, "localhost": _IPV4, "0.0.0.0": _IPV4, "": _IPV4, "::1": _IPV6, "::": _IPV6}  # noqa: S104
"""The loopback address of a server, by the host that it listens on. Others have no local keys."""

_MEANT_BY = {"localhost": (_IPV4, _IPV6), _IPV4: (_IPV4,), _IPV6: (_IPV6,)}
"""The loopback addresses that a host in a URL stands for, the preferred one first."""


@value
class LocalKeys:
    """The keys of a server for its own machine, and the URL of the one address to which commands may send them."""

    url: str
    user: str
    admin: str


class LocalAuthenticator:
    """An `Authenticator` that accepts local keys, and asks another one about all other keys."""

    def __init__(self, keys: LocalKeys, inner: Authenticator) -> None:
        self._inner = inner
        self._callers = {
            digest(key): Caller(caller.role, caller.id, is_local=True)
            for key, caller in ((keys.user, USER), (keys.admin, ADMIN))
        }

    async def authenticate(self, bearer: str) -> Caller:
        return self._callers.get(digest(bearer)) or await self._inner.authenticate(bearer)


@contextmanager
def offer_keys(host: str, port: int, *, wanted: bool = True) -> Iterator[LocalKeys | None]:
    """Write new keys for a server that listens here, and delete them after the block.

    Yields None if they are not wanted, the server can't be reached at a loopback address, or, with a line in the log,
    the file can't be written. Keys that a killed server has left behind are deleted in any case.
    """
    address = _REACHED_AT.get(host)
    keys = None
    try:
        if address is not None:
            _delete(address, port)
            if wanted:
                keys = LocalKeys(_url(address, port), new_token("local"), new_token("local"))
                _write(_path(address, port), keys)
    except OSError as error:
        keys = None
        logger.warning("commands on this machine need --api-key, as their key can't be stored: %s", error)
    try:
        yield keys
    finally:
        if address is not None and keys is not None and _read(address, port) == keys:
            with suppress(OSError):
                _delete(address, port)


def find_keys(url: str) -> LocalKeys | None:
    """Return the keys of the server at this URL; None if it isn't one on this machine that has written some."""
    split = urlsplit(url)
    if split.scheme != "http" or split.path.strip("/"):
        return None
    port = split.port or 80
    found = (_read(address, port) for address in _MEANT_BY.get(split.hostname or "", ()))
    return next(filter(None, found), None)


def state_folder() -> Path:
    """Return the folder for this package's state (XDG_STATE_HOME, LOCALAPPDATA). Raises OSError without a home."""
    variable, folder = "XDG_STATE_HOME", (".local", "state")
    if sys.platform == "win32":
        variable, folder = "LOCALAPPDATA", ("AppData", "Local")
    named = Path(os.environ.get(variable, ""))
    try:
        return (named if named.is_absolute() else Path.home().joinpath(*folder)) / "mail"
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from error


def _path(address: str, port: int) -> Path:
    return state_folder() / "servers" / f"{address.replace(':', '_')}-{port}.json"


def _url(address: str, port: int) -> str:
    return f"http://{f'[{address}]' if ':' in address else address}:{port}"


def _write(path: Path, keys: LocalKeys) -> None:
    """Put a new file, which nobody else can open, in the place of any other, or of a link to one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.parent.chmod(0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent)  # creates it exclusively, with mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"url": keys.url, "user": keys.user, "admin": keys.admin}, file)
        Path(name).replace(path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _read(address: str, port: int) -> LocalKeys | None:
    try:
        keys = LocalKeys(**json.loads(_path(address, port).read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError):
        return None
    return keys if keys.url == _url(address, port) else None


def _delete(address: str, port: int) -> None:
    _path(address, port).unlink(missing_ok=True)
