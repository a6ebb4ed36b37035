"""A function that dies or freezes in a turn: with the times of the template, the turn runs again within a minute.

Its queue sees to that, without the sweeper.
"""

import asyncio
import json
import os
import re
import time
from collections import Counter
from itertools import batched
from pathlib import Path
from signal import SIGKILL, SIGSTOP

import pytest
from aws_client import Crowd, answer
from aws_swarm import make_project
from support.plugins.tiers import sized
from support.processes.local_aws import needs_ministack
from support.processes.projects import entry, supervisor

from mail.adapters.aws.queue import SQSQueue
from mail.adapters.aws.store import DynamoDBStore
from mail.core.decisions.submit import Submission
from mail.core.engine.attempts import ENDED
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.task import TaskStatus
from mail.local_aws.ministack import LocalAccount
from mail.local_aws.system import LocalAws
from mail.testing.agents import build_swarm, turns

ANN = Principal.parse("user:ann@deadly")
RECORD_VARIABLE = "TEST_RECORD"
TASKS = {
    "dies at once": (0.0, SIGKILL),
    "dies": (4.0, SIGKILL),
    "freezes": (4.0, SIGSTOP),
    "dies after some renewals": (15.0, SIGKILL),
}
"""When the function of a task's first turn gets which signal. A turn is renewed each third of its lease."""

TAKEN_OVER_SECONDS = 60.0
"""The budget of `docs/performance.md`."""

DEADLY = f'''
"""An agent whose first turn of each task kills its function."""

import asyncio
import os
import re
import time

from mail.factories.rules import complete, rule_based


@rule_based
async def make(view):
    name, seconds, signal = re.search(r"(.*): ([0-9.]+) ([0-9]+)", view.mail.body).groups()
    record = os.environ["{RECORD_VARIABLE}"] + name
    if not os.path.exists(record):
        await asyncio.sleep(float(seconds))
        with open(record, "w") as died:
            died.write(repr(time.time()))
        os.kill(os.getpid(), int(signal))
    with open(record, "a") as begun:
        begun.write(" " + repr(time.time()))
    await asyncio.sleep(5)  # a watcher looks a few times meanwhile
    return [complete("alive")]
'''

SWARM = entry("deadly", supervisor("agent", "deadly:make"))

SWEEPS = re.compile(r"(-sweeper\n\s+ScheduleExpression: )rate\(1 minute\)")

pytestmark = [pytest.mark.soak, needs_ministack, pytest.mark.timeout(700)]


async def test_a_function_that_dies_or_freezes_is_replaced(tmp_path: Path) -> None:
    template = make_project(tmp_path, SWARM, {"deadly": DEADLY})
    text, found = SWEEPS.subn(r"\1rate(1 day)", template.read_text(encoding="utf-8"))
    assert found == 1
    template.write_text(text, encoding="utf-8")
    prefix = f"{tmp_path}{os.sep}record "
    async with LocalAws(template, environment={RECORD_VARIABLE: prefix}) as system, Crowd(system) as crowd:
        for name, (seconds, signal) in TASKS.items():
            await crowd.submit(name, f"{name}: {seconds} {int(signal)}")
        records = await crowd.finish(list(TASKS), seconds=150)
        log = (system.log_folder / "TurnFunction.log").read_text(encoding="utf-8")
    assert [answer(record) for record in records] == ["task_complete: alive"] * len(TASKS)
    for name in TASKS:
        died, *begun = map(float, Path(f"{prefix}{name}").read_text().split())
        assert len(begun) == 1, name
        print(f"{name}: taken over after {begun[0] - died:.1f} s")
        assert begun[0] - died <= TAKEN_OVER_SECONDS, name
    assert "counts as dead" in log or "TakenOverTurns" in log


@pytest.mark.timeout(2400)
async def test_one_that_always_ends_its_function_is_set_aside(tmp_path: Path) -> None:
    """Each of its five functions is missed when the lease has expired; the tasks beside it are answered, once each."""
    agent = DEADLY
    for line, instead in {
        "if not os.path.exists(record):": 'if name == "poison":',
        'open(record, "w")': 'open(record, "a")',
        "died.write(repr(time.time()))": 'died.write("died\\n")',
        "await asyncio.sleep(5)": "",
    }.items():
        assert agent.count(line) == 1
        agent = agent.replace(line, instead)
    template = make_project(tmp_path, SWARM, {"deadly": agent})
    prefix = f"{tmp_path}{os.sep}record "
    healthy = sized(fast=3, full=3, soak=1000)
    local = LocalAws(
        template,
        parameters={"TurnConcurrency": "50"},
        environment={RECORD_VARIABLE: prefix},
        concurrency=6,
    )
    begun = time.monotonic()
    async with local as system, Crowd(system) as crowd:
        runtime = runtime_on(system)
        store = runtime.store
        await crowd.submit("poison", f"poison: 0.1 {int(SIGKILL)}")
        for names in batched([f"task {n}" for n in range(healthy)], 20):
            posts = (runtime.submit(ANN, Submission(body=f"{name}: 0 0", task_id=name)) for name in names)
            await asyncio.gather(*posts)
        print(f"posted after {time.monotonic() - begun:.0f} s")
        while len((await store.list_tasks(str(ANN), status=TaskStatus.RUNNING, limit=1)).tasks):  # noqa: ASYNC110
            await asyncio.sleep(2)
        print(f"answered after {time.monotonic() - begun:.0f} s")
        (poison,) = await crowd.finish(["poison"], seconds=900)
        print(f"set aside after {time.monotonic() - begun:.0f} s")
        tasks = (await store.list_tasks(str(ANN), status=TaskStatus.COMPLETED, limit=healthy)).tasks
        responses = [
            response
            for some in batched(tasks, 20)
            for response in await asyncio.gather(*(store.read_response(task.key, 1) for task in some))
        ]
    assert [response.message.body for response in responses if response] == ["alive"] * healthy
    runs = Counter(path.name for path in tmp_path.glob("record task *") for _ in path.read_text().split())
    assert set(runs.values()) == {1}
    died = Path(f"{prefix}poison").read_text().split()
    print(f"{len(died)} functions died")
    assert len(died) == 5
    assert ENDED in poison["events"][-1]["data"]
    (dead,) = [event for event in poison["events"] if event["event"] == "dead_letter"]
    assert json.loads(dead["data"])["extra_data"]["attempts"] == 5


def runtime_on(system: LocalAws) -> Runtime:
    """Return a runtime on the table and the queues of a deployment, which posts faster than its functions."""
    account, outputs = LocalAccount(system.endpoint), system.stack.outputs
    store = DynamoDBStore(account.client("dynamodb"), outputs["TableName"], clock=SYSTEM_CLOCK)
    queue = SQSQueue(
        account.client("sqs"), outputs["TurnQueueUrls"].split(","), outputs["DeliveryQueueUrl"], store=store
    )
    return Runtime(build_swarm({"agent": turns()}), store, queue, SYSTEM_CLOCK)
