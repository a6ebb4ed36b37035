"""The steps of `mail aws-check`, as data: what only a real account can show of a deployment."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mail.cli.aws_account import aws
from mail.cli.options import load_storage
from mail.cli.smoke import Check, Failed, perform, perform_one
from mail.errors import ConfigurationError, MAILError

if TYPE_CHECKING:
    from mail.cli.connection import CommandClient

TAG = "mail-aws-check"
"""The tag of stacks that were made here: no other is ever changed."""

PERSON = "aws-check"
"""Who sends the messages."""

ANSWER_SECONDS = 180.0
"""Seconds within which an answer must come."""

GRADUALLY = "Canary10Percent5Minutes"
TAKEOVER_SECONDS = 60
DEATH_SECONDS = 5
START_SECONDS = 15
"""Seconds for which the function of a cold turn may start."""

VALUES = {
    "ApiMemory": "1024",
    "BedrockModels": "arn:aws:bedrock:*::foundation-model/*",
    "CorsOrigins": "https://example.com",
    "CostPerHour": "1",
    "EventBus": "default",
    "ModelCallsPerTurn": "3",
    "RequestBurst": "50",
    "RequestsPerSecond": "50",
    "RetentionDays": "30",
    "SecretsPath": "/mail-check",
    "SnapStart": "all",
    "StreamConcurrency": "10",
    "StreamSeconds": "60",
    "TurnMemory": "512",
    "Turns": "both",
}
"""The values to switch parameters to. Others take the first value that is allowed besides their default."""

PARTNERS = {"DomainName": "CertificateArn", "SubnetIds": "SecurityGroupIds"}
"""Parameters that only work together with another one, which has no step."""

APART = {
    "AuthEndpoint": "would replace the token that the steps use",
    "TokenInfoEndpoint": "would replace the token that the steps use",
    "SwarmName": "has only one value here",
    "SwarmSource": "is switched by the step rollback",
    "Architecture": "needs another build",
    "EndpointUrl": "is for emulators",
    "ExistingTableArn": "is switched by the step restore",
    "Rollout": "is switched by the step rollout",
    "WarmWriteUnits": "is billed at each increase",
}
"""The parameters without a step, and why."""


PROTOCOLS: Mapping[str, tuple[str, Mapping[str, Any], str]] = {
    "A2A": (
        "/a2a/message:send",
        {"message": {"messageId": "ID", "role": "ROLE_USER", "parts": [{"text": "ping"}]}},
        "done",
    ),
    "MCP": ("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, '"ask"'),
    "AG-UI": (
        "/ag-ui",
        {"threadId": "ID", "runId": "ID", "state": {}, "tools": [], "context": [], "forwardedProps": {}}
        | {"messages": [{"id": "ID", "role": "user", "content": "ping"}]},
        "RUN_FINISHED",
    ),
    "OpenAI": (
        "/v1/chat/completions",
        {"model": "mail-check", "messages": [{"role": "user", "content": "ping"}]},
        "done",
    ),
}
"""For each protocol a path, a body in which ID stands for a new id, and what the answer contains."""

NOT_SHOWN = {
    "worker.yaml": "needs an image and subnets of yours: deploy it as docs/workers.md says, post more mail than "
    "TargetLoad allows, and see in the events of its service whether the first worker starts, and the last one stops",
    "growth": "takes a load of hours, with which pollers, partitions and concurrency grow; docs/scale.md plans it",
}
"""What an account could show besides, and why no step does."""


@dataclass
class Run:
    """A check of one stack. Its methods raise MAILError where AWS, sam or an answer says no.

    Attributes:
        folder: the folder of the project and of the log, `aws-check.log`.
        back: the parameters to switch back at the next deployment, with their values.
    """

    folder: Path
    stack: str
    back: Mapping[str, str] = field(default_factory=dict)
    token: str = ""

    @property
    def code(self) -> Path:
        """The folder with the swarm, as functions and the containers of workers have it."""
        return self.folder / ".build" / "swarm"

    async def command(self, *words: str) -> None:
        """Run a program in the folder, and log what it prints."""
        async with self.program(*words, folder=self.folder):
            pass

    @asynccontextmanager
    async def program(self, *words: str, folder: Path) -> AsyncIterator[asyncio.subprocess.Process]:
        """Run a program meanwhile, and log what it prints; wait for its end."""
        region = os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION", "")
        environment = {**os.environ, **({"AWS_DEFAULT_REGION": region} if region else {})}
        path = self.folder / "aws-check.log"
        with path.open("ab") as log:
            try:
                process = await asyncio.create_subprocess_exec(
                    *words, cwd=folder, env=environment, stdin=asyncio.subprocess.DEVNULL,
                    stdout=log, stderr=log,
                )  # fmt: skip
            except FileNotFoundError:
                raise Failed(f"{words[0]} was not found; see the requirements in docs/deploy.md") from None
            try:
                yield process
            finally:
                if await process.wait():  # also the reason of what has failed meanwhile
                    last = path.read_text(encoding="utf-8", errors="replace").strip().rpartition("\n")[2]
                    raise Failed(f"{' '.join(words[:2])}: {last} ({path})")

    async def deploy(self, parameters: Mapping[str, str], back: Mapping[str, str] | None = None) -> None:
        """Deploy with these parameters, and with the former values of those that were switched before."""
        overrides = [f"{name}={value}" for name, value in {**self.back, **parameters}.items()]
        self.back = back or {}
        given = ("--parameter-overrides", *overrides) if overrides else ()
        options = ("--stack-name", self.stack, "--no-confirm-changeset", "--no-progressbar")
        await self.command("sam", "deploy", *options, "--tags", f"{TAG}={self.stack}", *given)

    async def describe(self) -> Mapping[str, Any]:
        """Return the stack as CloudFormation describes it."""
        async with aws("cloudformation") as client:
            stack: Mapping[str, Any] = (await client.call("describe_stacks", StackName=self.stack))["Stacks"][
                0
            ]
            return stack

    async def check_owner(self) -> None:
        """Raise Failed if there is a stack of this name that was not made here."""
        from mail.adapters.aws.client import Refused

        async with aws("cloudformation") as client:
            with suppress(Refused):  # there is none
                found = await client.call(
                    "describe_stacks", expect=("ValidationError",), StackName=self.stack
                )
                if all(tag["Key"] != TAG for tag in found["Stacks"][0].get("Tags", ())):
                    raise Failed(
                        f"the stack {self.stack} is not one of mail aws-check: choose another --stack"
                    )

    async def outputs(self) -> dict[str, str]:
        """Return the outputs of the stack."""
        return {each["OutputKey"]: each["OutputValue"] for each in (await self.describe())["Outputs"]}

    @asynccontextmanager
    async def clients(self) -> "AsyncIterator[tuple[CommandClient, CommandClient]]":
        """Connect to the HTTP API and to the function that streams, with a token that lasts for a day."""
        from mail.cli.connection import connect

        outputs = await self.outputs()
        token = await self.issue(outputs)
        api, stream = (
            connect(outputs[name], token, timeout=ANSWER_SECONDS) for name in ("ApiUrl", "StreamUrl")
        )
        async with api, stream:
            yield api, stream

    async def issue(self, outputs: Mapping[str, str]) -> str:
        """Return a token of a person that lasts for a day."""
        from mail.auth.keys import Caller
        from mail.cli.token import issue

        if not self.token:
            storage = load_storage(None, f"dynamodb://{outputs['TableName']}", None)
            self.token = await issue(storage, Caller("user", PERSON), days=1)
        return self.token

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[Callable[..., Awaitable[str]]]:
        """Connect without a client of MAIL's; yield what sends a request, and returns the text of a good answer."""
        import httpx2

        headers = {"Authorization": f"Bearer {await self.issue(await self.outputs())}", "A2A-Version": "1.0"}
        headers |= {"Accept": "application/json, text/event-stream"}

        async def ask(method: str, url: str, body: object = None) -> str:
            try:
                answer = await client.request(method, url, json=body)
            except httpx2.HTTPError as error:
                raise Failed(f"{method} {url}: {error!r}") from error
            if answer.status_code != 200:
                raise Failed(f"{method} {url}: {answer.status_code} {answer.text[:200]}")
            return answer.text

        async with httpx2.AsyncClient(headers=headers, timeout=ANSWER_SECONDS) as client:
            yield ask

    @asynccontextmanager
    async def requests(self) -> AsyncIterator[None]:
        """Send a request every second meanwhile, whatever becomes of it."""

        async def send() -> None:
            async with self.clients() as (api, _):
                while True:
                    with suppress(MAILError):
                        await api.get_tasks()
                    await asyncio.sleep(1)

        task = asyncio.create_task(send())
        try:
            yield
        finally:
            task.cancel()


