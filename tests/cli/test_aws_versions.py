"""`mail aws-versions`: the versions of a stack's functions, on an emulator of Lambda."""

import asyncio
import json
from typing import Any, cast

import pytest
from support.engines.aws import aws_environment, endpoint
from support.processes.local_aws import needs_ministack

from mail.adapters.aws.client import Aws, AwsClient
from mail.cli.aws_versions import read_pages
from mail.cli.run import run

pytestmark = [pytest.mark.full, needs_ministack]

ROLE = "arn:aws:iam::000000000000:role/nobody"


def template(*functions: str, output: str) -> str:
    """A stack with these functions and one output."""
    code = {"ZipFile": "def handler(event, context): pass"}
    properties = {"Runtime": "python3.12", "Handler": "index.handler", "Role": ROLE, "Code": code}
    resources = {
        name: {
            "Type": "AWS::Lambda::Function",
            "Properties": {**properties, "FunctionName": f"versions-{name}"},
        }
        for name in functions
    }
    return json.dumps({"Resources": resources, "Outputs": {output: {"Value": "https://queues"}}})


class Account:
    """Stacks, and the versions of their functions."""

    def __init__(self, aws: Aws) -> None:
        self._cloudformation, self._lambda = (aws.client(name) for name in ("cloudformation", "lambda"))

    def call(self, client: AwsClient, operation: str, **arguments: Any) -> dict[str, Any]:
        return asyncio.run(client.call(operation, **arguments))

    def create(self, stack: str, body: str) -> None:
        self.call(self._cloudformation, "create_stack", StackName=stack, TemplateBody=body)
        while True:
            (found,) = self.call(self._cloudformation, "describe_stacks", StackName=stack)["Stacks"]
            if not found["StackStatus"].endswith("IN_PROGRESS"):
                break
        assert found["StackStatus"] == "CREATE_COMPLETE"

    def publish(self, function: str, number: int) -> None:
        """Publish as many versions, and let the last one be called."""
        for n in range(1, number + 1):
            self.call(self._lambda, "update_function_configuration", FunctionName=function, Timeout=n)
            made = self.call(self._lambda, "publish_version", FunctionName=function)
            assert made["Version"] == str(n)
        names = {"FunctionName": function, "Name": "live", "FunctionVersion": str(number)}
        self.call(self._lambda, "create_alias", **names)

    def point(self, function: str, version: int, share_of_another: dict[str, float]) -> None:
        """Let a version be called, and others for a share of all calls."""
        names = {"FunctionName": function, "Name": "live", "FunctionVersion": str(version)}
        routing = {"AdditionalVersionWeights": share_of_another}
        self.call(self._lambda, "update_alias", **names, RoutingConfig=routing)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Account:
    for name, value in aws_environment(endpoint("ministack")).items():
        monkeypatch.setenv(name, value)
    return Account(Aws())


def versions(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, tuple[int, list[int], list[int]]]:
    """What the command says of each function: the live version, those that exist, those that it has deleted."""
    assert run(["aws-versions", "--json", *words]) == 0
    found = json.loads(capsys.readouterr().out)["functions"]
    return {each["function"]: (each["live"], each["versions"], each["deleted"]) for each in found}


@pytest.mark.soak
def test_functions_go_back_and_old_versions_are_deleted(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.create("versions", template("a", "b", output="TurnQueueUrls"))
    account.publish("versions-a", 6)
    account.publish("versions-b", 1)
    stack = ("--stack", "versions")
    everything = [1, 2, 3, 4, 5, 6]
    assert versions(capsys, *stack) == {"versions-a": (6, everything, []), "versions-b": (1, [1], [])}
    assert versions(capsys, *stack, "--back") == {
        "versions-a": (5, everything, []),
        "versions-b": (1, [1], []),
    }
    account.point("versions-a", 5, {"2": 0.1})
    kept = {"versions-a": (5, [2, 5, 6], [1, 3, 4]), "versions-b": (1, [1], [])}
    assert versions(capsys, *stack, "--prune") == kept
    assert versions(capsys, *stack)["versions-a"] == (5, [2, 5, 6], [])


def test_no_function_of_another_stack_is_touched(
    account: Account, capsys: pytest.CaptureFixture[str]
) -> None:
    account.create("another", template("c", output="Url"))
    account.publish("versions-c", 3)
    assert run(["aws-versions", "--stack", "another", "--prune"]) == 2
    assert "another is not a stack of MAIL's template.yaml" in capsys.readouterr().err


class Pages:
    """A client of Lambda that lists a version at a time."""

    async def call(self, _operation: str, *, FunctionName: str, Marker: str = "0") -> dict[str, Any]:  # noqa: N803
        following = {} if Marker == "2" else {"NextMarker": str(int(Marker) + 1)}
        return {"Versions": [{"Version": f"{FunctionName} {Marker}"}], **following}


async def test_long_lists_are_read_page_by_page() -> None:
    client = cast(AwsClient, Pages())
    pages = read_pages(client, "list_versions_by_function", "Marker", FunctionName="a")
    assert [each["Version"] async for page in pages for each in page["Versions"]] == ["a 0", "a 1", "a 2"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(("--back", "--prune"), "exclude each other"), (("--prune", "--keep", "1"), "is not in the range x>=2")],
)
def test_what_makes_no_sense_is_refused(
    words: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["aws-versions", *words]) == 2
    assert complaint in capsys.readouterr().err
