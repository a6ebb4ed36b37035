"""The functions behind function URLs, as servers, and the part that the Lambda Web Adapter plays."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from function_stage import Stage

from mail.adapters.aws.documents import DynamoDBDocuments
from mail.core.task.documents import Kind
from mail.core.task.stored import read_permits
from mail.local_aws.processes import LOOPBACK, KeptProcess, free_port, listens, system_environment

TIMEOUT = 60.0
LIFE = 900.0
"""Seconds that an invocation may take."""

STREAM_SECONDS = 2
"""Seconds after which a stream ends that can be resumed."""


@contextmanager
def served(stage: Stage, name: str, log: Path, **variables: str) -> Iterator[str]:
    """Run a function as `layers/run.sh` starts it, with further variables; yields the address."""
    function = stage.function(name)
    port = free_port()
    server = ("-m", "uvicorn", f"handlers.{name}:app", "--host", LOOPBACK, "--port", str(port))
    path = ":".join(map(str, (function.root, *function.interpreter.path)))
    with log.open("wb") as output:
        process = KeptProcess(
            [str(function.interpreter.python), *server],
            env={
                **system_environment(),
                **stage.variables(name),
                **variables,
                "MAIL_STREAM_SECONDS": str(STREAM_SECONDS),
                "PYTHONPATH": path,
            },
            cwd=function.root,
            output=output,
        )
    with process:
        process.wait_until(lambda: listens(port), seconds=TIMEOUT, name="uvicorn")
        yield f"http://{LOOPBACK}:{port}"


def passed_on(event: dict[str, Any], url: str, *, life: float = LIFE, **fields: Any) -> dict[str, Any]:
    """The request that the adapter makes of an event; some fields of its body may be others."""
    context = {"request_id": event["requestContext"]["requestId"], "deadline": (time.time() + life) * 1000}
    return {
        "method": event["requestContext"]["http"]["method"],
        "url": f"{url}{event['rawPath']}?{event['rawQueryString']}",
        "headers": {
            **{name: value for name, value in event["headers"].items() if name != "content-length"},
            "x-amzn-lambda-context": json.dumps(context),
            "x-amzn-request-context": json.dumps(event["requestContext"]),
        },
        "content": json.dumps({**json.loads(event["body"]), **fields}),
        "timeout": TIMEOUT,
    }


def open_streams(stage: Stage) -> int:
    """How many streams the caller of the sample event has open, by the table."""
    documents = DynamoDBDocuments(stage.table.client, stage.table.table)
    caller = "streams/user:alice"
    found = asyncio.run(documents.get(Kind.PERMITS, caller))
    return (
        0
        if found is None
        else sum(each.calls for each in read_permits(found.fields["record"]).running.values())
    )
