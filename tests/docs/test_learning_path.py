"""The learning path as a newcomer takes it: its nine pages in order, typed into a shell, in one environment.

Everything is installed as the pages say, in virtual environments of their own; a wheel of this checkout stands in for
the package on the index, and a stub for the provider of the models. Only the ports differ.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx2
import pytest
from support.processes.document_samples import ROOT, Block, read_blocks
from support.services.llm_stub import LLMStub
from test_documented_commands import MODELS, expect, read_commands

from mail.local_aws.processes import free_port

pytestmark = pytest.mark.soak

PAGES = sorted((ROOT / "docs" / "learn").glob("*.md"))
SECONDS = 600
"""Until something that should have happened counts as hung; pip downloads in it."""

_TOKEN = re.compile(r"^  (admin|user|agent) +(mail_\S+)$", re.MULTILINE)
_PLACEHOLDER = re.compile(r"mail_(admin|user|agent)_\.\.\.")
_FORGOTTEN = ("MAIL_", "SWARM_", "PYTEST", "PYTHON", "XDG_", "AWS_", "VIRTUAL_ENV", "OPENAI_", "ANTHROPIC_")


@pytest.mark.timeout(3600)
def test_every_step_works_as_typed(newcomer: "Newcomer") -> None:
    for page in PAGES:
        newcomer.take(page)
    assert [page.name[0] for page in PAGES] == list("123456789")
    assert newcomer.answers > 20, "most commands have an output on their page"


class Newcomer:
    """Somebody with a shell, whose servers run in other terminals, in the folder and the environment of their start."""

    def __init__(self, home: Path, environ: Mapping[str, str], stub: LLMStub) -> None:
        self.home = self.folder = home
        self.stub = stub
        self.ports = {"8000": free_port(), "8001": free_port()}
        self.environ = {**environ, "MAIL_SERVER": f"http://localhost:{self.ports['8000']}"}
        self.servers: list[Server] = []
        self.output = ""
        self.answers = 0

    def take(self, page: Path) -> None:
        self.stub.reset()
        self.stub.script(*MODELS.get(page.name, ()))
        for block in read_blocks(page):
            self._do(block)
        assert (self.stub.complaints, self.stub.is_done) == ([], True)

    def _do(self, block: Block) -> None:
        if re.search(r"empty\s+folder", block.before):
            self.folder = self.home / f"empty-{len(self.servers)}"
            self.folder.mkdir()
        if block.file is not None:
            (self.folder / block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "sh" or (block.language == "bash" and "pip install" in block.text):
            self.output = ""
            for command in read_commands(block.text):
                self._type(command)
        elif block.language in ("text", "json"):
            self.answers += 1
            expect(block.text, self.output)

    def _type(self, command: str) -> None:
        command = re.sub(r"\b(8000|8001)\b", lambda port: str(self.ports[port[0]]), command)
        command = _PLACEHOLDER.sub(lambda role: self._server_of(command).tokens[role[1]], command)
        if command.startswith("mail local-aws"):
            self._serve(f"{command} --port {self.ports['8000']} --stream-port {self.ports['8001']}")
        elif command.startswith("mail server"):
            port = "" if "--port" in command else f" --port {self.ports['8000']}"
            self._serve(command + port)
        else:
            self._run(command)

    def _run(self, command: str) -> None:
        state = self.home / "state"
        script = f'{command}\nstatus=$?\nenv -0 >"{state}"\npwd >"{state}.folder"\nexit $status'
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        assert '"detail"' not in done.stdout, f"{command}\n{done.stdout}"
        self.output += done.stdout + "\n"
        self.folder = Path((self.home / "state.folder").read_text(encoding="utf-8").rstrip("\n"))
        lines = state.read_text(encoding="utf-8").rstrip("\0").split("\0")
        self.environ = dict(line.split("=", 1) for line in lines)

    def _serve(self, command: str) -> None:
        ports = {port for port in self.ports.values() if str(port) in command.split()}
        for server in self.servers:
            if server.ports & ports:
                server.stop()
        server = Server(command, self.folder, self.environ, ports)
        self.servers.append(server)
        server.wait_until_ready()
        self.output += server.output

    def _server_of(self, command: str) -> "Server":
        """Return the server whose swarm a comment names, or the last one."""
        named = [server for server in self.servers if server.swarm in command.split()]
        return (named or self.servers)[-1]

    def close(self) -> None:
        for server in self.servers:
            server.stop()


class Server:
    """A server in a terminal of its own."""

    def __init__(self, command: str, folder: Path, environ: Mapping[str, str], ports: set[int]) -> None:
        self.ports = ports
        self._shown = b""
        terminal, inside = os.openpty()
        termios.tcsetwinsize(inside, (50, 200))
        self.process = subprocess.Popen(
            ["bash", "-c", f"exec {command}"],
            cwd=folder,
            env={**environ, "PYTHONUNBUFFERED": "1", "NO_COLOR": "1", "TERM": "dumb"},
            stdin=subprocess.DEVNULL,
            stdout=inside,
            stderr=inside,
        )
        os.close(inside)
        threading.Thread(target=self._read, args=(terminal,), daemon=True).start()

    def _read(self, terminal: int) -> None:
        with (
            suppress(OSError),
            os.fdopen(terminal, "rb", buffering=0) as shown,
        ):  # OSError: the process has ended
            while piece := shown.read(65_536):
                self._shown += piece

    @property
    def output(self) -> str:
        return self._shown.decode().replace("\r\n", "\n")

    @property
    def tokens(self) -> dict[str, str]:
        return dict(_TOKEN.findall(self.output))

    @property
    def swarm(self) -> str:
        """The name of its swarm, if it says so."""
        found = re.search(r"^Swarm (\S+) listens", self.output, re.MULTILINE)
        return found[1] if found else ""

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + SECONDS
        while not (self._answers() and "Ctrl+C stops it" in self.output):
            assert self.process.poll() is None, self.output
            assert time.monotonic() < deadline, self.output
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return all(httpx2.get(f"http://localhost:{port}/health", timeout=5) for port in self.ports)
        except httpx2.TransportError:
            return False

    def stop(self) -> None:
        """Press Ctrl+C."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(60)


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[Newcomer]:
    if shutil.which("curl") is None or shutil.which("bash") is None:
        pytest.skip("the pages use bash and curl")
    if sys.version_info[:2] != (3, 12):
        pytest.skip("mail build needs Python 3.12")
    with ExitStack() as stack:
        stub = stack.enter_context(LLMStub())
        person = Newcomer(tmp_path, {**_environment(tmp_path), **stub.environ}, stub)
        stack.callback(person.close)
        yield person


def _environment(home: Path) -> dict[str, str]:
    """Return the environment of a fresh account, where `python3` is this Python, and pip finds this checkout."""
    wheels, programs = home / ".wheels", home / ".programs"
    pip = [sys.executable, "-m", "pip", "--quiet"]
    build = ["wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(wheels), str(ROOT)]
    subprocess.run([*pip, *build], check=True)
    programs.mkdir()
    (programs / "python3").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    (programs / "python3").chmod(0o755)
    ours = str(Path(sys.executable).parent)
    path = [str(programs), *(each for each in os.environ["PATH"].split(os.pathsep) if each != ours)]
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FORGOTTEN)}
    if (configured := Path.home() / ".config" / "pip" / "pip.conf").exists():
        kept.setdefault("PIP_CONFIG_FILE", str(configured))
    cache = subprocess.run([*pip, "cache", "dir"], check=True, capture_output=True, encoding="utf-8")
    return {
        **kept,
        "PIP_CACHE_DIR": cache.stdout.strip(),
        "PIP_FIND_LINKS": f"{os.environ.get('PIP_FIND_LINKS', '')} {wheels}".strip(),
        "PIP_NO_INPUT": "1",
        "HOME": str(home),
        "PATH": os.pathsep.join(path),
    }