async def until(is_so: Callable[[], Awaitable[bool]], problem: str, *, minutes: float) -> None:
    """Look every five seconds whether something is so. Raises Failed after some minutes."""
    end = time.monotonic() + minutes * 60
    while not await is_so():
        if time.monotonic() > end:
            raise Failed(f"{problem} after {minutes} minutes")
        await asyncio.sleep(5)


# ---------------------------------------------------------------------------------------------------- the steps


async def account(_: Run) -> None:
    async with aws("sts") as client:
        await client.call("get_caller_identity")


async def build(run: Run) -> None:
    from mail.cli.project.scaffold import Project

    texts = dict(Project(run.stack, None, is_python=False).files())
    for name, source in {"mail_check.py": "check.py.txt", "swarms.json": "check.json.txt"}.items():
        texts[name] = files("mail.cli.project").joinpath("files", source).read_text(encoding="utf-8")
    for name, text in texts.items():
        (run.folder / name).write_text(text, encoding="utf-8")
    await run.command(sys.executable, "-m", "mail.cli", "build")


async def deploy(run: Run) -> None:
    await run.deploy({})


async def smoke(run: Run) -> None:
    async with run.clients() as (api, stream):
        async for check in perform(api, stream, "ping"):
            if check.problem:
                raise Failed(f"{check.name}: {check.problem}")


