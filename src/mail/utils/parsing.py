"""Readers of references to Python objects and URLs, and of addresses."""

import importlib
import inspect
import json
import logging
import sysconfig
import traceback
from collections.abc import Collection
from types import ModuleType
from typing import Any

from mail.core.protocol.address import parse_agent_address
from mail.core.protocol.error_text import did_you_mean
from mail.errors import ConfigurationError

PYTHON_PREFIX = "python::"
"""Marks a string in swarms.json as a reference to a Python object."""

URL_PREFIX = "url::"
"""Marks a string in swarms.json as a reference to a JSON document on the web."""

URL_SECONDS = 10.0
"""Timeout for fetching such a document."""

MAX_URL_BYTES = 1024 * 1024

_INSTALLED = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
"""The folders of Python and of installed packages."""

logger = logging.getLogger(__name__)


def read_python_string(string: str, *, allowed_prefixes: Collection[str] | None = None) -> Any:
    """Import the object that `package.module:attribute` names; the prefix `python::` is optional.

    With `allowed_prefixes`, the object must be defined in these modules or their submodules: an object that they only
    import, such as `os.system`, is refused, and so is any name like `__globals__`, which leads out of them. Nothing
    outside of them is imported by this call.

    Raises ConfigurationError if the reference is malformed, forbidden, or can't be resolved.
    """
    module_name, colon, path = string.removeprefix(PYTHON_PREFIX).partition(":")
    if not (colon and _is_dotted_name(module_name) and _is_dotted_name(path)):
        raise ConfigurationError(
            f"{string!r} is not of the form 'package.module:attribute'; in swarms.json write "
            f"'python::{_guess(string)}'"
        )
    names = (*module_name.split("."), *path.split("."))
    special = next((name for name in names if name.startswith("__") and name.endswith("__")), None)
    if special is not None and allowed_prefixes is not None:
        raise ConfigurationError(f"{string!r} may not be imported: {special} is a special name of Python")
    if not _is_allowed(module_name, allowed_prefixes):
        raise _forbidden(string, allowed_prefixes)
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # any error of foreign code
        # with prefixes, a caller of this server gets the text
        if allowed_prefixes is not None and not isinstance(error, ImportError):
            logger.exception("%s can't be imported", module_name)
            reason = f"{string!r} can't be imported: {type(error).__name__}; the server's log says more"
            raise ConfigurationError(reason) from error
        logger.debug("%s can't be imported", module_name, exc_info=True)
        is_open = allowed_prefixes is None
        reason = (
            _import_failure(string, module_name, error)
            if is_open
            else f"{string!r} can't be imported: {error}"
        )
        raise ConfigurationError(reason) from error
    for name in path.split("."):
        if not hasattr(found, name):
            hint = did_you_mean(name, dir(found))
            raise ConfigurationError(f"{string!r}: {module_name} has no attribute {path!r}{hint}")
        found = getattr(found, name)
        if not _is_allowed(_module_of(found), allowed_prefixes):
            raise _forbidden(string, allowed_prefixes)
    return found


def _guess(string: str) -> str:
    """Return the reference that a malformed one probably stands for, or the form of all."""
    module, _, attribute = string.removeprefix(PYTHON_PREFIX).replace(":", ".").rpartition(".")
    return f"{module}:{attribute}" if _is_dotted_name(f"{module}.{attribute}") else "package.module:attribute"


def _import_failure(string: str, module_name: str, error: Exception) -> str:
    """Return why a module can't be imported: one line, or three with the place in its code and the exception.

    An installed package is not to blame for what the module does, so the place is the last one outside of those.
    """
    if (
        isinstance(error, ModuleNotFoundError)
        and error.name
        and f"{module_name}.".startswith(f"{error.name}.")
    ):
        return f"{string!r} can't be imported: {error}"
    place, code = _place(error)
    text = traceback.format_exception_only(error)[-1].strip()
    if not place:
        return f"{string!r} can't be imported: {text}"
    return f"{string!r} can't be imported: an error in {place}\n  {code}\n{text}"


def _place(error: Exception) -> tuple[str, str]:
    """Return the file and line of an error, and the code there; empty if it was raised by Python itself."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}", (error.text or "").strip()
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename != __file__ and not frame.filename.startswith("<frozen")
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_INSTALLED)]
    if not (own or frames):
        return "", ""
    frame = (own or frames)[-1]
    return f"{frame.filename}, line {frame.lineno}", (frame.line or "").strip()


def read_url_string(string: str, *, raise_on_error: bool = False, allow_private: bool = True) -> str:
    """Fetch the JSON document at a URL, as JSON text; the prefix `url::` is optional.

    If that fails, the URL itself is returned and a warning logged, or with `raise_on_error` a RuntimeError raised.
    Without `allow_private` only public addresses are called and redirects not followed, so that an untrusted URL can't
    reach services behind this server's firewall.
    """
    url = string.removeprefix(URL_PREFIX)
    try:
        return json.dumps(_fetch_json(url, allow_private=allow_private), ensure_ascii=False)
    except (OSError, ValueError) as error:
        reason = f"{url!r} can't be read: {str(error) or type(error).__name__}"
        if raise_on_error:
            raise RuntimeError(reason) from error
        logger.warning("%s; the URL itself is used instead", reason)
        return url


def _fetch_json(url: str, *, allow_private: bool) -> Any:
    """Fetch and parse a JSON document. Raises OSError or ValueError."""
    import httpx2

    from mail.public_urls import PublicTransport

    transport = None if allow_private else PublicTransport()
    try:
        with (
            httpx2.Client(timeout=URL_SECONDS, follow_redirects=allow_private, transport=transport) as client,
            client.stream("GET", url) as response,
        ):
            response.raise_for_status()
            if response.is_redirect:
                raise ValueError(f"redirects to {response.headers.get('location')}")
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_URL_BYTES:
                    raise ValueError(f"has more than {MAX_URL_BYTES} bytes")
        return json.loads(body)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise OSError(str(error) or type(error).__name__) from error


def target_address_is_interswarm(address: str) -> bool:
    """Return whether the address, `agent` or `agent@swarm`, names another swarm."""
    return parse_agent_address(address)[1] is not None


def _is_dotted_name(text: str) -> bool:
    return all(name.isidentifier() for name in text.split("."))


def _is_allowed(module_name: str | None, prefixes: Collection[str] | None) -> bool:
    if prefixes is None or module_name is None:
        return True
    return any(module_name == prefix or module_name.startswith(f"{prefix}.") for prefix in prefixes)


def _module_of(found: Any) -> str | None:
    """Return the module that defines an object; None for plain values."""
    if isinstance(found, ModuleType):
        return found.__name__
    if inspect.isclass(found) or inspect.isroutine(found):
        return found.__module__ or ""
    return None


def _forbidden(string: str, prefixes: Collection[str] | None) -> ConfigurationError:
    allowed = ", ".join(sorted(prefixes or ())) or "nothing"
    return ConfigurationError(f"{string!r} may not be imported; allowed are objects of: {allowed}")
