"""`mail server` as people run it: a process of its own, in a folder of its own.

with ServerProcess(tmp_path) as server:
    server.ask("weather in Tokyo")
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

from mail.public_urls import tls
from support.processes import forkserver

MAIL = (sys.executable, "-m", "mail.cli")
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_asyncio.plugin")
PLUGINS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
"""Arguments and environment of a user's tests, without our other plugins, which take seconds to import."""

TIMEOUT = 100.0
"""Seconds after which something that should have happened counts as hung."""

AUTHORITY = Path(__file__).parent / "authority.pem"

_URL = re.compile(r"listens on (http://\S+)")
_TOKEN = re.compile(r"^  (admin|user|agent) +(mail_\S+)$", re.MULTILINE)


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment, less what would configure a server, with one trusted certificate."""
    ours = ("AUTH_ENDPOINT", "TOKEN_INFO_ENDPOINT", "DATABASE_URL", "BASE_URL")
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in ours and not name.startswith(("MAIL_", "SWARM_"))
    }
    return {**kept, "SSL_CERT_FILE": str(AUTHORITY), **(extra or {})}


def run_python(*arguments: str, cwd: Path | None = None, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end."""
    return forkserver.run([sys.executable, *arguments], cwd=cwd, env=environment(), given=given)


def run_mail(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, given: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run a `mail` command to its end."""
    return forkserver.run([*MAIL, *arguments], cwd=cwd, env=environment(env), given=given, timeout=TIMEOUT)


def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait until it is so."""
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.02)


class _Tokens(dict[str, str]):
    """The tokens of a server, which prints no admin's where its output is no terminal."""

    def __init__(self, server: "ServerProcess") -> None:
        super().__init__()
        self._server = server

    def __missing__(self, role: str) -> str:
        server = self._server
        flags = [
            part
            for name, value in pairwise(server.flags)
            if name in ("--database", "--swarm-name", "--config")
            for part in (name, value)
        ]
        create = ("token", "create", "--role", role, "--id", role, *flags)
        made = run_mail(*create, cwd=server.folder, env=server.env)
        assert made.returncode == 0, made.stderr
        self[role] = made.stdout.strip()
        return self[role]


class ServerProcess:
    """A `mail server` in `folder`, on a free port unless `flags` name one. `start` returns once it is ready.

    Attributes:
        log: what the names of the files of its output begin with, for several servers in one folder.
        tokens: the tokens that it has printed, by role, kept over restarts; an admin's is made when it is first needed.
    """

    command: tuple[str, ...] = (*MAIL, "server")

    def __init__(
        self, folder: Path, *flags: str, env: Mapping[str, str] | None = None, log: str = ""
    ) -> None:
        self.folder = folder
        self.log = log
        self.flags = flags if "--port" in flags else (*flags, "--port", "0")
        self.env = env
        self.spawn: Callable[..., Any] = forkserver.start
        self.tokens: dict[str, str] = _Tokens(self)
        self.url = ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(TIMEOUT)

    @property
    def output(self) -> str:
        """What this run has printed on stdout."""
        return (self.folder / f"{self.log}stdout.txt").read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        """What this run has printed on stderr."""
        return (self.folder / f"{self.log}stderr.txt").read_text(encoding="utf-8")

    def start(self) -> None:
        """Start it, again after it was stopped or killed."""
        with (
            (self.folder / f"{self.log}stdout.txt").open("wb") as stdout,
            (self.folder / f"{self.log}stderr.txt").open("wb") as stderr,
        ):
            self.process = self.spawn(
                [*self.command, *self.flags],
                cwd=self.folder,
                env=environment(self.env),
                stdout=stdout,
                stderr=stderr,
            )
        eventually(lambda: _URL.search(self.output) or self.process.poll() is not None, "the server is ready")
        ready = _URL.search(self.output)
        assert ready is not None, f"exit code {self.process.returncode}\n{self.output}\n{self.errors}"
        self.url = ready[1]
        self.tokens |= dict(_TOKEN.findall(self.output))

    def kill(self) -> None:
        """`kill -9`."""
        self.process.kill()
        self.process.wait(TIMEOUT)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Tell it to stop; returns its exit code."""
        self.process.send_signal(number)
        return self.process.wait(TIMEOUT)

    def caller(self, role: str = "user", **env: str) -> dict[str, str]:
        """The environment of a command that shows the role's token."""
        return {"MAIL_SERVER": self.url, "MAIL_API_KEY": self.tokens[role], **env}

    def mail(
        self, *arguments: str, role: str = "user", cwd: Path | None = None, given: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a `mail` command of the role to its end, in the server's folder unless in another."""
        return run_mail(*arguments, cwd=cwd or self.folder, env=self.caller(role, **env), given=given)

    def prints(self, *arguments: str, fails: str = "", code: int = 0, **how: Any) -> str:
        """What a command prints (see `mail`), which must work, or tell `fails`."""
        done = self.mail(*arguments, **how)
        assert (done.returncode, done.stderr) == ((1, f"mail: {fails}\n") if fails else (code, ""))
        return done.stdout

    def client(self, role: str = "user") -> httpx2.Client:
        """An HTTP client that shows the role's token."""
        headers = {"Authorization": f"Bearer {self.tokens[role]}"} if self.tokens else {}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=TIMEOUT, verify=tls())

    def post(self, body: str, *, headers: Mapping[str, str] | None = None, **fields: Any) -> httpx2.Response:
        """`POST /message`."""
        with self.client() as client:
            return client.post("/message", json={"body": body, **fields}, headers=headers)

    def ask(self, body: str, **fields: Any) -> str:
        """The answer to a message."""
        response = self.post(body, **fields)
        assert response.status_code == 200, response.text
        return str(response.json()["response"])

    def task(self, task_id: str) -> dict[str, Any]:
        """The record of a task."""
        with self.client() as client:
            response = client.get("/task", params={"task_id": task_id})
            assert response.status_code == 200, response.text
            return dict(response.json())
