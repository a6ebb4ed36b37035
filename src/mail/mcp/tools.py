"""The tools of MCP servers as tools of an agent."""

import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mail.actions.functions import as_result
from mail.core.protocol.calls import BUILTIN_TOOLS, TEXT_OUTPUT
from mail.core.protocol.error_text import did_you_mean
from mail.core.task.callbacks import Later
from mail.core.task.swarm import ActionCore, ProvidedTools
from mail.errors import ConfigurationError
from mail.mcp.servers import ToolServer
from mail.mcp.sessions import NO_SDK, SDK_MODULES, Listing, Sessions
from mail.utils.outcomes import cut

if TYPE_CHECKING:
    from mcp_types import Tool

logger = logging.getLogger(__name__)

MAX_NAME = 64
"""Characters of a tool's name that all providers of language models accept."""

MAX_DESCRIPTION = 4000
"""Characters of a tool's description that an agent sees."""


class MCPTools:
    """The tools of an agent's MCP servers; a `ToolSource`.

    Args:
        taken: the names of the agent's other tools.
        approve: the tools whose calls a person must approve, by one of their names (`names_of`); True for all.
    """

    def __init__(
        self,
        servers: Sequence[ToolServer],
        taken: Collection[str],
        sessions: Sessions,
        approve: bool | Collection[str] = False,
    ) -> None:
        self._servers = servers
        self._approve = approve
        self._taken = {*taken, *BUILTIN_TOOLS, TEXT_OUTPUT}
        self._sessions = sessions
        self._listings: list[Listing] = []
        self._provided = ProvidedTools()

    async def tools(self) -> ProvidedTools:
        """Return the tools that the servers have now; those that can't be reached are described as problems."""
        listings = await self._sessions.listings(self._servers)
        if [*map(id, listings)] != [*map(id, self._listings)]:
            self._listings, self._provided = listings, self._provide(listings)
        return self._provided

    def known(self) -> ProvidedTools:
        """Return the tools that the servers had last."""
        return self._provided

    def problems(self) -> list[str]:
        """Return what would keep the servers from being used, as far as that shows without a connection."""
        found = [NO_SDK] if any(find_spec(module) is None for module in SDK_MODULES) else []
        for server in self._servers:
            try:
                server.find()
            except ConfigurationError as error:
                found.append(f"MCP server {server.name!r} can't be used: {error.detail}")
        return found

    async def aclose(self) -> None:
        """Close the sessions of the swarm."""
        await self._sessions.aclose()

    def _provide(self, listings: Sequence[Listing]) -> ProvidedTools:
        offered = [
            (server, tool)
            for server, listing in zip(self._servers, listings, strict=True)
            for tool in _selected(server, listing.tools)
        ]
        count = Counter(valid_name(tool.name) for server, tool in offered if server.settings.prefix is None)
        actions: dict[str, ActionCore] = {}
        for server, tool in offered:
            name = valid_name(tool.name)
            match server.settings.prefix:
                case None if name in self._taken or count[name] > 1:
                    name = valid_name(f"{server.name}_{tool.name}")
                case True:
                    name = valid_name(f"{server.name}_{tool.name}")
                case str() as prefix:
                    name = valid_name(f"{prefix}_{tool.name}")
            if name in self._taken or name in actions:
                name = valid_name(f"{server.name}_{tool.name}", is_marked=True)
            actions[name] = self._action(name, server, tool)
        if not any(listing.problem for listing in listings):
            self._warn_of_unknown_names(offered)
        return ProvidedTools(
            actions, tuple(_note(listing.problem) for listing in listings if listing.problem)
        )

    def _warn_of_unknown_names(self, offered: Sequence[tuple[ToolServer, "Tool"]]) -> None:
        known = {*self._taken, *(name for server, tool in offered for name in names_of(server, tool.name))}
        for name in () if isinstance(self._approve, bool) else self._approve:
            if name not in known:
                logger.warning(
                    "approve names the tool %r, which no MCP server has%s", name, did_you_mean(name, known)
                )

    def _action(self, name: str, server: ToolServer, tool: "Tool") -> ActionCore:
        hints = tool.annotations
        read_only = hints is not None and bool(hints.read_only_hint)
        idempotent = read_only or (hints is not None and bool(hints.idempotent_hint))

        async def call(arguments: dict[str, object]) -> str | Later:
            result = await self._sessions.get(server).call(tool.name, arguments, idempotent=idempotent)
            texts = [part for part in result if isinstance(part, str)]
            return "\n".join(texts) if len(texts) == len(result) else await as_result(name, result)

        return ActionCore(
            name=name,
            function=call,
            description=cut(tool.description or tool.title or "", MAX_DESCRIPTION),
            parameters=tool.input_schema,
            idempotent=idempotent,
            read_only=read_only,
            needs_approval=self._approve
            if isinstance(self._approve, bool)
            else not names_of(server, tool.name).isdisjoint(self._approve),
        )


def tool_sources() -> Callable[
    [Sequence[ToolServer], Collection[str], bool | Collection[str]], MCPTools | None
]:
    """Return a function that makes the tool sources of a swarm's agents, which share their sessions.

    It returns None for an agent without servers; see `MCPTools` for its arguments.
    """
    sessions = Sessions()

    def source(
        servers: Sequence[ToolServer], taken: Collection[str], approve: bool | Collection[str]
    ) -> MCPTools | None:
        return MCPTools(servers, taken, sessions, approve) if servers else None

    return source


def names_of(server: ToolServer, tool: str) -> set[str]:
    """Return the names by which settings may refer to a tool: the server's, and those that an agent may know it by."""
    prefix = server.settings.prefix
    prefixes = {server.name, prefix} if isinstance(prefix, str) else {server.name}
    return {tool, valid_name(tool), *(valid_name(f"{each}_{tool}") for each in prefixes)}


def _selected(server: ToolServer, tools: Sequence["Tool"]) -> Iterator["Tool"]:
    """Yield the tools that the settings let the agent have."""
    settings = server.settings
    known = [tool.name for tool in tools]
    for name in [*(settings.tools or ()), *settings.exclude] if known else ():
        if name not in known:
            logger.warning("MCP server %s has no tool %r%s", server.name, name, did_you_mean(name, known))
    for tool in tools:
        is_allowed = settings.tools is None or tool.name in settings.tools
        if is_allowed and tool.name not in settings.exclude:
            yield tool


def valid_name(name: str, *, is_marked: bool = False) -> str:
    """Return a name that all providers accept, with `is_marked` one that differs from those of similar tools."""
    valid = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
    if len(valid) <= MAX_NAME and not is_marked:
        return valid
    return f"{valid[: MAX_NAME - 7]}_{sha256(name.encode()).hexdigest()[:6]}"


def _note(problem: str) -> str:
    return f"Note: {problem}. Its tools may be missing or fail for now; they are looked for in each turn."
