"""Starts execution environments by forking a process that has imported the packages of all functions.

So a cold start takes milliseconds instead of a second, much like a snapshot on AWS; the handler's module and the
runtime client are imported after the fork. This script runs in the functions' interpreter with their import path, so
it must not import MAIL.

It reads commands from standard input, one JSON object per line, and writes events to standard output:

    {"start": "7", "handler": "handlers.turn.handler", "folder": …, "environment": {…}, "log": …}
    {"kill": "7"}
    → {"ended": "7", "status": -9}

When standard input ends, it kills its children and exits.
"""

import gc
import importlib
import json
import os
import selectors
import signal
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

CHILDREN: dict[int, str] = {}


def main(preload: list[str]) -> None:
    """Import the available modules, then process commands."""
    for name in preload:
        with suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(reading, selectors.EVENT_READ)
    commands = b""
    while True:
        for key, _ in selector.select():
            if key.fd == reading:
                os.read(reading, 4096)
                reap()
                continue
            received = os.read(0, 1 << 16)
            if not received:
                end()
            *lines, commands = (commands + received).split(b"\n")
            for line in lines:
                execute(json.loads(line))


def execute(command: dict[str, Any]) -> None:
    """Start or kill a process."""
    if "start" in command:
        pid = os.fork()
        if pid == 0:
            become(command)
        CHILDREN[pid] = command["start"]
        return
    for pid, name in CHILDREN.items():
        if name == command["kill"]:
            os.kill(pid, signal.SIGKILL)


def reap() -> None:
    """Report the processes that have ended."""
    while CHILDREN:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        answer = {"ended": CHILDREN.pop(pid), "status": os.waitstatus_to_exitcode(status)}
        os.write(1, json.dumps(answer).encode() + b"\n")


def end() -> NoReturn:
    """Kill all children and exit."""
    for pid in CHILDREN:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def become(command: dict[str, Any]) -> NoReturn:
    """Run the Lambda runtime client on the handler, as an execution environment, until the process is killed."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(old, new)
        os.closerange(3, 256)
        os.environ.clear()
        os.environ.update(command["environment"])
        time.tzset()
        os.chdir(command["folder"])
        sys.path.insert(0, command["folder"])
        sys.argv = ["awslambdaric", command["handler"]]
        from awslambdaric.__main__ import main as run  # type: ignore[import-untyped]

        run(sys.argv)
        code = 0
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    except BaseException:  # noqa: BLE001 - the process exits here, without running its parent's cleanup
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
