"""Starts execution environments: forks them off a process that has imported what all functions need.

That makes a cold start, which imports a second's worth of packages, a matter of milliseconds, much like a snapshot on
AWS does; the handler's own module and the runtime client are imported after the fork. It runs by its path, in the
functions' own interpreter and with their import path, so it may import nothing of ours.

Reads orders from its standard input, a JSON object per line, and answers likewise on its standard output:

    {"start": "7", "handler": "handlers.turn.handler", "folder": …, "environment": {…}, "log": …}
    {"kill": "7"}
    → {"ended": "7", "status": -9}

It ends with its standard input, and takes all of them along.
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
    """Import the modules as far as they are there, then do as ordered."""
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
    orders = b""
    while True:
        for key, _ in selector.select():
            if key.fd == reading:
                os.read(reading, 4096)
                reap()
                continue
            received = os.read(0, 1 << 16)
            if not received:
                end()
            *lines, orders = (orders + received).split(b"\n")
            for line in lines:
                obey(json.loads(line))


def obey(order: dict[str, Any]) -> None:
    """Start a process, or kill one."""
    if "start" in order:
        pid = os.fork()
        if pid == 0:
            become(order)
        CHILDREN[pid] = order["start"]
        return
    for pid, name in CHILDREN.items():
        if name == order["kill"]:
            os.kill(pid, signal.SIGKILL)


def reap() -> None:
    """Tell of the processes that have ended."""
    while CHILDREN:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        answer = {"ended": CHILDREN.pop(pid), "status": os.waitstatus_to_exitcode(status)}
        os.write(1, json.dumps(answer).encode() + b"\n")


def end() -> NoReturn:
    """Kill all that still run."""
    for pid in CHILDREN:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def become(order: dict[str, Any]) -> NoReturn:
    """Be an execution environment: run the Lambda runtime client on the handler until the process is killed."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for old, new in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(old, new)
        os.closerange(3, 256)
        os.environ.clear()
        os.environ.update(order["environment"])
        time.tzset()
        os.chdir(order["folder"])
        sys.path.insert(0, order["folder"])
        sys.argv = ["awslambdaric", order["handler"]]
        from awslambdaric.__main__ import main as run  # type: ignore[import-untyped]

        run(sys.argv)
        code = 0
    except SystemExit as done:
        code = done.code if isinstance(done.code, int) else 1
    except BaseException:  # noqa: BLE001 - the process ends here, and nothing must run that belongs to its parent
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
