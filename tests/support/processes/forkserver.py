"""Python processes that start within milliseconds: forks of one that has everything imported.

process = start([sys.executable, "-m", "mail.cli", "server"], cwd=folder, env=environ, stdout=file, stderr=file)

The forked process is as `python` would have started it: arguments, folder, environment, streams, session and exit code
are its own. Only its imports are shared. One fork server, `python -m support.processes.forkserver`, serves all tests of
a test process, or those of all (`share`). A fork of it, which has also imported litellm, serves processes that will
call a model.

Why it is here: by itself, a command such as `mail ping` takes 0.6 s of CPU time, a server 1.2 s, and a process that
calls a model several. The full tier starts about 800 of them. On two cores that would be four minutes more, and the
tier would take longer than its ten.
"""

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO

IMPORTED = (
    "anyio._backends._asyncio",
    "botocore.session",
    "encodings.idna",
    "h2.connection",
    "httpcore2",
    "httpx2",
    "mail.adapters.aws.rows",
    "mail.adapters.local.workers",
    "mail.adapters.sqlite.backend",
    "mail.agentmail",
    "mail.cli.app",
    "mail.client",
    "mail.examples.rule_based",
    "mail.http.app",
    "mail.server.app",
    "mail.server.process",
    "prompt_toolkit",
    "pydantic.v1",
    "sse_starlette",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
)
"""What most processes of the tests import: what the `mail` command does, and the server."""

MODELS = "-models"
"""What is added to the name of the socket, for processes that will call a model."""

CALLS_MODELS = frozenset({"OLLAMA_API_BASE", "OPENAI_API_BASE", "OPENAI_API_KEY", "--model"})
"""Environment variables and arguments of processes that will call a model or look it up, and so import litellm, which
takes seconds.
"""

NUMBER = 16
"""Bytes of a number that the fork server sends."""

Stream = int | IO[str] | IO[bytes]

SHARED = "MAIL_TEST_FORK_SERVER"
"""Names the socket of a fork server for all test processes: importing everything takes six seconds of CPU time."""

_STARTED: list[tuple[int, Path]] = []
"""This test process's own fork server: who started it, and its socket."""


class ForkedProcess:
    """A process forked by the fork server, with the methods of `subprocess.Popen` that tests use.

    Attributes:
        pid: its process id.
        returncode: its exit code, or the negative number of the signal that ended it; None while it runs.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.returncode: int | None = None
        self._connection = connection
        self.pid = int(connection.recv(NUMBER, socket.MSG_WAITALL))

    def poll(self) -> int | None:
        """Return the exit code if the process has ended."""
        return self._wait(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process to end and return its exit code."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to the process unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill the process."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask the process to end."""
        self.send_signal(signal.SIGTERM)

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            self._connection.settimeout(timeout)
            try:
                status = self._connection.recv(NUMBER)
            except (TimeoutError, BlockingIOError):
                return None
            self.returncode = os.waitstatus_to_exitcode(int(status))
            self._connection.close()
        return self.returncode


def start(
    command: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = subprocess.DEVNULL,
    terminal: bool = False,
) -> ForkedProcess:
    """Start `python -m MODULE …` or `python FILE …` and return the process.

    Args:
        command: this Python, `-m` and a module or a file, and the program's own arguments.
        cwd: the folder in which the process works.
        env: all of its environment.
        stdin: a file, its number, or `subprocess.DEVNULL`; the same for `stdout` and `stderr`.
        terminal: makes `stdin` the controlling terminal of a new session.
    """
    assert command[0] == sys.executable, f"not this Python: {command}"
    ours = {name for name in env if name.startswith("PYTHON") and env[name] != os.environ.get(name)}
    ours -= {"PYTHONPATH", "PYTHONUNBUFFERED"}
    assert not ours, f"{ours} only count for a Python that starts: use subprocess"
    order = {"arguments": command[1:], "cwd": str(cwd), "env": dict(env), "terminal": terminal}
    with open(os.devnull, "r+b") as nowhere:
        numbers = [
            nowhere.fileno()
            if each == subprocess.DEVNULL
            else each
            if isinstance(each, int)
            else each.fileno()
            for each in (stdin, stdout, stderr)
        ]
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(_address(CALLS_MODELS.isdisjoint((*env, *command))))
        socket.send_fds(connection, [b"f"], numbers)
        connection.sendall(json.dumps(order).encode() + b"\n")
        return ForkedProcess(connection)


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: Path | None = None,
    given: str = "",
    timeout: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """Run a Python process to its end, as `subprocess.run` does with its output captured as text."""
    with tempfile.TemporaryFile() as typed, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        typed.write(given.encode())
        typed.seek(0)
        process = start(command, cwd=cwd or Path.cwd(), env=env, stdin=typed, stdout=out, stderr=err)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8").replace("\r\n", "\n"))
    return subprocess.CompletedProcess(command, code, *texts)


_COMMAND = """\
#!{python} -IS
import json, os, socket, sys
order = {{"arguments": ["-m", {module!r}, *sys.argv[1:]], "cwd": os.getcwd()}}
order |= {{"env": dict(os.environ), "terminal": False}}
connection = socket.socket(socket.AF_UNIX)
connection.connect({address!r})
socket.send_fds(connection, [b"f"], [0, 1, 2])
connection.sendall(json.dumps(order).encode() + b"\\n")
connection.recv({NUMBER}, socket.MSG_WAITALL)
sys.exit(os.waitstatus_to_exitcode(int(connection.recv({NUMBER}, socket.MSG_WAITALL))))
"""


