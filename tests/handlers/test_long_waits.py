"""Actions that finish days later, on functions whose clocks are moved: processes come and go, nothing runs meanwhile.

The clock of a function is moved by the module of its agent, by the seconds of the variable `AHEAD`.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from function_stage import Stage
from support.engines.lambda_runtime import LambdaRuntime
from support.processes.projects import entry, supervisor, write_project

from mail.core.task.task import TaskStatus

DAY = 86_400

SWARM = entry(
    "example-no-proxy",
    supervisor("supervisor", "own_agent:make", actions=["sign"]),
    actions=[
        {"name": "sign", "function": "python::own_agent:sign", "finishes": "later", "timeout": "3d"},
    ],
)

AGENT = """
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from mail import LATER
from mail.core.protocol.clock import SystemClock
from mail.core.turns.context import current_context
from mail.factories.rules import Call, complete, rule_based, wait

AHEAD = timedelta(seconds=float(os.environ.get("AHEAD", "0")))
SystemClock.now = lambda self: datetime.now(UTC) + AHEAD

async def sign(arguments):
    Path(__file__).with_name("tokens").open("a").write(current_context().callback.token + "\\n")
    return LATER

@rule_based
async def make(view):
    if view.mail.sender_type == "user":
        return [Call("sign", {}), Call("sign", {})]
    ends = [mail.body for mail in view.messages if mail.sender_type == "system"]
    return [complete(" ".join(ends))] if len(ends) == 2 else [wait("the other one")]
"""

pytestmark = pytest.mark.soak


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "mail.toml").write_text('[server.swarm]\nname = "example-no-proxy"\nsource = "swarms.json"\n')
    return write_project(tmp_path, SWARM, own_agent=AGENT)


def later(stage: Stage, root: Path, name: str, days: float) -> LambdaRuntime:
    """A new process of a function, so many days later."""
    return stage.start(name, {"AHEAD": str(days * DAY)}, root=root, timeout=300)


def work_off(stage: Stage, root: Path, days: float) -> int:
    """Run what waits in the queues on a new process so many days later; return how many invocations that took."""
    count = 0
    with later(stage, root, "turn", days) as running:
        for record in stage.records():
            assert running.invoke({"Records": [record]}) == {"batchItemFailures": []}
            stage.delete(record)
            count += 1
    return count


def sweep(stage: Stage, root: Path, days: float) -> None:
    with later(stage, root, "sweeper", days) as running:
        running.invoke(stage.event("sweeper"))


def test_one_result_comes_after_two_days_and_the_other_one_never(stage: Stage, root: Path) -> None:
    body = {"body": "sign it", "task_id": "long"}
    asked = stage.request("message", body=body, prefer="respond-async")
    with later(stage, root, "message", 0) as running:
        assert running.invoke(asked)["statusCode"] == 202
    assert work_off(stage, root, 0) >= 1
    first, second = (root / "tokens").read_text().split()
    waits = stage.load("long")
    assert (waits.is_asleep, waits.waits.open_calls) == (True, 2)
    for days in (1, 2):
        sweep(stage, root, days)
        assert work_off(stage, root, days) == 0
    assert stage.load("long") == waits

    def finish(token: str, text: str, days: float) -> dict[str, Any]:
        event = stage.request("message", body={"result": text}, path=f"/callbacks/{token}")
        event["rawPath"] = event["requestContext"]["http"]["path"] = f"/callbacks/{token}"
        event["headers"].pop("authorization", None)
        with later(stage, root, "message", days) as running:
            answer: dict[str, Any] = running.invoke(event)
        return answer

    answer = finish(first, "signed", 2)
    assert answer["statusCode"] == 200, answer
    work_off(stage, root, 2)
    task = stage.load("long")
    assert (task.is_asleep, task.waits.open_calls) == (True, 1)
    sweep(stage, root, 3.01)
    work_off(stage, root, 3.01)
    task = stage.load("long")
    assert (task.status, task.waits.open_calls) == (TaskStatus.COMPLETED, 0)
    shown = stage.ask("task", query="task_id=long")
    assert "sign: signed" in json.dumps(shown["body"])
    assert "its result had not come by" in json.dumps(shown["body"])
    assert finish(second, "too late", 3.02)["statusCode"] == 409
