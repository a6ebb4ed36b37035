"""A table that refuses transactions for a while: turns are committed later, and no model is paid twice."""

import asyncio
from pathlib import Path

import pytest
from aws_client import Crowd, answer
from aws_outage import Outage, Reply, Request, throttled
from aws_swarm import make_project
from support.processes.local_aws import needs_ministack
from support.processes.projects import entry, supervisor

from mail.local_aws.system import LocalAws

TURN_SECONDS = 8
REFUSED_SECONDS = 20.0
RECORD_VARIABLE = "TEST_RECORD"

AGENT = f'''
"""An agent whose model takes its time; each call is written down."""

import asyncio
import os

from mail.factories.rules import complete, rule_based


@rule_based
async def make(view):
    with open(os.environ["{RECORD_VARIABLE}"], "a") as record:
        record.write(view.mail.body + "\\n")
    await asyncio.sleep({TURN_SECONDS})
    return [complete("paid")]
'''

pytestmark = [pytest.mark.soak, needs_ministack, pytest.mark.timeout(300)]


def commits_refused(request: Request) -> Reply | None:
    return throttled(request) if request.operation == "TransactWriteItems" else None


async def test_twenty_seconds_of_refused_transactions_cost_no_model_call(tmp_path: Path) -> None:
    template = make_project(tmp_path, entry("slow", supervisor("agent", "slow:make")), {"slow": AGENT})
    record = tmp_path / "record.txt"
    names = [f"task {n}" for n in range(10)]
    outage = Outage(commits_refused)
    with outage.serve() as url:
        environment = {RECORD_VARIABLE: str(record), "AWS_ENDPOINT_URL_DYNAMODB": url}
        system = LocalAws(template, environment=environment)
        async with system, Crowd(system) as crowd:
            outage.target = system.endpoint
            for name in names:
                await crowd.submit(name, name)
            async with asyncio.timeout(60):
                while not record.exists() or len(record.read_text().splitlines()) < len(names):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            outage.begin(REFUSED_SECONDS)
            records = await crowd.finish(names, seconds=120)
    assert [answer(each) for each in records] == ["task_complete: paid"] * len(names)
    assert outage.hit["TransactWriteItems"] > len(names)
    assert sorted(record.read_text().splitlines()) == names
