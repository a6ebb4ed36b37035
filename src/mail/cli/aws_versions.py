"""`mail aws-versions`: the published versions of a deployment's functions, which AWS keeps until they are deleted."""

from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from mail.cli.options import as_json, run
from mail.cli.output import Output
from mail.cli.values import Integer

if TYPE_CHECKING:
    from mail.adapters.aws.client import AwsClient

ALIAS = "live"
"""The alias that the HTTP API, the queues and the schedules call: `AutoPublishAlias` in template.yaml."""

KEPT = 2


@dataclass(slots=True)
class FunctionVersions:
    """The published versions of a function, in ascending order.

    Attributes:
        live: the version that is called.
        named: the versions that aliases name, such as both of a gradual rollout.
        deleted: the versions that this command has deleted.
    """

    function: str
    live: int
    versions: list[int]
    named: list[int]
    deleted: list[int] = field(default_factory=list)

    async def go_back(self, client: "AwsClient") -> None:
        """Let the version before the live one be called, if there is one."""
        if earlier := [each for each in self.versions if each < self.live]:
            self.live = earlier[-1]
            arguments = {"FunctionName": self.function, "Name": ALIAS, "FunctionVersion": str(self.live)}
            await client.call("update_alias", **arguments)

    async def prune(self, client: "AwsClient", keep: int) -> None:
        """Delete all versions but the last ones, and those that aliases name."""
        for version in [each for each in self.versions[:-keep] if each not in self.named]:
            await client.call("delete_function", FunctionName=self.function, Qualifier=str(version))
            self.versions.remove(version)
            self.deleted.append(version)


async def read_versions(stack: str) -> list[FunctionVersions]:
    """Return the versions of a stack's functions. Raises ConfigurationError if it isn't one of `template.yaml`."""
    from mail.bootstrap import read_stack
    from mail.cli.aws_account import aws

    read_stack(stack)
    async with aws("cloudformation") as cloudformation, aws("lambda") as client:
        pages = read_pages(cloudformation, "list_stack_resources", "NextToken", StackName=stack)
        resources = [each async for page in pages for each in page["StackResourceSummaries"]]
        return [
            await _read(client, each["PhysicalResourceId"])
            for each in resources
            if each["ResourceType"] == "AWS::Lambda::Function"
        ]


async def _read(client: "AwsClient", name: str) -> FunctionVersions:
    versions: list[int] = []
    async for page in read_pages(client, "list_versions_by_function", "Marker", FunctionName=name):
        versions += [int(each["Version"]) for each in page["Versions"] if each["Version"].isdecimal()]
    named, live = set(), 0
    for alias in (await client.call("list_aliases", FunctionName=name))["Aliases"]:
        named |= {
            alias["FunctionVersion"],
            *alias.get("RoutingConfig", {}).get("AdditionalVersionWeights", ()),
        }
        if alias["Name"] == ALIAS:
            live = int(alias["FunctionVersion"])
    return FunctionVersions(name, live, sorted(versions), sorted(map(int, named)))


async def read_pages(
    client: "AwsClient", operation: str, token: str, **arguments: str
) -> AsyncIterator[dict[str, Any]]:
    """Yield the answers of an operation that returns lists page by page."""
    following: dict[str, str] = {}
    while True:
        page = await client.call(operation, **arguments, **following)
        yield page
        if (value := page.get("NextMarker") or page.get("NextToken")) is None:
            return
        following = {token: value}


async def change_versions(stack: str, *, back: bool, keep: int | None) -> list[FunctionVersions]:
    """Let all functions return to the version before, or delete all but the last `keep` of each; return the result."""
    from mail.cli.aws_account import aws

    functions = await read_versions(stack)
    async with aws("lambda") as client:
        for function in functions:
            if back:
                await function.go_back(client)
            if keep is not None:
                await function.prune(client, keep)
    return functions


@click.command()
@click.option("--stack", default="mail", metavar="NAME", help="The deployed stack. [default: mail]")
@click.option("--back", is_flag=True, help="Let each function return to the version before the live one.")
@click.option("--prune", is_flag=True, help="Delete the versions of each function but the last ones.")
@click.option(
    "--keep",
    type=Integer(min=2),
    default=KEPT,
    metavar="NUMBER",
    help=f"The versions of each function that --prune keeps. [default: {KEPT}]",
)
@as_json
def aws_versions(stack: str, back: bool, prune: bool, keep: int, output: Output) -> None:
    """Show the published versions of a deployment's functions.

    With --back, all functions return to the version before, in seconds; with --prune, old versions are deleted, but
    never one that is called.
    """
    if back and prune:
        raise click.UsageError("--back and --prune exclude each other: go back, test, and prune later")
    functions = run(change_versions(stack, back=back, keep=keep if prune else None))
    rows = [
        [
            each.function,
            str(each.live),
            *(", ".join(map(str, some)) for some in (each.versions, each.deleted)),
        ]
        for each in functions
    ]
    output.result(
        {"stack": stack, "functions": [asdict(each) for each in functions]},
        lambda: output.table(["function", "live", "versions", "deleted"], rows),
    )