async def protocols(run: Run) -> None:
    url = (await run.outputs())["ProtocolsUrl"].rstrip("/")
    async with run.asking() as ask:
        card = await ask("GET", f"{url}/.well-known/agent-card.json")
        if json.loads(card)["supportedInterfaces"][0]["url"] != f"{url}/a2a":
            raise Failed(f"the agent card of {url} is not that of its function: {card[:200]}")
        for name, (path, body, expected) in PROTOCOLS.items():
            given = json.loads(json.dumps(body).replace('"ID"', f'"{uuid4().hex}"'))
            if expected not in (answer := await ask("POST", f"{url}{path}", given)):
                raise Failed(f"{name} answers without {expected}: {answer[:200]}")


async def mail2(run: Run) -> None:
    outputs = await run.outputs()
    api, stream = (f"{outputs[name].rstrip('/')}/v2" for name in ("ApiUrl", "StreamUrl"))
    async with run.asking() as ask:
        own, other = [json.loads(await ask("GET", f"{url}/auth/whoami")) for url in (api, stream)]
        if own != other:
            raise Failed(f"the two functions don't agree on the account: {own} and {other}")
        address = f"user:{PERSON}@{own['user_agent']['user_agent']['host']}"
        draft = json.loads(await ask("POST", f"{api}/drafts", {"subject": "mail aws-check", "body": "ping"}))
        path = f"{api}/drafts/{draft['entry']['draft']['draft_id']}/send"
        sent = json.loads(await ask("POST", path, {"recipients": [address]}))["message"]["message_id"]
        await ask("GET", f"{api}/lists")  # of the routes that a process makes later
        if sent not in await ask("GET", f"{stream}/inbox"):
            raise Failed(f"the message {sent} to {address} did not come to its inbox")


