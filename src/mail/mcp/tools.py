"""The tools of MCP servers as tools of an agent."""

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING

from mail.core.protocol.calls import BUILTIN_TOOLS, TEXT_OUTPUT
from mail.core.protocol.error_text import did_you_mean
from mail.core.protocol.values import value
from mail.core.task.callbacks import CallResult, Polled
from mail.core.task.swarm import ActionCore, ProvidedTools
from mail.core.turns.context import CURRENT_TASK, NOTHING_PROVIDED, TURN
from mail.errors import ConfigurationError
from mail.mcp.servers import ToolServer
from mail.mcp.sessions import NO_SDK, SDK_MODULES, Listing, Session, Sessions
from mail.utils.outcomes import cut

if TYPE_CHECKING:
    from mcp_types import Tool

logger = logging.getLogger(__name__)

MAX_NAME = 64
"""Characters of a tool's name that all providers of language models accept."""

MAX_DESCRIPTION = 4000
"""Characters of a tool's description that an agent sees."""


CACHED_SECONDS = 300.0
"""Seconds for which providers keep the prefix of a call: as long, the tools of a task stay the same."""

CAUSED_SECONDS = 30.0
"""Seconds after the end of an agent's call in which a change of its server's tools counts as its effect."""

MOST_KEPT = 10_000
"""Tasks, and callers, whose tools are kept."""

type Actions = Mapping[str, ActionCore]


@value
class _Kept:
    """The tools that an agent had in the last turn of a task.

    Attributes:
        used: when that turn began, by the clock of the event loop.
        before: the tools of the servers when the agent called one of them last; None if it has not.
        called: when that call ended.
    """

    actions: Actions
    used: float = 0.0
    before: Actions | None = None
    called: float = 0.0


class MCPTools:
    """The tools of an agent's MCP servers; a `ToolSource`.

    While a task runs, its tools stay as they are, so that the provider finds the beginning of its calls in its cache.
    They change if an own call of the agent has changed them, and after a pause in which the cache has expired.

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
        self._last: dict[str, tuple[list[Listing], ProvidedTools]] = {}
        self._kept: dict[tuple[str, ...], _Kept] = {}

    async def tools(self) -> ProvidedTools:
        """Return the tools for the running turn; servers that can't be reached are described as problems."""
        listings = await self._sessions.listings(self._servers)
        last, provided = self._last.get(self._place, ([], NOTHING_PROVIDED))
        if [*map(id, listings)] != [*map(id, last)]:
            is_same = [id(each.tools) for each in listings] == [id(each.tools) for each in last]
            found = self._provide(listings)
            provided = replace(found, actions=provided.actions) if is_same else found
            _put_last(self._last, self._place, (listings, provided))
        return replace(provided, actions=actions) if (actions := self._keep()) else provided

    @property
    def _place(self) -> str:
        """The caller whose tools they are, if a server gets the caller's token; else empty, as all have the same."""
        return next((server.caller for server in self._servers if server.caller), "")

    def _keep(self) -> Actions | None:
        """Return the tools that the task has had so far, if it keeps them; None for those that the servers have now."""
        present, key, now = self.known().actions, _running(), asyncio.get_running_loop().time()
        if key is None:
            return None
        kept = self._kept.pop(key, None)
        if kept is not None:
            is_own = kept.before is not None and kept.before is not present
            if now > kept.used + CACHED_SECONDS or (is_own and now <= kept.called + CAUSED_SECONDS):
                kept = None
        kept = replace(kept or _Kept(present), used=now)
        _put_last(self._kept, key, kept)
        return None if kept.actions is present else kept.actions

    def _note_call(self, before: Actions) -> None:
        """Note that an agent has called a server, whose tools were these before."""
        now = asyncio.get_running_loop().time()
        if (key := _running()) is not None and (kept := self._kept.get(key)) is not None:
            is_first = kept.before is None or now > kept.called + CAUSED_SECONDS
            self._kept[key] = replace(kept, before=before if is_first else kept.before, called=now)

    def known(self) -> ProvidedTools:
        """Return the tools that the servers had last."""
        return self._last.get(self._place, ([], NOTHING_PROVIDED))[1]

    async def poll(self, polled: Polled) -> CallResult | Polled:
        """Ask a server about a task with which it has answered a call. Raises ActionFailed: ask again later."""
        if (found := self._find(polled)) is None:
            return CallResult("the agent no longer has its MCP server", has_failed=True)
        session, task = found
        answer = await session.poll(task)
        return replace(answer, work=polled.work) if isinstance(answer, Polled) else answer

    async def cancel(self, polled: Polled) -> None:
        """Cancel a task with which a server has answered a call. Raises ActionFailed."""
        if (found := self._find(polled)) is not None:
            session, task = found
            await session.cancel(task)

    def _find(self, polled: Polled) -> tuple[Session, Polled] | None:
        """Return the session with the server of a task, and the task by the server's name for it."""
        name, task = json.loads(polled.work)
        server = next((each for each in self._servers if each.name == name), None)
        return None if server is None else (self._sessions.get(server), replace(polled, work=task))

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
        lost = "Its tools may be missing or fail for now; they are looked for in each turn."
        return ProvidedTools(
            actions, tuple(f"Note: {each.problem}. {lost}" for each in listings if each.problem)
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

        async def call(arguments: dict[str, object]) -> str | Polled:
            before = self.known().actions
            try:
                result = await self._sessions.get(server).call(tool.name, arguments, idempotent=idempotent)
            finally:
                self._note_call(before)
            if isinstance(result, Polled):
                return replace(result, work=json.dumps([server.name, result.work]))
            return result

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


def _put_last[Key, Kept](kept: dict[Key, Kept], key: Key, each: Kept) -> None:
    """Put an entry at the end, and drop the first one of too many."""
    kept.pop(key, None)
    kept[key] = each
    for oldest in list(kept)[:1] if len(kept) > MOST_KEPT else ():
        del kept[oldest]


def _running() -> tuple[str, ...] | None:
    """Return the agent and the task of the running turn; None outside of turns."""
    turn = TURN.get()
    return (turn.caller, CURRENT_TASK.get(), turn.agent) if turn.agent else None


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
