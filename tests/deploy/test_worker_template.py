"""worker.yaml fits to template.yaml, to the image and to `mail worker`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deploy_tools import METRIC_MATH, ROOT

from mail.cli.worker import GRACE_SECONDS, worker
from mail.core.protocol.message import Tier
from mail.local_aws.deployment import read_template

Template = dict[str, Any]


@pytest.fixture(scope="module")
def workers() -> Template:
    return read_template(Path(ROOT / "worker.yaml"))


def container(workers: Template) -> dict[str, Any]:
    (only,) = workers["Resources"]["Task"]["Properties"]["ContainerDefinitions"]
    return dict(only)


def test_a_worker_may_do_what_turns_may(workers: Template, template: Template) -> None:
    role = workers["Resources"]["WorkerRole"]["Properties"]
    export = template["Outputs"]["TurnPolicies"]
    assert role["ManagedPolicyArns"] == {
        "Fn::Split": [",", {"Fn::ImportValue": {"Fn::Sub": "${Stack}-TurnPolicies"}}]
    }
    assert export["Export"]["Name"] == {"Fn::Sub": "${AWS::StackName}-TurnPolicies"}
    policies = export["Value"]["Fn::Join"][1]
    assert policies == template["Resources"]["TurnRole"]["Properties"]["ManagedPolicyArns"]
    (own,) = role["Policies"][0]["PolicyDocument"]["Statement"]
    assert own["Action"] == "cloudformation:DescribeStacks"


def test_its_command_is_one_of_mail(workers: Template) -> None:
    name, *words = container(workers)["Command"]
    assert name == "worker"
    given = [str(word) if isinstance(word, str) else "7" for word in words]
    parsed = worker.make_context("worker", given).params
    assert parsed["stack"] == "7"
    assert f":{parsed['port']}/live" in container(workers)["HealthCheck"]["Command"][-1]
    health = next(line for line in (ROOT / "Dockerfile").read_text().splitlines() if "urlopen(" in line)
    assert container(workers)["HealthCheck"]["Command"][-1] in health


def test_a_worker_can_hand_back_its_turns_before_it_is_killed(workers: Template) -> None:
    assert container(workers)["StopTimeout"] == 120, "the most that Fargate allows, and the notice of Spot"
    assert container(workers)["StopTimeout"] >= GRACE_SECONDS + 20


def test_it_is_scaled_by_the_queues_of_the_stack(workers: Template, template: Template) -> None:
    policy = workers["Resources"]["ScaleByMail"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    *measured, load = policy["CustomizedMetricSpecification"]["Metrics"]
    assert len(measured) <= 10, "an alarm has no more"
    assert [each["Id"] for each in (*measured, load) if each["ReturnData"]] == [load["Id"]]
    expression = load["Expression"]["Fn::Sub"]
    assert expression.startswith("100 / ${Concurrency} * ("), "percent of the turns that a worker can run"
    used = set(re.findall(r"FILL\((\w+),", expression))
    assert used == {each["Id"] for each in measured}
    names = {found for each in measured for found in _queue_names(each["MetricStat"]["Metric"])}
    queues = {
        template["Resources"][f"Turns{tier.value}"]["Properties"]["QueueName"]["Fn::Sub"] for tier in Tier
    }
    assert names == {name.replace("AWS::StackName", "Stack") for name in queues}


def test_another_worker_is_started_before_one_is_full(workers: Template) -> None:
    target = workers["Parameters"]["TargetLoad"]
    assert 0 < target["MinValue"] <= target["Default"] <= target["MaxValue"] < 100


def test_without_workers_nothing_keeps_the_last_one_or_misses_it(workers: Template) -> None:
    """A processor is never at 0 %, and target tracking rounds up."""
    assert workers["Parameters"]["MinWorkers"]["MinValue"] == 0
    assert workers["Conditions"]["AlwaysRuns"] == {"Fn::Not": [{"Fn::Equals": [{"Ref": "MinWorkers"}, 0]}]}
    resources = workers["Resources"]
    assert resources["WorkersGoneAlarm"]["Condition"] == "AlwaysRuns"
    policies = {
        name: resources[name]["Properties"]["TargetTrackingScalingPolicyConfiguration"].get("DisableScaleIn")
        for name in ("ScaleByMail", "ScaleByProcessor")
    }
    assert policies == {"ScaleByMail": None, "ScaleByProcessor": {"Fn::If": ["AlwaysRuns", False, True]}}
    *_, load = resources["ScaleByMail"]["Properties"]["TargetTrackingScalingPolicyConfiguration"][
        "CustomizedMetricSpecification"
    ]["Metrics"]
    expression = load["Expression"]["Fn::Sub"].replace("${Concurrency}", "1000")
    idle = {**dict.fromkeys(("tier1", "tier2", "tier3", "tier4", "tier5"), 0), "running": 0, "workers": 1}
    busy = idle | {"tier5": 700, "running": None, "workers": None}
    assert eval(expression, dict(METRIC_MATH), idle) == 0
    assert eval(expression, dict(METRIC_MATH), busy) > workers["Parameters"]["TargetLoad"]["Default"]


def _queue_names(metric: dict[str, Any]) -> Iterator[str]:
    for dimension in metric["Dimensions"]:
        if dimension["Name"] == "QueueName":
            yield dimension["Value"]["Fn::Sub"]


def test_its_parameters_are_documented(workers: Template) -> None:
    text = (ROOT / "docs" / "workers.md").read_text(encoding="utf-8")
    assert not [name for name in workers["Parameters"] if f"`{name}`" not in text]
