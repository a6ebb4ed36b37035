"""An MCP server that speaks over stdio and starts at once, as it does without the SDK: `python -IS mcp_program.py
[JOURNAL]`.

The journal is a file with a line for each call of `hang`. With `--stubborn` the program doesn't end when its input
does.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

COMMAND = {"command": sys.executable, "args": ["-IS", __file__]}
"""The program, as the setting of a server."""

JOURNAL = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), None)

_cancelled: dict[int | str, threading.Event] = {}


class Cancelled(Exception):
    """The client needs no answer any more."""


def add(cancelled: threading.Event, a: int, b: int) -> dict[str, int]:
    return {"total": a + b}


def variable(cancelled: threading.Event, name: str) -> str:
    return f"{os.environ.get(name)} in {os.getcwd()}"


def process(cancelled: threading.Event) -> str:
    return str(os.getpid())


def slow(cancelled: threading.Event, seconds: float) -> str:
    cancelled.wait(seconds)
    return "at last"


def fail(cancelled: threading.Event, reason: str) -> str:
    raise ValueError(f"no luck: {reason}")


def leave(cancelled: threading.Event) -> str:
    os._exit(1)


def freeze(cancelled: threading.Event) -> str:
    """Answer nothing any more."""
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)  # other threads may run on for a moment
    return "thawed"


def hang(cancelled: threading.Event, text: str) -> str:
    """Wait for a minute at the first call."""
    assert JOURNAL is not None
    with open(JOURNAL, "a+") as journal:
        print("begin", text, file=journal, flush=True)
        journal.seek(0)
        if len(journal.readlines()) == 1 and cancelled.wait(60):
            print("cancelled", text, file=journal)
            raise Cancelled
    return f"{text} is done"


TOOLS: dict[str, Callable[..., Any]] = {
    each.__name__: each for each in (add, variable, process, slow, fail, leave, freeze, hang)
}
TOOLS["hang_again"] = hang


def result_of(method: str, given: dict[str, Any], number: int | str) -> dict[str, Any]:
    """Return the result of a request."""
    match method:
        case "initialize":
            about = {"name": "program", "version": "1"}
            return {
                "protocolVersion": given["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": about,
            }
        case "ping":
            return {}
        case "tools/list":
            hints = {"hang_again": {"annotations": {"idempotentHint": True}}}
            schema = {"inputSchema": {"type": "object"}}
            return {"tools": [{"name": name, **schema, **hints.get(name, {})} for name in TOOLS]}
        case "tools/call":
            return call(given["name"], given.get("arguments") or {}, number)
    raise NotImplementedError(method)


def call(tool: str, arguments: dict[str, Any], number: int | str) -> dict[str, Any]:
    """Call a tool."""
    try:
        value = TOOLS[tool](_cancelled[number], **arguments)
    except ValueError as error:
        return {"content": [{"type": "text", "text": str(error)}], "isError": True}
    text = value if isinstance(value, str) else json.dumps(value)
    return {
        "content": [{"type": "text", "text": text}],
        **({} if isinstance(value, str) else {"structuredContent": value}),
    }


def answer(request: dict[str, Any]) -> None:
    """Answer a request, unless it is cancelled meanwhile."""
    number = request["id"]
    try:
        outcome = {"result": result_of(request["method"], request.get("params", {}), number)}
    except NotImplementedError:
        outcome = {"error": {"code": -32601, "message": "no such method"}}
    except Cancelled:
        return
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": number, **outcome}) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Answer what comes in, until the input ends."""
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            _cancelled[message["params"]["requestId"]].set()
        elif "id" in message:
            _cancelled[message["id"]] = threading.Event()
            threading.Thread(target=answer, args=(message,), daemon=True).start()
    if "--stubborn" in sys.argv:
        time.sleep(60)


if __name__ == "__main__":
    main()