async def switch(run: Run, values: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    await run.deploy(values, defaults)
    await smoke(run)


async def kill(run: Run) -> None:
    from mail.client.messaging import MessageOptions

    begun = time.time()
    async with run.clients() as (api, _):
        await api.post(f"die until {begun + DEATH_SECONDS}", MessageOptions())
    seconds = time.time() - begun - DEATH_SECONDS
    if seconds > TAKEOVER_SECONDS + START_SECONDS:
        raise Failed(f"the turn was taken over after {seconds:.0f} s, not within {TAKEOVER_SECONDS}")


async def work(run: Run) -> None:
    await run.deploy({"Turns": "workers"}, {"Turns": "lambda"})
    words = (sys.executable, "-m", "mail.cli", "worker", "--stack", run.stack)
    async with run.program(*words, folder=run.code) as worker:
        try:
            await smoke(run)
        finally:
            with suppress(ProcessLookupError):  # it has failed
                worker.terminate()
    await run.deploy({})  # functions run turns again


async def versions(run: Run) -> None:
    from mail.cli.aws_versions import KEPT, change_versions

    await change_versions(run.stack, back=True, keep=None)
    await smoke(run)
    await run.deploy({"LogLevel": "WARNING"}, {"LogLevel": "INFO"})  # all functions get new versions
    for each in await change_versions(run.stack, back=False, keep=KEPT):
        if len(each.versions) != KEPT or each.live != each.versions[-1]:
            raise Failed(f"{each.function} has the versions {each.versions}, of which {each.live} is called")
    await smoke(run)
    await run.deploy({})  # the level of before


async def rollout(run: Run) -> None:
    await run.deploy({"Rollout": GRADUALLY})
    async with run.requests():
        await run.deploy({"LogLevel": "DEBUG"}, {"LogLevel": "INFO", "Rollout": "AllAtOnce"})
    await smoke(run)


async def rollback(run: Run) -> None:
    await run.deploy({**run.back, "Rollout": GRADUALLY})
    with suppress(Failed):
        async with run.requests():
            await run.deploy({"SwarmSource": "missing.json"}, {"SwarmSource": "", "Rollout": "AllAtOnce"})
    status = (await run.describe())["StackStatus"]
    if status != "UPDATE_ROLLBACK_COMPLETE":
        raise Failed(f"a version that fails was not rolled back: the stack is {status}")
    await smoke(run)


async def restore(run: Run) -> None:
    from mail.bootstrap.backends import database_of
    from mail.client.messaging import MessageOptions

    table, restored = (await run.outputs())["TableName"], f"{run.stack}-restored"
    task_id = f"restored-{time.time():.0f}"
    async with aws("dynamodb") as client, run.clients() as (api, _):
        asked = asyncio.create_task(
            api.post(f"wait until {time.time() + 30}", MessageOptions(task_id=task_id))
        )
        await asyncio.sleep(10)
        made = await client.call("create_backup", TableName=table, BackupName=run.stack)
        arn = {"BackupArn": made["BackupDetails"]["BackupArn"]}

        async def is_made() -> bool:
            found = (await client.call("describe_backup", **arn))["BackupDescription"]
            return bool(found["BackupDetails"]["BackupStatus"] == "AVAILABLE")

        async def is_restored() -> bool:
            found = (await client.call("describe_table", TableName=restored))["Table"]
            return bool(found["TableStatus"] == "ACTIVE")

        try:
            await until(is_made, "the backup is not there", minutes=10)
            found = await client.call("restore_table_from_backup", TargetTableName=restored, **arn)
            await until(is_restored, "the table is not restored", minutes=60)
            await database_of(load_storage(None, f"dynamodb://{restored}", None)).create_tables()
        finally:
            await client.call("delete_backup", **arn)
        await asked
    await run.deploy({"ExistingTableArn": found["TableDescription"]["TableArn"]}, {"ExistingTableArn": ""})
    await smoke(run)
    async with run.clients() as (api, _):

        async def is_complete() -> bool:
            return bool((await api.get_task(task_id))["status"] == "completed")

        await until(is_complete, "a task of the restored table is not complete", minutes=2)


async def delete(run: Run) -> None:
    from mail.adapters.aws.client import Refused

    own: dict[str, str] = {}
    async with aws("cloudformation") as client:
        for name in ("Table", "Bodies"):
            names = {"StackName": run.stack, "LogicalResourceId": name}
            with suppress(Refused):  # the deployment has failed before it was made
                found = await client.call("describe_stack_resource", expect=("ValidationError",), **names)
                own[name] = found["StackResourceDetail"].get("PhysicalResourceId", "")
    await run.command("sam", "delete", "--stack-name", run.stack, "--no-prompts")
    async with aws("dynamodb") as client:
        for table in filter(None, (own.get("Table"), f"{run.stack}-restored")):
            with suppress(Refused):
                await client.call("describe_table", expect=("ResourceNotFoundException",), TableName=table)
                await client.call("update_table", TableName=table, DeletionProtectionEnabled=False)
                await client.call("delete_table", TableName=table)
    async with aws("s3") as client:
        buckets = {each["Name"] for each in (await client.call("list_buckets"))["Buckets"]}
        for bucket in buckets & {own.get("Bodies")}:
            while some := (await client.call("list_objects_v2", Bucket=bucket)).get("Contents"):
                keys = {"Objects": [{"Key": each["Key"]} for each in some]}
                await client.call("delete_objects", Bucket=bucket, Delete=keys)
            await client.call("delete_bucket", Bucket=bucket)


@dataclass(frozen=True, slots=True)
class Step:
    """A step; `minutes` is how long it takes, about."""

    name: str
    minutes: int
    shows: str
    perform: Callable[[Run], Awaitable[None]]


def plan(values: Mapping[str, str]) -> tuple[list[Step], dict[str, str]]:
    """Return the steps, and why some parameters have none. `values` are what the operator switches parameters to.

    Raises ConfigurationError for parameters that can't be switched.
    """
    from mail.local_aws.deployment import read_template

    path = Path(str(files("mail.cli.project").joinpath("template.yaml")))
    template = read_template(path)["Parameters"]
    defaults = {name: str(parameter["Default"]) for name, parameter in template.items()}
    if refused := values.keys() - (template.keys() - APART.keys()):
        reason = APART.get(name := min(refused), "is no parameter of the template")
        raise ConfigurationError(f"{name} can't be switched: it {reason}")
    known, partners = {**VALUES, **values}, {other: name for name, other in PARTNERS.items()}
    parameters, apart = [], dict(APART)
    for name, parameter in template.items():
        others = [str(each) for each in parameter.get("AllowedValues", ()) if str(each) != defaults[name]]
        value = known.get(name) or next(iter(others), "")
        if name in partners:
            apart[name] = f"is switched with {partners[name]}"
        elif name not in apart and not value:
            apart[name] = f"needs a value of yours: --parameter {name}=VALUE"
        elif name not in apart:
            switched = {name: value} | {
                other: known.get(other, "") for other in [PARTNERS.get(name)] if other
            }
            act = partial(switch, values=switched, defaults={each: defaults[each] for each in switched})
            text = " ".join(f"{each}={switched[each]}" for each in switched)
            parameters.append(Step(f"parameter {name}", 4, f"an update to {text}, then smoke", act))
    steps = [
        Step("account", 0, "credentials and region work", account),
        Step("build", 1, "`mail build` collects a project with one agent", build),
        Step("deploy", 6, "`sam deploy` from nothing, with the defaults", deploy),
        Step("smoke", 1, "`mail smoke` on both addresses", smoke),
        Step("protocols", 1, f"{', '.join(PROTOCOLS)} are answered by their function", protocols),
        Step("mail2", 1, "mail of MAIL 2.0 is sent and read, at both addresses", mail2),
        Step("kill", 1, f"a killed turn is taken over within {TAKEOVER_SECONDS} s", kill),
        *parameters,
        Step("worker", 8, "turns run in `mail worker` on this machine, as in a container", work),
        Step(
            "versions", 10, "functions return to their previous versions, and old ones are deleted", versions
        ),
        Step("rollout", 15, "a gradual update, under requests", rollout),
        Step("rollback", 15, "a version that fails is rolled back by its alarms", rollback),
        Step("restore", 25, "a task resumes on a restored table", restore),
        Step("delete", 5, "nothing remains", delete),
    ]
    return steps, apart


async def perform_all(
    run: Run, steps: Sequence[Step], show: Callable[[Check], None], *, cleans: bool
) -> None:
    """Perform steps one after another, none after a failed deployment; with `cleans` the last one at any rate."""

    async def perform(step: Step) -> bool:
        async def check() -> None:
            if step.perform is not build:
                await run.check_owner()
            await step.perform(run)

        done = await perform_one(step.name, check)
        show(done)
        return not done.problem

    is_begun = False
    try:
        for step in steps[:-1] if cleans else steps:
            is_begun |= step.perform is deploy
            if not await perform(step) and step.perform in (account, build, deploy):
                return
    finally:
        if cleans and is_begun:
            await perform(steps[-1])
