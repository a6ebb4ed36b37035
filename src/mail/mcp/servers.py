"""The MCP servers of a swarm: those of its agents' `mcp`, those configured by the operator, and public URLs."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mail.auth.claims import read_issuer
from mail.core.protocol.error_text import describe, did_you_mean
from mail.core.protocol.values import Value, value
from mail.core.turns.context import TURN
from mail.errors import ConfigurationError, ToolCallFault

SERVERS = "MAIL_MCP_SERVERS"
"""The environment variable that holds the JSON object `{"mcpServers": {name: server}}`, or the path of such a file."""

_VARIABLE = re.compile(r"\$\{(\w+)\}")

_KINDS = Literal["stdio", "http", "streamable-http", "streamableHttp", "streamable_http"]


class MCPServer(Value):
    """An MCP server whose tools an agent gets: a program, a URL, or one of `MAIL_MCP_SERVERS` by its name.

    Values may be secret, so errors don't quote them; `${NAME}` in them refers to an environment variable.
    """

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)

    command: str | None = Field(
        default=None,
        min_length=1,
        description="The program to start, which speaks MCP over its standard streams.",
    )
    args: list[str] = Field(default_factory=list, description="The program's arguments.")
    env: dict[str, str] = Field(default_factory=dict, description="The program's environment variables.")
    cwd: str | None = Field(default=None, description="The folder that the program works in.")
    url: str | None = Field(
        default=None, pattern=r"^https?://[^/]", description="The URL of a streamable HTTP endpoint."
    )
    headers: dict[str, str] = Field(
        default_factory=dict, description="Headers of every request, such as Authorization."
    )
    auth: Literal["caller"] | None = Field(
        default=None,
        description="'caller' sends the token of the task's owner, by the identity provider, as Authorization.",
    )
    type: _KINDS | None = Field(
        default=None, description="The transport, as other programs name it; command or url decides."
    )
    disabled: bool = Field(default=False, description="Whether the server is ignored.")
    tools: list[str] | None = Field(
        default=None, description="The tools that the agent gets, by the server's names; null for all."
    )
    exclude: list[str] = Field(
        default_factory=list, description="The tools that it does not get, by the server's names."
    )
    prefix: bool | str | None = Field(
        default=None,
        description="What the agent's names of the tools begin with: true for the server's name, a text, false for "
        "nothing. By default the server's name, and only for names that the agent has already.",
    )
    timeout: float = Field(
        default=60.0, gt=0, le=3600, strict=False, description="Seconds that a call may take, and connecting."
    )


class LoadedMCPServer(MCPServer):
    """A server that a loaded swarm names: not the operator, but an admin has written its settings."""


def _by_name(value: Any) -> Any:
    """Return a list of operator's servers as a mapping from their names."""
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return {name: {} for name in value}
    return value


def _complete(servers: dict[str, MCPServer]) -> dict[str, MCPServer]:
    for name, server in servers.items():
        if problem := _problem(server):
            raise ValueError(f"server {name!r} {problem}")
    return servers


def _problem(server: MCPServer) -> str | None:
    if server.command is not None and server.url is not None:
        return "needs either a command or a url, not both"
    if server.command is None and (server.args or server.env or server.cwd is not None):
        return "needs a command for its args, env and cwd"
    if server.url is None and server.headers:
        return "needs a url for its headers"
    if server.auth is not None:
        return _problem_of_auth(server)
    return None


def _problem_of_auth(server: MCPServer) -> str | None:
    if server.command is not None:
        return "can't have auth, as it is a program: give it a url"
    if any(name.lower() == "authorization" for name in server.headers):
        return "can't have both auth and the header Authorization"
    try:
        read_issuer(server.url or "")
    except ValueError:
        return "needs an https url, as it gets the tokens of callers"
    return None


MCPServers = Annotated[
    dict[str, MCPServer],
    BeforeValidator(_by_name, json_schema_input_type=dict[str, MCPServer] | list[str]),
    AfterValidator(_complete),
]
"""The value of `mcp`: servers by name, or a list of names of the operator's servers."""

MCPOption = Mapping[str, MCPServer | Mapping[str, Any]] | Sequence[Any] | str
"""The value of `mcp` in Python; see `read_servers`."""


