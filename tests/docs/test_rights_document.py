"""docs/rights.md: its tables are those of template.yaml. A failure shows the lines to paste."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mail.local_aws.deployment import read_template

ROOT = Path(__file__).resolve().parents[2]
Node = dict[str, Any]


@pytest.fixture(scope="module")
def resources() -> Node:
    found: Node = read_template(ROOT / "template.yaml")["Resources"]
    return found


def functions(resources: Node) -> Iterator[str]:
    """A line for each function: its policies, and what its role allows besides, but for its own log."""
    for name, resource in resources.items():
        if resource["Type"] != "AWS::Serverless::Function":
            continue
        role = resources[resource["Properties"]["Role"]["Fn::GetAtt"][0]]["Properties"]
        policies = [_policy(each) for each in role.get("ManagedPolicyArns", ())]
        own = [
            _words(statement)
            for policy in role["Policies"]
            for statement in policy["PolicyDocument"]["Statement"]
            if "logs:PutLogEvents" not in statement["Action"]
        ]
        yield f"| `{name}` | {', '.join(policies) or '–'} | {'; '.join(own) or '–'} |"


def _policy(node: Node) -> str:
    if "Fn::If" in node:
        condition, policy, _ = node["Fn::If"]
        return f"`{policy['Ref']}` if `{condition}`"
    return f"`{node['Ref']}`"


def _words(statement: Node) -> str:
    actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
    keys = next(
        (
            tests["dynamodb:LeadingKeys"]
            for operator, tests in statement.get("Condition", {}).items()
            if operator.startswith("ForAllValues")
        ),
        None,
    )
    places = keys if keys is not None else [_place(statement["Resource"])]
    return (
        f"{', '.join(f'`{action}`' for action in actions)} on {', '.join(f'`{place}`' for place in places)}"
    )


def _place(resource: Any) -> str:
    """The first name in a resource."""
    while not isinstance(resource, str):
        if isinstance(resource, dict) and "Fn::If" in resource:
            resource = resource["Fn::If"][2]
        resource = next(iter(resource.values() if isinstance(resource, dict) else resource))
    return resource


def policies(resources: Node) -> Iterator[str]:
    """A line for each policy that roles share."""
    for name, resource in resources.items():
        if resource["Type"] == "AWS::IAM::ManagedPolicy":
            yield f"| `{name}` | {resource['Properties']['Description']} |"


@pytest.mark.parametrize("lines", [functions, policies])
def test_the_tables_are_those_of_the_template(resources: Node, lines: Any) -> None:
    text = (ROOT / "docs" / "rights.md").read_text(encoding="utf-8").splitlines()
    expected = list(lines(resources))
    assert expected
    missing = [line for line in expected if line not in text]
    assert not missing, "\n".join(expected)


def test_no_other_function_or_policy_is_named(resources: Node) -> None:
    known = {line.split("|")[1] for line in (*functions(resources), *policies(resources))}
    text = (ROOT / "docs" / "rights.md").read_text(encoding="utf-8")
    tables = [
        line for line in text.splitlines() if line.startswith("| `") and line.split("`")[1][0].isupper()
    ]
    assert {line.split("|")[1] for line in tables} == known
