"""A stack on a restored table: the runbook of docs/going-back.md."""

import asyncio
from pathlib import Path

import pytest
from aws_client import Crowd, answer
from aws_swarm import make_project
from support.processes.local_aws import needs_ministack
from support.processes.projects import entry, supervisor

from mail.adapters.aws.schema import create_table
from mail.local_aws.system import LocalAws

GATE_VARIABLE = "TEST_GATE"

PATIENT = f'''
"""An agent that answers at once, or when a file exists."""

import asyncio
import os

from mail.factories.rules import complete, rule_based


@rule_based
async def make(view):
    gate = os.environ["{GATE_VARIABLE}"]
    open(gate + "-" + view.mail.body, "w").close()
    while view.mail.body == "wait" and not os.path.exists(gate):
        await asyncio.sleep(0.2)
    return [complete("here")]
'''

RESTORED = "mail-restored"

pytestmark = [pytest.mark.soak, needs_ministack, pytest.mark.timeout(300)]


async def test_tasks_resume_on_a_restored_table_and_the_stack_returns_to_its_own(tmp_path: Path) -> None:
    swarm = entry("patient", supervisor("agent", "patient:make"))
    template = make_project(tmp_path, swarm, {"patient": PATIENT})
    gate = tmp_path / "gate"
    async with LocalAws(template, environment={GATE_VARIABLE: str(gate)}) as system:
        own, tokens = system.stack.outputs["TableName"], system.tokens
        dynamodb = system.account.client("dynamodb")
        async with Crowd(system) as crowd:
            await crowd.submit("before", "now")
            await crowd.finish(["before"], seconds=30)
            await crowd.submit("open", "wait")
            while not gate.with_name("gate-wait").exists():  # noqa: ASYNC110 - another process makes it
                await asyncio.sleep(0.1)
            source = {"SourceTableName": own, "TargetTableName": RESTORED, "UseLatestRestorableTime": True}
            restored = await dynamodb.call("restore_table_to_point_in_time", **source)
            assert await create_table(dynamodb, RESTORED) is False
            await crowd.submit("later", "now")
            await crowd.finish(["later"], seconds=30)
        await system.deploy({"ExistingTableArn": restored["TableDescription"]["TableArn"]})
        assert system.stack.outputs["TableName"] == RESTORED
        assert {each.environment["MAIL_TABLE"] for each in system.stack.functions.values()} == {RESTORED}
        gate.touch()
        system.tokens = tokens  # they were restored, too
        async with Crowd(system) as crowd:
            records = await crowd.finish(["before", "open"], seconds=120)
            assert [answer(record) for record in records] == ["task_complete: here"] * 2
            with pytest.raises(AssertionError, match="no task"):
                await crowd.record("later")
        await system.deploy({"ExistingTableArn": ""})
        async with Crowd(system) as crowd:
            assert answer(await crowd.record("later")) == "task_complete: here"
