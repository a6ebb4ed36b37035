"""Sessions with MCP servers, which the agents of a swarm share.

A session keeps one connection open, and opens another one when it is lost. The SDK wants a connection to be opened and
closed by the same task, so each is held by a task of its own. This module imports the SDK when it connects.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from contextvars import Context
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, cast

from mail.core.protocol.traceparent import TRACEPARENT
from mail.core.protocol.values import value
from mail.core.task.callbacks import CallResult, Polled
from mail.core.turns.context import TURN, token_of_caller
from mail.errors import BadRequest, ConfigurationError, MAILError, PayloadTooLarge, Unauthenticated
from mail.mcp.servers import ToolServer
from mail.utils.outcomes import ActionFailed, seconds_left

if TYPE_CHECKING:
    from mcp import Client
    from mcp.shared.dispatcher import ProgressFnT
    from mcp_types import CallToolResult, RequestParamsMeta, Tool

    from mail.mcp.tasks import ServerTask

logger = logging.getLogger(__name__)

_connects_to = attrgetter(
    *("name", "is_trusted"),
    *(f"settings.{name}" for name in ("command", "args", "env", "cwd", "url", "headers", "timeout")),
)
"""Returns what of a server makes its connection another one."""

LISTING_SECONDS = 300.0
"""Maximum age of a list of tools; a server may also report that its list has changed."""

RETRY_SECONDS = 15.0
"""Seconds after a failure during which turns don't wait for a server; the longest pause between starts of a program."""

RESTART_SECONDS = 0.5
"""The first pause between the starts of a program that fails; each further one is twice as long."""

PING_SECONDS = 5.0
"""Seconds for the answer to a ping, which a server gets that has not answered a call in time.

It is a request for the list of tools, as version 2026-07-28 of the protocol removed `ping`.
"""

TASK_SECONDS = 5.0
"""Seconds for which a turn waits for the result of a task with which a server answers; then the result comes later."""

SHORTEST_PAUSE, LONGEST_PAUSE = 0.1, 60.0
"""Limits of the seconds between two questions about a task, whatever the server says."""

LONGEST_TASK = 86_400.0
"""Seconds for which a server is asked about a task, unless the task ends or is forgotten before."""

HUNG = "it answered neither a call nor a ping, and was ended"

FRESH_SECONDS = 10.0
"""Seconds for which an unused connection is trusted; a call that must not be repeated tests an older one first."""

IDLE_SECONDS = 300.0
"""Seconds after which an unused connection is closed."""


@value
class Listing:
    """The tools of a server, as last listed, and the reason why it is unavailable, if it is."""

    tools: "tuple[Tool, ...]" = ()
    problem: str | None = None


class ServerFailed(ActionFailed):
    """A request to an MCP server failed.

    Attributes:
        reason: why, in MAIL's own words, for the system prompt; `detail` may quote the server.
        was_sent: whether the server may have processed the request although it was not answered.
    """

    was_sent = False

    def __init__(self, detail: str, reason: str) -> None:
        super().__init__(detail)
        self.reason = reason


class ConnectionLost(ServerFailed):
    """The connection to an MCP server has ended: during a request if `was_sent`, else before it."""

    was_sent = True


class NoAnswer(ServerFailed):
    """The server has not answered a request in time."""

    was_sent = True


class SessionExpired(ConnectionLost):
    """The server has refused a request, perhaps as it has forgotten the session."""

    was_sent = False


