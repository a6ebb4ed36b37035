"""The parts of uvicorn and h11 that `mail.server.uvicorn_parts` uses, in the versions that are installed.

`test_http_connections.py` shows that they do what is expected of them.
"""

import asyncio
import inspect
from typing import Any

import h11
import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import CLOSE_HEADER, FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState
from uvicorn.supervisors.statreload import StatReload

from mail.server.uvicorn_parts import GracefulServer, LimitedProtocol, Reloader


@pytest.mark.parametrize(
    ("ours", "theirs", "methods"),
    [
        (
            LimitedProtocol,
            H11Protocol,
            (
                *(
                    "connection_made",
                    "connection_lost",
                    "data_received",
                    "handle_events",
                    "on_response_complete",
                ),
                "shutdown",
            ),
        ),
        (GracefulServer, uvicorn.Server, ("startup", "on_tick", "shutdown", "capture_signals")),
        (Reloader, StatReload, ("iter_py_files",)),
    ],
)
def test_the_methods_that_are_overridden_exist(ours: type, theirs: type, methods: tuple[str, ...]) -> None:
    for name in methods:
        own, base = getattr(ours, name), getattr(theirs, name)
        assert own is not base, name
        assert list(inspect.signature(own).parameters)[1:] == list(inspect.signature(base).parameters)[1:], (
            name
        )
    overridden = {name for name in vars(ours) if not name.startswith("_") and hasattr(theirs, name)}
    assert overridden == set(methods), "each is named here"


async def test_the_attributes_of_a_connection_exist() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None: ...

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    protocol = H11Protocol(config, ServerState(), {})
    for name in ("app", "client", "conn", "cycle", "flow", "headers", "logger", "loop", "scope", "transport"):
        assert name in vars(protocol), name
    assert callable(protocol.send_400_response)
    assert isinstance(protocol.conn, h11.Connection)
    assert protocol.conn.their_state is h11.IDLE
    assert protocol.conn.trailing_data == (b"", False)
    assert CLOSE_HEADER == (b"connection", b"close")
    source = inspect.getsource(RequestResponseCycle.__init__)
    for name in ("body", "more_body", "response_started", "response_complete"):
        assert f"self.{name} =" in source, name
    assert not FlowControl(asyncio.Transport()).read_paused


def test_the_attributes_of_a_server_exist() -> None:
    server = uvicorn.Server(uvicorn.Config(""))
    assert (server.started, server.should_exit, server.force_exit) == (False, False, False)
