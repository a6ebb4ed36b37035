"""Whose role may write and read what is stored, by IAM's rules for the requests that the adapters make.

`tests/handlers` runs the functions with their roles, so that what they need is allowed; this shows what isn't.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import pytest
from support.engines.dynamodb import DynamoDBAdapter, make_client
from support.engines.iam import PARAMETERS, Ask, Roles, asks, listed

from mail.adapters.aws.client import AwsClient
from mail.adapters.aws.documents import DynamoDBDocuments
from mail.adapters.aws.items import partition
from mail.adapters.aws.rows import DynamoDBRows
from mail.adapters.local.queue import LocalQueue
from mail.core.decisions.submit import Submission
from mail.core.engine.runtime import Runtime
from mail.core.protocol.address import Principal
from mail.core.task.documents import Document, Kind, PutIf
from mail.core.task.rows import Times, Write
from mail.core.task.schedules import Schedule, owner_of_schedules
from mail.core.task.task import TaskKey
from mail.mail2 import WORK
from mail.mail2.records import box
from mail.testing.agents import build_swarm, call, complete, request, respond, turns
from mail.testing.clock import FakeClock

Template = dict[str, Any]

PARAMETER = "kms:EncryptionContext:PARAMETER_ARN"

ISSUERS = {"WhoamiRole", "StreamRole"}
REGISTRARS = {"SwarmsRole", "PeerHealthRole", "StreamRole"}
DOORS = {"MessageRole", "InterswarmRole", "StreamRole", "ProtocolsRole"}
SETTERS = {"SwarmsRole", "StreamRole"}
SEALERS = {"MessageRole", "WhoamiRole", "StreamRole", "ProtocolsRole"}
BEGINNERS = {"TasksRole", "OutboundRole", "SweeperRole"}
"""Roles of functions that begin the runs of schedules."""
QUEUES = {"TurnRole", "OutboundRole", "DeadLetterRole", "SweeperRole"}
HTTP = {
    *("HealthRole", "WhoamiRole", "StatusRole", "TasksRole", "TaskRole", "ThreadsRole", "MessageRole"),
    *("SwarmsRole", "InterswarmRole", "StreamRole", "ProtocolsRole", "Mail2Role"),
}
"""Roles of functions that check keys."""

WRITERS = {
    Kind.TOKEN: ISSUERS,
    Kind.SIGN_IN_LINK: ISSUERS,
    Kind.HAD_TOKENS: ISSUERS | SETTERS | {"HealthRole", "InterswarmRole"},  # it has nothing but a key
    Kind.HEALTH: SETTERS | {"HealthRole", "InterswarmRole"},
    Kind.LOADED_SWARM: SETTERS,
    Kind.PEER: REGISTRARS,
    Kind.FOUND_PEER: REGISTRARS | {"TurnRole"},
    Kind.WEBHOOK: {"TasksRole", "StreamRole"},
    Kind.IDEMPOTENCY_KEY: DOORS,
    Kind.PERMITS: {"TurnRole"},
    Kind.SWARM_VERSION: DOORS | {"TurnRole", *BEGINNERS},
    Kind.SWARM_DRAFT: SETTERS,
    Kind.HOLD: {"TasksRole", "StreamRole"},
    Kind.CALLER_DELETION: {"TasksRole", "StreamRole", "SweeperRole"},
    Kind.DELETED_TASK: DOORS | {"SweeperRole"},
    Kind.AUDIT: HTTP,  # and nobody deletes an entry
    Kind.ISSUER_KEYS: {"PeerHealthRole"},  # which nobody calls
    Kind.CALLER_TOKEN: SEALERS,
}
READERS = {
    Kind.TOKEN: HTTP,
    Kind.SIGN_IN_LINK: ISSUERS,
    Kind.HAD_TOKENS: HTTP | QUEUES,
    Kind.HEALTH: HTTP | QUEUES,
    Kind.LOADED_SWARM: HTTP | QUEUES,
    Kind.PEER: REGISTRARS | DOORS | {"OutboundRole", "Mail2Role"},
    Kind.FOUND_PEER: REGISTRARS | DOORS | {"OutboundRole", "Mail2Role"},
    Kind.WEBHOOK: DOORS | BEGINNERS,
    Kind.IDEMPOTENCY_KEY: DOORS,
    Kind.PERMITS: {"TurnRole"},
    Kind.SWARM_VERSION: HTTP | QUEUES,
    Kind.SWARM_DRAFT: {"TasksRole", *SETTERS},  # forks may try one
    Kind.HOLD: DOORS | {"TasksRole", "SweeperRole", "OutboundRole"},
    Kind.CALLER_DELETION: {"TasksRole", "StreamRole", "SweeperRole"},
    Kind.DELETED_TASK: DOORS,
    Kind.AUDIT: {"StreamRole"},
    Kind.ISSUER_KEYS: HTTP | {"PeerHealthRole"},
    Kind.CALLER_TOKEN: {"TurnRole"},
}
LISTERS = {
    Kind.SWARM_DRAFT: SETTERS,
    Kind.TOKEN: ISSUERS | {"SweeperRole"},
    Kind.HOLD: {"TasksRole", "StreamRole", "SweeperRole", "OutboundRole", "Mail2Role"},
    Kind.CALLER_DELETION: {"SweeperRole", "StreamRole"},
    Kind.PEER: READERS[Kind.PEER],
    Kind.FOUND_PEER: READERS[Kind.FOUND_PEER] | {"TurnRole"},
    Kind.WEBHOOK: {"TasksRole", "StreamRole"},
    Kind.AUDIT: ISSUERS,
}
ERASERS = {
    Kind.SWARM_DRAFT: SETTERS,
    Kind.TOKEN: ISSUERS | {"SweeperRole"},
    Kind.SIGN_IN_LINK: ISSUERS,
    Kind.PEER: REGISTRARS,
    Kind.FOUND_PEER: REGISTRARS,
    Kind.WEBHOOK: {"TasksRole", "StreamRole", "SweeperRole"},
    Kind.IDEMPOTENCY_KEY: DOORS | {"SweeperRole"},
    Kind.HOLD: {"TasksRole", "StreamRole"},
    Kind.CALLER_TOKEN: {"SweeperRole"},
}

CHANGE_TASKS = {"TasksRole", *DOORS, *QUEUES}
CHANGE_SCHEDULES = {*BEGINNERS, "StreamRole", "DeadLetterRole"}
"""Roles of functions that keep schedules; not those that run code of agents or take messages from anybody."""
READ_TASKS = {"StatusRole", "TaskRole", "ThreadsRole", *CHANGE_TASKS}


@pytest.fixture(scope="module")
def roles(template: Template) -> Roles:
    return Roles(template)


@pytest.fixture(scope="module")
def names(template: Template) -> set[str]:
    """The roles of functions."""
    functions = (each for each in template["Resources"].values() if each["Type"].endswith("::Function"))
    return {each["Properties"]["Role"]["Fn::GetAtt"][0] for each in functions}


@pytest.fixture
async def table() -> AsyncIterator[DynamoDBAdapter]:
    adapter = DynamoDBAdapter("moto")
    await adapter.open()
    yield adapter
    await adapter.close()


@contextmanager
def recording(client: AwsClient) -> Iterator[list[Ask]]:
    """What IAM would be asked meanwhile."""
    seen: list[Ask] = []
    events = client.botocore.meta.events

    def note(params: dict[str, Any], model: Any, **_: Any) -> None:
        seen.extend(asks("dynamodb", model.name, params, {}))

    events.register("provide-client-params.dynamodb", note)
    try:
        yield seen
    finally:
        events.unregister("provide-client-params.dynamodb", note)


def allowed(roles: Roles, names: set[str], seen: list[Ask]) -> set[str]:
    """The roles that allow all of it."""
    assert seen
    return {name for name in names if all(roles.allow(name, each) for each in seen)}


async def test_each_kind_of_document_is_written_and_read_by_those_who_have_to(
    table: DynamoDBAdapter, roles: Roles, names: set[str]
) -> None:
    client = make_client("moto", "dynamodb")
    documents = DynamoDBDocuments(client, table.table)
    keys = {Kind.WEBHOOK: ("user:ann@x", "id"), Kind.IDEMPOTENCY_KEY: ("user:ann@x", "key")}
    single = {
        Kind.HAD_TOKENS: {},
        Kind.HEALTH: {"status": "well"},
        Kind.LOADED_SWARM: {"text": "{}"},
        Kind.ISSUER_KEYS: {"record": "{}"},
    }
    for kind in Kind:
        key: tuple[str, ...] = () if kind in single else keys.get(kind, ("name",))
        fields = single.get(kind, {"record": "{}"})
        with recording(client) as writes:
            await documents.put(kind, Document(key, fields))
        with recording(client) as reads:
            await documents.get(kind, *key) if kind is not Kind.WEBHOOK else await documents.find(
                kind, key[0]
            )
        assert allowed(roles, names, writes) == WRITERS[kind], kind
        assert allowed(roles, names, reads) == READERS[kind], kind
        if kind in LISTERS:
            with recording(client) as lists:
                await documents.find(kind)
            assert allowed(roles, names, lists) == LISTERS[kind], kind
        with recording(client) as deletions:
            await documents.delete(kind, *key)
        assert allowed(roles, names, deletions) == ERASERS.get(kind, set()), kind
        refused = names - WRITERS[kind] - ERASERS.get(kind, set())
        assert not any(roles.allow(name, each) for name in refused for each in chain(writes, deletions)), kind
    client.close()


async def test_tasks_are_changed_by_those_who_have_to(
    table: DynamoDBAdapter, roles: Roles, names: set[str]
) -> None:
    async def look(_arguments: dict[str, object]) -> str:
        return "seen"

    client, clock = make_client("moto", "dynamodb"), FakeClock()
    swarm = build_swarm(
        {
            "supervisor": turns([call("look"), request("other")], [complete()]),
            "other": turns([respond("supervisor")]),
        },
        actions={"look": look},
    )
    queue = LocalQueue(lambda: clock.now().timestamp())
    runtime = Runtime(swarm, table.another(client, clock=clock), queue, clock)
    ann = Principal(role="user", id="ann", swarm=swarm.name)
    with recording(client) as seen:
        submitted = await runtime.submit(ann, Submission(body="hi"))
        while len(queue):
            await runtime.run_turn(*await queue.take())
        task_id = submitted.key.task_id
        await runtime.fork(ann, task_id)
        await runtime.delete(str(ann), task_id)
    client.close()
    of_tasks = [each for each in seen if each.resource.endswith("/Table")]
    reads = [each for each in of_tasks if each.action.endswith(("GetItem", "Query"))]
    writes = [each for each in of_tasks if each not in reads]
    assert {each.action.partition(":")[2] for each in writes} == {
        *("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem")
    }
    assert allowed(roles, names, reads) == READ_TASKS
    assert allowed(roles, names, writes) == CHANGE_TASKS


async def test_schedules_are_changed_by_those_who_begin_their_runs(
    table: DynamoDBAdapter, roles: Roles, names: set[str]
) -> None:
    client, clock = make_client("moto", "dynamodb"), FakeClock()
    swarm = build_swarm({"supervisor": turns([complete()])})
    queue = LocalQueue(lambda: clock.now().timestamp())
    schedules = Runtime(swarm, table.another(client, clock=clock), queue, clock).schedules
    spec = Schedule(name="daily", cron="0 9 * * *", caller=f"admin:eve@{swarm.name}", body="hi")
    with recording(client) as seen:
        await schedules.save(spec, "eve", is_new=True)
        await schedules.delete(spec.name)
    client.close()
    owned = partition(TaskKey(owner_of_schedules(swarm.name), spec.name))
    writes = [each for each in seen if each.context["dynamodb:LeadingKeys"] == [owned]]
    writes = [each for each in writes if not each.action.endswith(("GetItem", "Query"))]
    assert allowed(roles, names, writes) == CHANGE_SCHEDULES
    assert not any(roles.allow(name, each) for name in names - CHANGE_SCHEDULES for each in writes)


async def test_mail_2_is_changed_by_those_who_serve_and_deliver_it(
    table: DynamoDBAdapter, roles: Roles, names: set[str]
) -> None:
    client = make_client("moto", "dynamodb")
    rows, keepers = DynamoDBRows(client, table.table), {"Mail2Role", "StreamRole", "OutboundRole"}
    work, entry = (WORK, "id"), (box("inbox", "a"), "id")
    times = Times("2026", "2026")
    with recording(client) as writes:
        assert await rows.write([Write(work, "{}", PutIf.ABSENT), Write(entry, "{}", PutIf.ABSENT, times)])
        assert await rows.write([Write(work, "[]", "{}"), Write(entry, None, "{}", times)])
    with recording(client) as reads:
        await rows.page(entry[0], limit=10)
        await rows.read(entry, work)
    with recording(client) as looks:
        await rows.find(WORK, "")
        await rows.read(work)
    client.close()
    assert allowed(roles, names, writes) == allowed(roles, names, reads) == keepers
    noting = {"SweeperRole", "MessageRole", "ProtocolsRole"}  # that an account or a task is deleted
    others = names - keepers - noting
    assert not any(roles.allow(name, each) for name in others for each in writes)
    assert not any(
        roles.allow(name, each)
        for name in noting
        for each in writes
        if not {WORK} & set(each.context["dynamodb:LeadingKeys"])
    )
    assert allowed(roles, names, looks) == {*keepers, "SweeperRole"}


def test_turns_read_only_what_is_right_below_the_path_of_secrets(roles: Roles, names: set[str]) -> None:
    path = PARAMETERS["SecretsPath"]
    inner = f"{path}/outbound"

    def readers(name: str) -> set[str]:
        """Roles that may read a parameter, and decrypt it."""
        (ask,) = asks("ssm", "GetParameter", {"Name": name}, {})
        key = Ask("kms:Decrypt", PARAMETERS["SecretsKeyArn"], {PARAMETER: [ask.resource]})
        found = allowed(roles, names, [ask])
        assert found <= allowed(roles, names, [key])
        return found

    def listers(path: str, *, recursive: bool = False) -> set[str]:
        return allowed(
            roles, names, asks("ssm", "GetParametersByPath", {"Path": path, "Recursive": recursive}, {})
        )

    assert listers(path) == {"TurnRole"}
    assert not (listers(path, recursive=True) | listers(inner) | listers(f"{path}/other"))
    assert readers(f"{inner}/SWARM_AUTH_TOKEN_X") == {"SwarmsRole", "StreamRole", "OutboundRole"}
    assert readers(f"{inner}/WEBHOOK_SECRET_X") == {"MessageRole", "TasksRole", "StreamRole", "OutboundRole"}
    assert not (readers(f"{path}/OPENAI_API_KEY") | readers(f"{inner}/OTHER"))
    for name, may in ((f"{path}/OPENAI_API_KEY", True), (f"{inner}/SWARM_AUTH_TOKEN_X", False)):
        (ask,) = asks("ssm", "GetParameter", {"Name": name}, {})
        key = Ask("kms:Decrypt", PARAMETERS["SecretsKeyArn"], {PARAMETER: [ask.resource]})
        assert roles.allow("TurnRole", key) is may


def test_no_role_has_more_policies_than_an_account_lets_it(template: Template, names: set[str]) -> None:
    """IAM's quota is ten managed policies for a role, and 6,144 characters for each."""
    arn = "arn:aws:iam::111122223333:role/other"
    roles = Roles(template, PeerFunctionArns=arn, Traces="true", BedrockModels=arn, SubnetIds="subnet-1")
    for name in names:
        assert len(roles.shared(name)) <= 10, name
    for name, each in template["Resources"].items():
        if each["Type"] == "AWS::IAM::ManagedPolicy":
            document = roles.resolve(each["Properties"]["PolicyDocument"])
            assert len(json.dumps(document, separators=(",", ":"))) <= 6144, name


def test_nothing_in_the_table_is_allowed_without_partition_keys(roles: Roles, names: set[str]) -> None:
    """`ForAllValues` alone holds for a request without keys, such as a scan."""
    table = asks("dynamodb", "Scan", {}, {})[0].resource
    for name in names:
        for statement in roles.statements(name):
            if table in listed(statement["Resource"]):
                assert statement["Condition"]["Null"]["dynamodb:LeadingKeys"] == "false", name
                for action in listed(statement["Action"]):
                    assert not roles.allow(name, Ask(action, table)), name
