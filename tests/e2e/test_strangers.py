"""Strangers at the door of a `mail server`: too many for its file descriptors, or reading nothing while it stops."""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from support.processes.server import ServerProcess

resource = pytest.importorskip("resource")
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sets limits of other processes")

FEW = 64
LIMITED = f"""
import resource, runpy
resource.setrlimit(resource.RLIMIT_NOFILE, ({FEW}, {FEW}))
runpy.run_module("mail.cli", run_name="__main__", alter_sys=True)
"""
OUT_OF_DESCRIPTORS = "socket.accept() out of system resource"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    script = tmp_path / "limited.py"
    script.write_text(LIMITED, encoding="utf-8")
    process = ServerProcess(tmp_path)
    process.command = (sys.executable, str(script), "server")
    with process:
        yield process


def connect(server: ServerProcess, strangers: ExitStack, data: bytes = b"") -> socket.socket:
    url = httpx2.URL(server.url)
    stranger = strangers.enter_context(socket.socket())
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stranger.connect((url.host, url.port))
    stranger.sendall(data)
    return stranger


def cpu_seconds(server: ServerProcess) -> float:
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_healthy(server: ServerProcess) -> bool:
    return httpx2.get(f"{server.url}/health", timeout=60).status_code == 200


def test_more_strangers_than_descriptors(server: ServerProcess) -> None:
    with ExitStack() as strangers:
        for _ in range(2 * FEW):
            connect(server, strangers, b"GET /health HTTP/1.1\r\n")
        assert is_healthy(server)
    assert OUT_OF_DESCRIPTORS not in server.errors
    assert 1 <= server.errors.count("connections are open, the limit") <= 5


def test_a_server_without_descriptors_neither_spins_nor_fills_the_log(server: ServerProcess) -> None:
    """Other parts of it may have taken them: a limit below what is open has the same effect."""
    assert is_healthy(server)
    with ExitStack() as strangers:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (5, FEW))
        for _ in range(2 * FEW):
            connect(server, strangers)
        before, size = cpu_seconds(server), len(server.errors)
        time.sleep(2.5)
        assert cpu_seconds(server) - before < 1.25, (
            "one that spins takes all of the time, half of it on a busy machine"
        )
        assert len(server.errors) - size < 10_000
        assert 1 <= server.errors.count(OUT_OF_DESCRIPTORS) <= 5
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (FEW, FEW))
        assert is_healthy(server)


@pytest.mark.soak
def test_a_stop_while_strangers_neither_read_nor_send_is_no_error(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server, ExitStack() as strangers:
        connect(server, strangers, b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        key = server.tokens["user"]
        head = (
            f"POST /message HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: 9\r\n\r\n"
        )
        connect(server, strangers, head.encode())
        assert is_healthy(server)
        assert server.stop() == 0
        assert "ERROR" not in server.errors
