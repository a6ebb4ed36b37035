"""The tools that look at the template: each lives in a virtual environment of its own, as their pins collide."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

METRIC_MATH: dict[str, Callable[..., Any]] = {
    "IF": lambda is_so, so, other: so if is_so else other,
    "FILL": lambda value, instead: instead if value is None else value,
}
"""What CloudWatch's functions do, in expressions that Python can read."""


def find_tool(venv: str, name: str) -> str:
    """The path of a program. Without it the test is skipped, but in CI it fails."""
    path = ROOT / ".tools" / venv / "bin" / name
    if path.exists():
        return str(path)
    missing = f"{name} is not installed; run: python3 scripts/dev.py tools {venv}"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def environment() -> dict[str, str]:
    """Of a process that needs no account, and asks nobody."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SSL_"))},
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAM_CLI_TELEMETRY": "0",
    }


EXPANDED = """
import copy, json, sys
from unittest.mock import Mock
from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse
text, settings, has_routes = json.load(sys.stdin)
template = yaml_parse(text)
kept = 1
template["Globals"]["Function"]["CodeUri"] = "s3://bucket/code"
for resource in template["Resources"].values():
    if "ContentUri" in resource["Properties"]:
        resource["Properties"]["ContentUri"] = "s3://bucket/layer"
    if resource["Type"] == "AWS::Serverless::Function" and not has_routes:
        events = resource["Properties"].get("Events", {})
        for name in [name for name, event in events.items() if event["Type"] == "HttpApi"][kept:]:
            del events[name]
        kept = 0
default = {name: parameter.get("Default", "") for name, parameter in template["Parameters"].items()}
policies = {"AWSCodeDeployRoleForLambda": "arn:aws:iam::aws:policy/service-role/AWSCodeDeployRoleForLambda"}
load = Mock(load=lambda: policies)
json.dump([transform(copy.deepcopy(template), {**default, **given}, load) for given in settings], sys.stdout)
"""


def expand(
    text: str, settings: Sequence[Mapping[str, str]], *, has_routes: bool = True
) -> list[dict[str, Any]]:
    """What SAM makes of a template with each of these values of its parameters.

    Without its routes, but for that of one function, it takes a fifth of the time.
    """
    done = subprocess.run(
        [find_tool("sam", "python"), "-c", EXPANDED],
        cwd=ROOT,
        env=environment(),
        input=json.dumps([text, settings, has_routes]),
        capture_output=True,
        text=True,
        check=True,
    )
    expanded: list[dict[str, Any]] = json.loads(done.stdout)
    return expanded