def write_command(file: Path, module: str, env: Mapping[str, str]) -> None:
    """Write an executable file that runs a module through this process's fork server, in an environment like `env`."""
    address = _address(CALLS_MODELS.isdisjoint(env))
    text = _COMMAND.format(python=sys.executable, module=module, address=address, NUMBER=NUMBER)
    file.write_text(text, encoding="utf-8")
    file.chmod(0o755)


def share() -> None:
    """Start a fork server for the tests of all processes that this one starts."""
    os.environ[SHARED] = str(_start())


def _address(is_plain: bool) -> str:
    """Return the socket of the fork server, or of its fork with litellm; the first call may have to start both."""
    address = os.environ.get(SHARED)
    if address is None:
        if not _STARTED or _STARTED[0][0] != os.getpid():
            _STARTED[:] = [(os.getpid(), _start())]
        address = str(_STARTED[0][1])
    return f"{address}{'' if is_plain else MODELS}"


def _start() -> Path:
    """Start a fork server, and return its socket. It ends with this process, however that ends."""
    folder = tempfile.TemporaryDirectory(prefix="forkserver-")
    address = Path(folder.name) / "socket"
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    alive, closed_at_the_end = os.pipe()
    with socket.socket(socket.AF_UNIX) as plain, socket.socket(socket.AF_UNIX) as models:
        for listener, name in ((plain, str(address)), (models, f"{address}{MODELS}")):
            listener.bind(name)
            listener.listen(128)
        passed = [plain.fileno(), models.fileno(), alive]
        server = subprocess.Popen(
            [sys.executable, "-m", "support.processes.forkserver", *map(str, passed)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            stdin=subprocess.DEVNULL,
            pass_fds=passed,
        )
    os.close(alive)

    def stop(starter: int) -> None:
        if os.getpid() == starter:
            os.close(closed_at_the_end)
            server.kill()
            server.wait()
            folder.cleanup()

    atexit.register(partial(stop, os.getpid()))
    return address


def _serve(plain: socket.socket, models: socket.socket, alive: int) -> None:
    """Fork for each connection until `alive` is closed; returns in the forked processes, once each is what was
    ordered.
    """
    from mail.http.routes import load_routers

    for module in IMPORTED:
        importlib.import_module(module)
    load_routers()
    _load_commands()
    _settle()
    if os.fork():
        models.close()
        _fork_for_each(plain, alive)
        return
    plain.close()
    if select.select([models, alive], [], [])[0] == [models]:  # type: ignore[type-var]
        importlib.import_module("mail.factories.ports").preload()
        _settle()
    _fork_for_each(models, alive)


def _fork_for_each(listener: socket.socket, alive: int) -> None:
    """Fork for each connection, and tell it how the process ended; returns in the forked processes."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    running: dict[int, socket.socket] = {}
    while alive not in (ready := select.select([listener, alive, reading], [], [])[0]):  # type: ignore[type-var]
        if reading in ready:
            os.read(reading, 4096)
            for number in list(running):
                ended, status = os.waitpid(number, os.WNOHANG)
                if ended:
                    with running.pop(number) as connection:
                        _tell(connection, status)
        if listener in ready:
            connection, _ = listener.accept()
            if child := os.fork():
                _tell(connection, child)
                running[child] = connection
                continue
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in (listener, *running.values()):
                each.close()
            for number in (alive, reading, writing):
                os.close(number)
            _obey(connection)
            return
    os._exit(0)


def _tell(connection: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # a test process that has ended
        connection.sendall(f"{number:{NUMBER}}".encode())


def _load_commands() -> None:
    """Load every command of `mail`, which each process would load by itself."""
    import click

    from mail.cli.app import app

    for name in app.list_commands(click.Context(app)):
        app.get_command(click.Context(app), name)


def _settle() -> None:
    """Keep what was imported out of every later garbage collection."""
    gc.collect()
    gc.freeze()
    assert threading.active_count() == 1, "a thread would be missing in what is forked"


def _obey(connection: socket.socket) -> None:
    """Become the process that was ordered."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    with connection, connection.makefile("r") as lines:
        order = json.loads(lines.readline())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if order["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # even where the tests run in the background
    os.chdir(order["cwd"])
    os.environ.clear()
    os.environ.update(order["env"])
    unbuffered = bool(order["env"].get("PYTHONUNBUFFERED"))
    for number, (name, errors) in enumerate(
        {"stdin": None, "stdout": None, "stderr": "backslashreplace"}.items()
    ):
        mode = "w" if number else "r"
        file = open(number, mode, encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115 - as long as we live
        if isinstance(file, io.TextIOWrapper) and number:
            file.reconfigure(line_buffering=number == 2 or os.isatty(1), write_through=unbuffered)
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)
    sys.argv[:] = order["arguments"]


def _become() -> None:
    """Run what `sys.argv` names, as `python` does."""
    first, *rest = sys.argv
    given = os.environ.get("PYTHONPATH")
    theirs = [
        os.getcwd() if first == "-m" else str(Path(first).parent),
        *(given.split(os.pathsep) if given else ()),
    ]
    sys.path[:] = [*theirs, *PATH]
    if first == "-m":
        sys.argv[:] = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(first, run_name="__main__")


def _run() -> int:
    """Do so, show what nothing has caught, and return the exit code."""
    try:
        _become()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return (end.code or 0) & 0xFF
        print(end.code, file=sys.stderr)
        return 1
    except Exception:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def _end(code: int) -> None:
    """End as Python does, but free no object: that would copy the memory that is shared with the fork server."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # Python reports it
    os._exit(code)


if __name__ == "__main__":
    PATH = sys.path[1 + len(os.environ["PYTHONPATH"].split(os.pathsep)) :]
    listening, for_models, starter = map(int, sys.argv[1:])
    _serve(socket.socket(fileno=listening), socket.socket(fileno=for_models), starter)
    _end(_run())
