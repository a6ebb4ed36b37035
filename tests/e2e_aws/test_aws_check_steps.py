"""`mail aws-check`, as far as emulators go: its deployments by sam on ministack, its messages on `LocalAws`."""

import json
import os
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import pytest
from aws_swarm import make_project
from support.engines.aws import ROOT
from support.processes.local_aws import needs_ministack

from mail.cli.aws_check_steps import (
    Run,
    kill,
    mail2,
    perform_all,
    plan,
    protocols,
    restore,
    smoke,
    versions,
    work,
)
from mail.cli.smoke import Check
from mail.local_aws.deployment import Template
from mail.local_aws.ministack import LocalAccount, Ministack, credentials
from mail.local_aws.system import LocalAws

PRECIOUS = {"Resources": {"Queue": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "precious"}}}}
NOT_OURS = "the stack precious is not one of mail aws-check: choose another --stack"
SAM = ROOT / ".tools" / "sam" / "bin"
TEXTS = files("mail.cli.project").joinpath("files")

pytestmark = [pytest.mark.soak, needs_ministack, pytest.mark.timeout(600)]


@pytest.mark.skipif(not SAM.exists(), reason="sam is not installed")
async def test_sam_deploys_switches_and_deletes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code" / "python").mkdir(parents=True)
    (tmp_path / "code" / "python" / "nothing.py").touch()
    document = Template(ROOT / "template.yaml").deployable("code") | {"Metadata": {}}
    (tmp_path / "template.yaml").write_text(json.dumps(document, default=str))
    monkeypatch.setenv("PATH", f"{SAM}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SAM_CLI_TELEMETRY", "0")
    engine = Ministack()
    for name, value in credentials(engine.endpoint).items():
        monkeypatch.setenv(name, value)
    account = LocalAccount(engine.endpoint)
    lambdas, dynamodb, s3 = (account.client(name) for name in ("lambda", "dynamodb", "s3"))
    steps, _ = plan({})
    chosen = {step.name: step for step in steps}
    run = Run(tmp_path, "mail-check")
    (tmp_path / "samconfig.toml").write_text(
        'version = 0.1\n[default.deploy.parameters]\ncapabilities = ["CAPABILITY_IAM"]\nresolve_s3 = true\n'
    )

    async def problem_of(name: str) -> str:
        checks: list[Check] = []
        await perform_all(run, [chosen[name]], checks.append, cleans=False)
        return checks[0].problem

    async def memory() -> object:
        (turn,) = [
            each
            for each in (await lambdas.call("list_functions"))["Functions"]
            if "TurnFunction" in each["FunctionName"]
        ]
        return turn["MemorySize"]

    unreachable = "the swarm is healthy: cannot connect to"  # ministack's HTTP API has no name here
    try:
        assert [await problem_of(name) for name in ("account", "deploy")] == ["", ""]
        cloudformation = account.client("cloudformation")
        await cloudformation.call("create_stack", StackName="precious", TemplateBody=json.dumps(PRECIOUS))
        run.stack = "precious"
        for name in ("deploy", "parameter TurnMemory", "delete"):
            assert await problem_of(name) == NOT_OURS
        run.stack = "mail-check"
        assert unreachable in await problem_of("parameter TurnMemory")
        assert await memory() == 512
        assert unreachable in await problem_of("parameter DeletionProtection")
        assert await memory() == 1024, "switched back"
        assert await problem_of("delete") == ""
        assert (await dynamodb.call("list_tables"))["TableNames"] == []
        assert (await s3.call("list_buckets"))["Buckets"][1:] == [], "there is only sam's"
        assert "does not exist" in await problem_of("smoke")
        monkeypatch.setenv("PATH", "")
        assert await problem_of("deploy") == "sam was not found; see the requirements in docs/deploy.md"
    finally:
        engine.stop()


class LocalRun(Run):
    """A check of `LocalAws`."""

    system: LocalAws

    @property
    def code(self) -> Path:
        return self.folder / "swarm"

    async def deploy(self, parameters: Mapping[str, str], back: Mapping[str, str] | None = None) -> None:
        await self.system.deploy({**self.back, **parameters})
        self.back = back or {}

    async def outputs(self) -> dict[str, str]:
        own = {"ApiUrl": self.system.url, "StreamUrl": self.system.stream_url}
        own["ProtocolsUrl"] = self.system.urls["ProtocolsFunction"]
        return {**self.system.stack.outputs, **own}


async def test_turns_are_taken_over_and_resume_on_a_restored_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (swarm,) = json.loads(TEXTS.joinpath("check.json.txt").read_text())
    template = make_project(tmp_path, swarm, {"mail_check": TEXTS.joinpath("check.py.txt").read_text()})
    run = LocalRun(tmp_path, "mail")
    async with LocalAws(template) as run.system:
        for name, value in credentials(run.system.endpoint).items():
            monkeypatch.setenv(name, value)
        own = (await run.outputs())["TableName"]
        for step in (smoke, protocols, mail2, kill, work, versions):
            await step(run)
        log = (tmp_path / "aws-check.log").read_text(encoding="utf-8")
        assert "the worker takes turns" in log
        assert "the worker stops" in log
        await restore(run)
        used = {each.environment["MAIL_TABLE"] for each in run.system.stack.functions.values()}
        assert used == {(await run.outputs())["TableName"]} == {"mail-restored"}
        await run.deploy({})
        assert (await run.outputs())["TableName"] == own
        await smoke(run)