class Session:
    """The session with one server, on one event loop; one that gets the token of a caller serves that caller only."""

    def __init__(self, server: ToolServer) -> None:
        self._server = server
        self._caller = server.caller
        self._token = ""
        self._connection: _Connection | None = None
        self._connections: list[_Connection] = []  # with those that are ending
        self._lock = asyncio.Lock()
        self._listing = Listing()
        self._listed: float | None = None
        self._retry_at = 0.0
        self._failure: tuple[float, ServerFailed] | None = None
        self._failures = 0
        self._used = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._restarting: asyncio.Task[None] | None = None

    def serves(self, server: ToolServer) -> bool:
        """Return whether this is the session with a server: which tools an agent gets of it makes no difference."""
        return self._caller == server.caller and _connects_to(self._server) == _connects_to(server)

    @property
    def is_left(self) -> bool:
        """Return whether it is one of a caller who hasn't used it for a while."""
        is_open = self._connection is not None and not self._connection.is_over
        return bool(self._caller) and not is_open and _now() - self._used > IDLE_SECONDS

    async def _authorize(self) -> None:
        """Get the token that the server gets, if it gets one. Raises ServerFailed if there is none."""
        if self._server.settings.auth is None:
            return
        try:
            self._token = await token_of_caller()
        except Unauthenticated as error:
            detail = f"MCP server {self._server.name}: {error.detail}"
            raise ServerFailed(detail, error.detail) from None

    def _bearer(self) -> str:
        return self._token

    async def listing(self) -> Listing:
        """Return the server's tools. Never raises; waits for at most half of what is left of the turn.

        It doesn't wait for a program that is being restarted: the tools that it had stay listed.
        """
        self._used = _now()
        if self._server.settings.auth is not None and not self._caller:  # no turn: nobody's tools
            return Listing()
        if self._is_restarting and self._listing.tools:
            return self._listing
        try:
            await self._authorize()
        except ServerFailed as error:
            return Listing(self._listing.tools, self._unavailable(error))
        await self._refresh()
        return self._listing

    def _unavailable(self, error: ServerFailed) -> str:
        return f"MCP server {self._server.name} is unavailable: {error.reason}"

    async def _refresh(self) -> None:
        """List the tools if that is due."""
        until = _now() + seconds_left(self._server.settings.timeout * 2) / 2
        try:
            async with asyncio.timeout_at(until):
                await self._lock.acquire()
        except TimeoutError:  # others wait for the server already
            return
        try:
            now = _now()
            is_stale = self._listed is None or now - self._listed > LISTING_SECONDS
            if is_stale and now >= self._retry_at:
                with suppress(ActionFailed):
                    await self._list(until - now)
        finally:
            self._lock.release()

    async def call(self, tool: str, arguments: dict[str, Any], *, idempotent: bool) -> str | Polled:
        """Call a tool and return its result, whose files are stored; or the task with which the server has answered.

        Only an idempotent call is repeated if the connection is lost. If another call is not answered, the error says
        that its outcome is unknown. Raises ActionFailed with the tool's error, or if
        the server is unavailable, and as `FilesOfTurn.add` does.
        """
        from mail.mcp.tasks import TaskBegun

        self._used = _now()
        await self._authorize()
        seconds = seconds_left(self._server.settings.timeout)
        connection = await self._shared(seconds, is_tested=not idempotent)
        # the SDK replaces it by the current span, if there is one
        here = TURN.get().traceparent
        meta = cast("RequestParamsMeta", {TRACEPARENT: here}) if here else None
        report = _reporter(self._bearer)

        async def request() -> "CallToolResult":
            try:
                return await self._request(
                    connection,
                    lambda client: client.call_tool(tool, arguments, progress_callback=report, meta=meta),
                    seconds,
                )
            except ServerFailed as error:
                if isinstance(error, NoAnswer):
                    _ = self._spawn(self._check(connection))
                if not error.was_sent or idempotent:
                    raise
                raise ActionFailed(
                    f"{error.detail}. The outcome of the call is unknown: check whether it took effect before you "
                    "call it again"
                ) from error

        try:
            try:
                result = await request()
            except ConnectionLost:
                connection = await self._shared(seconds, is_tested=False)
                result = await request()
        except TaskBegun as begun:
            return await self._wait_for(begun.task)
        return await self._show(result)

    async def _wait_for(self, task: "ServerTask") -> str | Polled:
        """Return the result of a task that has just begun; the task itself if it takes longer."""
        lasts = LONGEST_TASK if task.ttl_ms is None else min(task.ttl_ms / 1000, LONGEST_TASK)
        until = _now() + min(TASK_SECONDS, seconds_left(TASK_SECONDS) / 2)
        polled = Polled(
            work=task.task_id, lasts=lasts, pause=_pause(task), progress=hide(task.progress, self._token)
        )
        try:
            while _now() + polled.pause < until:
                await asyncio.sleep(polled.pause)
                answer = await self._look_at(polled)
                if not isinstance(answer, Polled):
                    return await self._show(answer)
                polled = answer
        except ServerFailed:  # it is asked again later
            return polled
        except asyncio.CancelledError:
            _ = self._spawn(self._cancel_quietly(polled))
            raise
        return polled

    async def poll(self, polled: Polled) -> CallResult | Polled:
        """Ask about a task. Raises ServerFailed if the server can't be asked."""
        try:
            answer = await self._look_at(polled)
            if isinstance(answer, Polled):
                return answer
            return CallResult(await self._show(answer))
        except ServerFailed:
            raise
        except (ActionFailed, BadRequest, PayloadTooLarge) as error:
            return CallResult(str(error), has_failed=True)

    async def _show(self, result: "CallToolResult") -> str:
        """Return the result of a tool as its agent sees it. Raises ActionFailed if it is an error."""
        try:
            return hide(await _shown(result), self._token)
        except ActionFailed as error:
            raise ActionFailed(hide(str(error), self._token)) from None

    async def _look_at(self, polled: Polled) -> "CallToolResult | Polled":
        """Return the result of a task, or the task as it is now. Raises ActionFailed if it will have no result."""
        from mail.mcp.tasks import get_task, result_of

        task = await self._ask(lambda client: get_task(client, polled.work))
        result = result_of(task)
        if result is None:
            return replace(
                polled, pause=_pause(task), progress=hide(task.progress, self._token) or polled.progress
            )
        return result

    async def cancel(self, polled: Polled) -> None:
        """Cancel a task. Raises ActionFailed."""
        from mail.mcp.tasks import cancel_task

        await self._ask(lambda client: cancel_task(client, polled.work))

    async def _cancel_quietly(self, polled: Polled) -> None:
        with suppress(ActionFailed):
            await self.cancel(polled)

    async def _ask[Answer](self, request: "Callable[[Client], Awaitable[Answer]]") -> Answer:
        """Send a request that may be repeated. Raises ActionFailed."""
        self._used = _now()
        await self._authorize()
        seconds = seconds_left(self._server.settings.timeout)
        try:
            return await self._request(await self._shared(seconds, is_tested=False), request, seconds)
        except ConnectionLost:
            return await self._request(await self._shared(seconds, is_tested=False), request, seconds)

    async def aclose(self) -> None:
        """Close the connection; the next call opens another one."""
        for task in [*self._tasks]:
            await _end(task)
        self._connection = self._listed = None
        await asyncio.gather(*(connection.aclose() for connection in self._connections))

    async def _shared(self, seconds: float, *, is_tested: bool) -> "_Connection":
        """Return an open connection, for which calls wait together: an attempt that fails fails for all of them."""
        begin = _now()
        try:
            async with asyncio.timeout(seconds):
                await self._lock.acquire()
        except TimeoutError as error:
            raise _unavailable(self._server, f"no answer within {seconds:.3g} seconds") from error
        try:
            is_open = self._connection is not None and not self._connection.is_over
            failed = None if is_open or self._failure is None else self._failure[0]
            if failed is not None and (failed > begin or self._waits()):
                assert self._failure is not None
                raise ServerFailed(self._failure[1].detail, self._failure[1].reason)
            return await self._usable(begin + seconds - _now(), is_tested=is_tested)
        finally:
            self._lock.release()

    async def _usable(self, seconds: float, *, is_tested: bool) -> "_Connection":
        """Return an open connection, with `is_tested` one that has been used in the last seconds."""
        connection = self._connection
        if connection is None or connection.is_over:
            return await self._connect(seconds)
        if is_tested and _now() - connection.used > FRESH_SECONDS:
            with suppress(ActionFailed):
                await self._list(seconds)
        if self._connection is None:
            return await self._connect(seconds)
        return self._connection

    async def _connect(self, seconds: float) -> "_Connection":
        try:
            connection = await _Connection.open(self._server, seconds, self._forget, self._bearer)
        except ServerFailed as error:
            self._report(error)
            raise
        self._connection, self._listed = connection, None
        self._connections = [each for each in self._connections if not each.has_ended] + [connection]
        return connection

    async def _list(self, seconds: float) -> None:
        """List the tools, over another connection if the present one is lost. Raises ActionFailed."""
        is_old = self._connection is not None
        if self._connection is None or self._connection.is_over:
            is_old = False
            await self._connect(seconds)
        assert self._connection is not None
        try:
            tools = await self._request(self._connection, _list_tools, seconds)
        except ConnectionLost as error:
            if is_old:
                await self._list(seconds)
                return
            self._report(error)
            raise
        except ServerFailed as error:  # such as no answer: the connection may be dead
            self._connection.stop()
            self._report(error)
            raise
        if self._listing.problem is not None:
            logger.info("MCP server %s is available again", self._server.name)
        if tools == self._listing.tools:
            tools = self._listing.tools  # nothing has changed for those who compare
        self._listing, self._listed, self._retry_at, self._failures = Listing(tools), _now(), 0.0, 0

    async def _request[Result](
        self,
        connection: "_Connection",
        work: "Callable[[Client], Awaitable[Result]]",
        seconds: float,
    ) -> Result:
        """Run `work` on the connection. Raises ActionFailed; ConnectionLost if the connection is of no more use."""
        try:
            return await connection.run(work, seconds)
        except ConnectionLost:
            if self._connection is connection:
                self._connection = None
                connection.stop()
                self._restart()
            raise

    async def _check(self, connection: "_Connection") -> None:
        """Ping a server that has not answered a call in time; without an answer, end the connection and its program."""
        if connection.is_checked:
            return
        connection.is_checked = True
        try:
            await connection.run(lambda client: client.list_tools(), PING_SECONDS)
        except NoAnswer:
            logger.warning("MCP server %s: %s", self._server.name, HUNG)
            connection.stop(HUNG)
            if self._connection is connection:
                self._connection = None
            self._restart()
        except ServerFailed:  # an answer, or the end of the connection
            pass
        finally:
            connection.is_checked = False

    @property
    def _is_restarting(self) -> bool:
        return self._restarting is not None and not self._restarting.done()

    def _waits(self) -> bool:
        """Return whether a program that has failed is not to be started yet."""
        return self._server.settings.command is not None and _now() < self._retry_at

    def _restart(self) -> None:
        """Start a program again in the background, until it lists its tools or nobody has asked for a while."""
        if self._server.settings.command is None or self._is_restarting:
            return
        self._listed = None
        self._restarting = self._spawn(self._start_again())

    async def _start_again(self) -> None:
        while self._listed is None and _now() - self._used < IDLE_SECONDS:
            await asyncio.sleep(max(0.0, self._retry_at - _now()))
            await self._refresh()

    def _spawn(self, work: Coroutine[None, None, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(
            work, name=f"mcp-{self._server.name}-restart", context=Context()
        )  # of no turn
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _report(self, error: ServerFailed) -> None:
        """Note that the server is unavailable; the tools that it had stay offered, as calls try again."""
        if self._listing.problem is None:
            logger.warning("%s", error.detail)
        self._listing = Listing(self._listing.tools, self._unavailable(error))
        self._failure = _now(), error
        pause = RETRY_SECONDS
        if self._server.settings.command is not None:
            pause = min(RETRY_SECONDS, RESTART_SECONDS * 2 ** min(self._failures, 10))
        self._failures += 1
        self._listed, self._retry_at = None, _now() + pause
        self._restart()

    def _forget(self) -> None:
        """Note that the list of tools has changed."""
        self._listed = None


class _Connection:
    """An open connection, held by a task until `aclose`, an error, or `IDLE_SECONDS` without a request."""

    def __init__(self, server: ToolServer, on_change: Callable[[], None], bearer: Callable[[], str]) -> None:
        self._server = server
        self._bearer = bearer
        self._on_change = on_change
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._requests: set[asyncio.Future[Any]] = set()
        self._why = "the connection was lost"
        self.is_checked = False
        self.used = _now()
        self._holder = asyncio.create_task(self._hold(), name=f"mcp-{server.name}")

    @classmethod
    async def open(
        cls, server: ToolServer, seconds: float, on_change: Callable[[], None], bearer: Callable[[], str]
    ) -> "_Connection":
        """Connect, within so many seconds. Raises ActionFailed."""
        connection = cls(server, on_change, bearer)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(connection._opened)
        except TimeoutError as error:
            await connection.aclose()
            raise _unavailable(server, f"no answer within {seconds:.3g} seconds") from error
        except asyncio.CancelledError:
            connection._holder.cancel()
            raise
        return connection

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it is left, not even a program."""
        return self._holder.done()

    @property
    def is_over(self) -> bool:
        """Whether it takes no further request."""
        return self._stop.is_set() or self._holder.done()

    async def run[Result](self, work: "Callable[[Client], Awaitable[Result]]", seconds: float) -> Result:
        """Run a request. Raises ActionFailed; ConnectionLost if the connection is of no more use."""
        from mail.mcp.connection import CONNECTION_ERRORS, is_over, is_rejected, own_reason, reason_of

        if self.is_over:
            raise _lost(self._server, self._why, was_sent=False)
        request = asyncio.ensure_future(work(self._opened.result()))
        self._requests.add(request)
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait({request, self._holder}, return_when=asyncio.FIRST_COMPLETED)
            if not request.done() or request.cancelled():
                raise _lost(self._server, self._why)
            return request.result()
        except TimeoutError as error:
            reason = own_reason(error, seconds)
            raise NoAnswer(f"MCP server {self._server.name}: {reason}", reason) from error
        except CONNECTION_ERRORS as error:
            if is_over(error):
                self._stop.set()
                raise _lost(self._server, self._why) from error
            failed = SessionExpired if is_rejected(error) else ServerFailed
            reason = hide(reason_of(error, None, seconds), self._bearer())
            raise failed(f"MCP server {self._server.name}: {reason}", own_reason(error, seconds)) from error
        finally:
            await _end(request)
            self._requests.discard(request)
            self.used = _now()

    def stop(self, why: str | None = None) -> None:
        """Let it end; with `why`, the requests that wait are cut off at once, and say so."""
        self._stop.set()
        if why is not None:
            self._why = why
            for request in self._requests:
                request.cancel()

    async def aclose(self) -> None:
        """Close it, and end the program if the server is one."""
        self._stop.set()
        if not self._opened.done():
            self._holder.cancel()
        await asyncio.wait({self._holder})

    async def _hold(self) -> None:
        try:
            from mail.mcp.connection import CONNECTION_ERRORS, connect, own_reason, reason_of
            from mail.mcp.tasks import TasksExtension
        except ModuleNotFoundError as error:
            if error.name not in SDK_MODULES:
                raise
            self._fail(NO_SDK)
            return
        server = None
        try:
            server = self._server.find()
            async with AsyncExitStack() as stack:
                client = await connect(
                    server,
                    stack,
                    self._bearer if self._server.settings.auth else None,
                    message_handler=self._receive,
                    extensions=[TasksExtension()],
                )
                self._opened.set_result(client)
                watching = asyncio.create_task(self._watch_tools(client))
                try:
                    await self._wait_until_idle()
                finally:
                    await _end(watching)
        except ConfigurationError as error:
            self._fail(error.detail)
        except CONNECTION_ERRORS as error:
            seconds = self._server.settings.timeout
            try:
                reason = hide(reason_of(error, server, seconds), self._bearer())
                self._fail(reason, own_reason(error, seconds))
            except MAILError as cause:
                self._fail(str(cause))
        finally:
            self._stop.set()
            if not self._opened.done():
                self._fail("the connection was closed")

    def _fail(self, reason: str, own: str | None = None) -> None:
        """Note why it has ended; `own` is the reason in MAIL's own words, unless it is the same."""
        if self._opened.done():
            logger.debug("MCP server %s: its connection has ended: %s", self._server.name, reason)
        else:
            self._opened.set_exception(_unavailable(self._server, reason, own))
            self._opened.exception()  # nobody may be waiting any more

    async def _wait_until_idle(self) -> None:
        while not self._stop.is_set():
            idle = 0.0 if self._requests else _now() - self.used
            if idle >= IDLE_SECONDS:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_SECONDS - idle):
                    await self._stop.wait()

    async def _watch_tools(self, client: "Client") -> None:
        """Follow the changes of the list of tools; servers of older protocols send them to `_receive`."""
        from mcp import MCPError
        from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost

        offered = client.server_capabilities.tools
        if offered is None or not offered.list_changed:
            return
        with suppress(MCPError, ListenNotSupportedError, SubscriptionLost, TimeoutError):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._on_change()

    async def _receive(self, message: object) -> None:
        from mcp_types import ToolListChangedNotification

        if isinstance(message, ToolListChangedNotification):
            self._on_change()


class Sessions:
    """The sessions of a swarm: one for each server, event loop and caller whose token the server gets."""

    def __init__(self) -> None:
        self._of: dict[asyncio.AbstractEventLoop, list[Session]] = {}

    def get(self, server: ToolServer) -> Session:
        """Return the session with a server, on the running event loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._of:
            for closed in [each for each in self._of if each.is_closed()]:
                del self._of[closed]
            self._of[loop] = []
        for session in self._of[loop]:
            if session.serves(server):
                return session
        sessions = self._of[loop] = [each for each in self._of[loop] if not each.is_left]
        sessions.append(Session(server))
        return sessions[-1]

    async def listings(self, servers: Sequence[ToolServer]) -> list[Listing]:
        """Return the tools of several servers, asked at the same time; see `Session.listing`."""
        return await asyncio.gather(*(self.get(server).listing() for server in servers))

    async def aclose(self) -> None:
        """Close the sessions on the running event loop."""
        for session in self._of.pop(asyncio.get_running_loop(), []):
            await session.aclose()


SDK_MODULES: Sequence[str] = ("mcp", "mcp_types")
"""The modules of the MCP SDK."""

NO_SDK = "the MCP SDK is not installed; install it with: pip install mcp"


async def _shown(result: "CallToolResult") -> str:
    """Return the result of a tool as its agent reads it, after storing its files for the task of the running turn.

    Raises ActionFailed if it is an error, and as `FilesOfTurn.add` does.
    """
    from mail.mcp.results import show_tool_error, tool_result

    if result.is_error:
        raise ActionFailed(show_tool_error(result))
    files = TURN.get().files
    shown = tool_result(result, has_files=files is not None)
    return "\n".join(
        [
            (await files.add(each)).in_words if files is not None and not isinstance(each, str) else str(each)
            for each in shown
        ]
    )


def _pause(task: "ServerTask") -> float:
    """Return after how many seconds the server wants to be asked about a task."""
    return min(max(SHORTEST_PAUSE, (task.poll_interval_ms or 1000.0) / 1000), LONGEST_PAUSE)


def hide(text: str, token: str) -> str:
    """Return a text of a server without the token that it got, as agents and those who watch them don't get it."""
    return text.replace(token, "[token of the caller]") if token else text


def _reporter(bearer: Callable[[], str]) -> "ProgressFnT | None":
    """Return what shows the progress of the running call to those who watch its turn; None outside of turns."""
    turn = TURN.get()
    if (activity := turn.activity) is None:
        return None

    async def report(progress: float, total: float | None, message: str | None) -> None:
        share = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        activity.report(turn.call.id, f"{share}: {hide(message, bearer())}" if message else share)

    return report


async def _list_tools(client: "Client") -> "tuple[Tool, ...]":
    from mail.mcp.connection import read_pages

    pages, _ = await read_pages(lambda cursor: client.list_tools(cursor=cursor))
    return tuple(tool for page in pages for tool in page.tools)


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancel a task, and ignore how it ends."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


def _unavailable(server: ToolServer, reason: str, own: str | None = None) -> ServerFailed:
    return ServerFailed(f"MCP server {server.name} is unavailable: {reason}", own or reason)


def _lost(server: ToolServer, reason: str, *, was_sent: bool = True) -> ConnectionLost:
    error = ConnectionLost(f"MCP server {server.name} is unavailable: {reason}", reason)
    error.was_sent = was_sent
    return error


def _now() -> float:
    return asyncio.get_running_loop().time()
