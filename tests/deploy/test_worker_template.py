"""worker.yaml fits to template.yaml, to the image and to `mail worker`."""

import re
from collections import deque
from collections.abc import Iterator, Mapping
from math import ceil
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


OUT_MINUTES, IN_MINUTES, IN_SHARE = 3, 15, 0.9
"""The alarms that target tracking makes: so many minutes above the target, or below nine tenths of it."""

START_MINUTES = 2
"""How long a worker takes to start, with the minute until ECS and the worker itself are measured."""


def scale(workers: Template, mail: Mapping[int, int], minutes: int) -> list[tuple[int, int]]:
    """Return the number of workers and of waiting messages of each minute, from none on; turns take a minute.

    So many messages come in some minutes. CloudWatch has no data of what nobody reports.
    """
    parameters = {name: each.get("Default") for name, each in workers["Parameters"].items()}
    policy = workers["Resources"]["ScaleByMail"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    concurrency, target = int(parameters["Concurrency"]), int(parameters["TargetLoad"])
    *_, load = policy["CustomizedMetricSpecification"]["Metrics"]
    expression = load["Expression"]["Fn::Sub"].replace("${Concurrency}", str(concurrency))
    waiting = wanted = high = low = changed = 0
    starting, seen = deque([0] * START_MINUTES), []
    for minute in range(minutes):
        starting.append(wanted)
        present = min(starting.popleft(), wanted)
        waiting += mail.get(minute, 0)
        running = min(waiting, present * concurrency)
        waiting -= running
        seen.append((present, waiting))
        tiers = {f"tier{tier.value}": None for tier in Tier} | {"tier5": waiting}
        workers_seen = {"workers": present or None, "running": running / present if present else None}
        value = eval(expression, dict(METRIC_MATH), {**tiers, **workers_seen})
        high = high + 1 if value > target else 0
        low = low + 1 if value < IN_SHARE * target else 0
        if high >= OUT_MINUTES and (minute - changed) * 60 >= policy["ScaleOutCooldown"]:
            wanted, changed = max(wanted + 1, ceil(wanted * value / target)), minute
        elif low >= IN_MINUTES and (minute - changed) * 60 >= policy["ScaleInCooldown"]:
            wanted, changed = ceil(wanted * value / target), minute
        wanted = min(wanted, int(parameters["MaxWorkers"]))
    return seen


def test_workers_come_from_nothing_and_go_to_nothing(workers: Template) -> None:
    limit = 600
    assert {each for each, _ in scale(workers, {}, 60)} == {0}
    assert {each for each, _ in scale(workers, {5: limit}, 60)} == {0}, "left to functions, beside workers"
    seen = scale(workers, {5: limit + 1}, 60)
    first = next(minute for minute, (present, _) in enumerate(seen) if present)
    assert first == 5 + OUT_MINUTES - 1 + START_MINUTES + 1
    assert seen[first] == (1, 0)
    last = max(minute for minute, (present, _) in enumerate(seen) if present)
    assert max(present for present, _ in seen) <= 2, (
        "the first worker is waited for before another one is started"
    )
    assert first + IN_MINUTES <= last <= first + 25
    assert "stops 15 to 25 minutes after its last turn" in (ROOT / "docs" / "workers.md").read_text(
        encoding="utf-8"
    )


def test_workers_follow_the_mail_and_never_grow_beyond_their_limit(workers: Template) -> None:
    seen = scale(workers, {5: 30_000}, 90)
    assert max(present for present, _ in seen) == workers["Parameters"]["MaxWorkers"]["Default"] == 10
    done = next(minute for minute, (_, waiting) in enumerate(seen) if minute > 5 and not waiting)
    assert done <= 5 + 15, "one worker would need half an hour"
    assert seen[-1] == (0, 0)
    steady = scale(workers, dict.fromkeys(range(5, 200), 1500), 200)
    assert {present for present, _ in steady[60:]} == {3}, "60 % of each is in use, as configured"
    assert {waiting for _, waiting in steady[60:]} == {0}


def _queue_names(metric: dict[str, Any]) -> Iterator[str]:
    for dimension in metric["Dimensions"]:
        if dimension["Name"] == "QueueName":
            yield dimension["Value"]["Fn::Sub"]


def test_its_parameters_are_documented(workers: Template) -> None:
    text = (ROOT / "docs" / "workers.md").read_text(encoding="utf-8")
    assert not [name for name in workers["Parameters"] if f"`{name}`" not in text]
