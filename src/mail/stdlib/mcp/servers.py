"""The MCP servers that agents may use: those configured by the operator, and public URLs."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mail.core.protocol.error_text import describe, did_you_mean
from mail.errors import ConfigurationError, ToolCallFault

SERVERS = "MAIL_MCP_SERVERS"
"""The environment variable that holds the JSON object `{"mcpServers": {name: server}}`, or the path of such a file."""

_VARIABLE = re.compile(r"\$\{(\w+)\}")


class Entry(BaseModel):
    """A server in `mcpServers`, in the format that other programs use; unknown fields are ignored.

    Values may be secret, so errors don't quote them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)


class StdioServer(Entry):
    """A program started for each call, which communicates over its standard streams."""

    command: str = Field(min_length=1)
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None


class HTTPServer(Entry):
    """A server that speaks streamable HTTP."""

    url: str = Field(pattern=r"^https?://[^/]")
    headers: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class ForeignServer:
    """A server that an agent names by URL, and that the operator did not configure."""

    url: str


Server = StdioServer | HTTPServer | ForeignServer


class _File(Entry):
    servers: dict[str, dict[str, Any]] = Field(alias="mcpServers")


def find_server(name: str) -> Server:
    """Return a server by its name or URL.

    Raises ToolCallFault for an unknown server, ConfigurationError for an invalid configuration.
    """
    if name.startswith(("http://", "https://")):
        return _foreign(name)
    entries = _entries()
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise ToolCallFault(
            f"there is no MCP server {name!r}{did_you_mean(name, entries)}; known are: {known}. "
            "An http or https URL also works"
        )
    return _server(name, entries[name])


def list_servers() -> list[str]:
    """Return the names of the configured servers."""
    return sorted(_entries())


def _foreign(url: str) -> ForeignServer:
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    if not host:
        raise ToolCallFault(f"{url!r} is not the URL of a server")
    return ForeignServer(url)


def _entries() -> dict[str, dict[str, Any]]:
    """Return the raw entries of the enabled servers. Raises ConfigurationError."""
    setting = os.environ.get(SERVERS, "").strip()
    if not setting:
        return {}
    if not setting.startswith("{"):
        try:
            setting = Path(setting).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{SERVERS} is neither a JSON object nor the path of a file") from error
    try:
        servers = _File.model_validate_json(setting).servers
    except ValidationError as error:
        raise ConfigurationError(f"{SERVERS}: {describe(error, _File)}") from error
    return {name: entry for name, entry in servers.items() if entry.get("disabled") is not True}


def _server(name: str, entry: dict[str, Any]) -> StdioServer | HTTPServer:
    where = f"{SERVERS}: server {name!r}"
    kind = entry.get("type", entry.get("transport"))
    if kind not in (None, "stdio", "http", "streamable-http", "streamableHttp", "streamable_http"):
        raise ConfigurationError(f"{where}: its type must be 'stdio' or 'http' (streamable HTTP)")
    if ("command" in entry) == ("url" in entry):
        raise ConfigurationError(f"{where} needs either a command or a url")
    if "command" in entry:
        return _read(StdioServer, where, entry)
    return _read(HTTPServer, where, entry)


def _read[Named: (StdioServer, HTTPServer)](kind: type[Named], where: str, entry: dict[str, Any]) -> Named:
    def variable(found: re.Match[str]) -> str:
        if found[1] not in os.environ:
            raise ConfigurationError(f"{where}: the environment variable {found[1]} is not set")
        return os.environ[found[1]]

    known = {key: value for key, value in entry.items() if key in kind.model_fields}
    try:
        return kind.model_validate(_replaced(known, lambda text: _VARIABLE.sub(variable, text)))
    except ValidationError as error:
        raise ConfigurationError(f"{where}: {describe(error, kind)}") from error


def _replaced(value: Any, replace: Callable[[str], str]) -> Any:
    """Return the value with every string in it replaced."""
    match value:
        case str():
            return replace(value)
        case list():
            return [_replaced(item, replace) for item in value]
        case dict():
            return {key: _replaced(item, replace) for key, item in value.items()}
        case _:
            return value