class Entry(BaseModel):
    """A server in `mcpServers`, in the format that other programs use; unknown fields are ignored.

    Values may be secret, so errors don't quote them.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True, defer_build=True)


class StdioServer(Entry):
    """A program that communicates over its standard streams."""

    command: str = Field(min_length=1)
    args: list[str] = []
    env: dict[str, str] = {}
    cwd: str | None = None


class HTTPServer(Entry):
    """A server that speaks streamable HTTP."""

    url: str = Field(pattern=r"^https?://[^/]")
    headers: dict[str, str] = {}


@value
class ForeignServer:
    """A server that the operator did not configure: an agent or a loaded swarm names its URL."""

    url: str
    headers: Mapping[str, str] | None = None


Server = StdioServer | HTTPServer | ForeignServer


@value
class ToolServer:
    """A server of an agent's `mcp`."""

    name: str
    settings: MCPServer

    @property
    def caller(self) -> str:
        """Return whose token it gets: the caller for whom a turn runs; empty for none."""
        return TURN.get().caller if self.settings.auth == "caller" else ""

    @property
    def is_trusted(self) -> bool:
        """Return whether the operator has written its settings, rather than an admin who loads a swarm."""
        return not isinstance(self.settings, LoadedMCPServer)

    def find(self) -> Server:
        """Return the server to connect to, with its variables filled in. Raises ConfigurationError."""
        settings = self.settings
        if settings.command is None and settings.url is None:
            entries = _entries()
            if self.name not in entries:
                raise ConfigurationError(
                    f"it is not in {SERVERS}{did_you_mean(self.name, entries)}; configure it there, or give it a "
                    "command or a url"
                )
            return _server(self.name, entries[self.name])
        if not self.is_trusted:
            assert settings.url is not None
            return ForeignServer(settings.url, settings.headers)
        where, entry = "its settings", settings.model_dump()
        if settings.command is not None:
            return _read(StdioServer, where, entry)
        return _read(HTTPServer, where, entry)


def tool_servers(servers: Mapping[str, MCPServer]) -> tuple[ToolServer, ...]:
    """Return the servers of an agent that are in use."""
    return tuple(ToolServer(name, server) for name, server in servers.items() if not server.disabled)


def loaded_servers(where: str, servers: Mapping[str, MCPServer]) -> dict[str, MCPServer]:
    """Return the servers of an agent of a loaded swarm: public URLs, and servers of the operator by name.

    Raises ConfigurationError for others: a program could do anything, and a variable can be secret.
    """
    for name, server in servers.items():
        if server.command is not None:
            raise ConfigurationError(
                f"{where}: MCP server {name!r}: a swarm that is loaded over HTTP may not start programs; configure the "
                f'server in {SERVERS} and name it: "mcp": ["{name}"]'
            )
        if server.auth is not None:
            raise ConfigurationError(
                f"{where}: MCP server {name!r}: a swarm that is loaded over HTTP may not pass on tokens of "
                "callers: leave out auth, or let the operator configure the swarm"
            )
        if any(_VARIABLE.search(text) for text in [server.url or "", *server.headers.values()]):
            raise ConfigurationError(
                f"{where}: MCP server {name!r}: a swarm that is loaded over HTTP may not read environment variables; "
                f'configure the server in {SERVERS} and name it: "mcp": ["{name}"]'
            )
    return {name: LoadedMCPServer.model_validate(dict(server)) for name, server in servers.items()}


class _MCP(Value):
    model_config = ConfigDict(hide_input_in_errors=True)

    mcp: MCPServers


def read_servers(where: str, option: MCPOption) -> dict[str, MCPServer]:
    """Return the servers, by name, of an agent that is defined in Python.

    Args:
        option: as in swarms.json; or a list of URLs, commands (lists of their words), `MCPServer` objects, mappings as
            in swarms.json, and names of the operator's servers. URLs and commands are named after their host and
            program.

    Raises ConfigurationError.
    """
    servers: dict[str, Any] = {}
    for item in [option] if isinstance(option, str | Mapping | MCPServer) else option:
        found = dict(item) if isinstance(item, Mapping) else dict([_named(where, item)])
        for name, server in found.items():
            if name in servers:
                raise ConfigurationError(
                    f"{where}: there are several MCP servers named {name!r}; name them: mcp={{'name': …}}"
                )
            servers[name] = server
    try:
        return _MCP.model_validate({"mcp": servers}).mcp
    except ValidationError as error:
        raise ConfigurationError(f"{where}: {describe(error, _MCP)}") from None


def _named(where: str, item: Any) -> tuple[str, Any]:
    match item:
        case str() if item.startswith(("http://", "https://")):
            return _host(item), {"url": item}
        case str():
            return item, {}
        case MCPServer(url=str(url)):
            return _host(url), item
        case MCPServer(command=str(command)):
            return PurePath(command).stem, item
        case [str(program), *_] if all(isinstance(word, str) for word in item):
            return PurePath(program).stem, {"command": program, "args": list(item[1:])}
        case _:
            raise ConfigurationError(
                f"{where}: mcp: each server must be a URL, a command as a list of words, an MCPServer, a dictionary as "
                f"in swarms.json, or a name in {SERVERS}; not {type(item).__name__}"
            )


def _host(url: str) -> str:
    return urlsplit(url).hostname or url


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
        raise ConfigurationError(f"{SERVERS}: {describe(error, _File)}") from None
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
        raise ConfigurationError(f"{where}: {describe(error, kind)}") from None


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
