"""The table: its schema, its keys, and the client that talks to it."""

import asyncio
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from support.engines import dynamodb_limits
from support.engines.dynamodb import Calls, DynamoDBAdapter
from support.faults.dynamodb import Faults, lost_request, refusal

from mail.adapters.aws.client import Aws, AwsClient, Refused
from mail.adapters.aws.items import item_size, partition, shard, task_key
from mail.adapters.aws.schema import create_table
from mail.adapters.aws.store import DynamoDBStore
from mail.adapters.aws.table import DynamoDBTable, key_of
from mail.core.protocol.message import Tier
from mail.core.task.change import Inheritance
from mail.core.task.leases import AHEAD_SECONDS
from mail.core.task.ports import read_history
from mail.core.task.task import TaskKey, TaskStatus, Transition
from mail.errors import BadRequest, StoreUnavailable, TaskNotFound
from mail.testing.changes import ANN, NOW, Mail, Maker
from mail.testing.contracts import committed, due_tasks, everything, first_turn, open_turn

KEY = TaskKey(ANN, "task-1")


class TestSchema:
    async def test_is_the_one_of_the_template(self, table: DynamoDBAdapter) -> None:
        found = table.client.botocore.describe_table(TableName=table.table)["Table"]
        assert keys(found) == ["PK", "SK"]
        indexes = {index["IndexName"]: index for index in found["GlobalSecondaryIndexes"]}
        assert {name: keys(index) for name, index in indexes.items()} == {
            "tasks": ["instance", "started"],
            "running": ["running", "due"],
            "dead": ["dead", "dead_place"],
        }
        assert indexes["tasks"]["Projection"]["NonKeyAttributes"] == ["status", "bytes"]
        assert indexes["running"]["Projection"]["ProjectionType"] == "KEYS_ONLY"
        assert indexes["dead"]["Projection"]["ProjectionType"] == "KEYS_ONLY"
        assert {each["AttributeName"]: each["AttributeType"] for each in found["AttributeDefinitions"]} == {
            "PK": "S", "SK": "S", "instance": "S", "started": "S", "running": "S", "due": "N", "dead": "S",
            "dead_place": "S",
        }  # fmt: skip
        assert found["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        lifetime = table.client.botocore.describe_time_to_live(TableName=table.table)
        assert lifetime["TimeToLiveDescription"]["AttributeName"] == "expires_at"

    async def test_it_is_made_once(self, table: DynamoDBAdapter, make: Maker) -> None:
        await table.store.commit(make.begin(KEY))
        assert await create_table(table.client, table.table) is False
        assert await table.store.load(KEY) is not None

    async def test_a_restored_table_gets_what_a_restore_leaves_out(
        self, table: DynamoDBAdapter, make: Maker
    ) -> None:
        await table.store.commit(make.begin(KEY))
        aws, restored = table.client.botocore, f"{table.table}-restored"
        aws.restore_table_to_point_in_time(
            SourceTableName=table.table, TargetTableName=restored, UseLatestRestorableTime=True
        )
        for _ in range(2):
            assert await create_table(table.client, restored) is False
            lifetime = aws.describe_time_to_live(TableName=restored)["TimeToLiveDescription"]
            assert lifetime == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
            backups = aws.describe_continuous_backups(TableName=restored)["ContinuousBackupsDescription"]
            assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"
        assert await DynamoDBStore(table.client, restored, clock=make.clock).load(KEY) is not None

    async def test_a_table_that_takes_its_time(
        self, table: DynamoDBAdapter, client: AwsClient, faults: Faults
    ) -> None:
        """AWS enables backups a while after the table is active; some engines know none."""
        for number, code in enumerate(("ContinuousBackupsUnavailableException", "UnknownOperationException")):
            name = f"{table.table}-{number}"
            faults.plan("UpdateContinuousBackups", refusal(code))
            assert await create_table(client, name) is True
            await client.call("delete_table", TableName=name)
        assert faults.are_over


class TestKeys:
    @pytest.mark.parametrize(
        "key",
        [
            KEY,
            TaskKey("user:a#b@swarm", "c"),
            TaskKey("user:a@swarm", "b"),
            TaskKey("user:a#@swarm", "META"),
            TaskKey("user:🦊@swarm", "T#"[:1]),
        ],
    )
    def test_a_partition_names_one_task(self, key: TaskKey) -> None:
        assert task_key(partition(key)) == key

    def test_the_running_tasks_are_spread(self) -> None:
        shards = {shard(partition(TaskKey(ANN, f"task-{n}"))) for n in range(200)}
        assert shards == set("0123456789abcdef")

    @pytest.mark.parametrize(
        "name", ["url::https://example.org/#part", "a%23b", "a#b", "agent@other-swarm", "#", "~"]
    )
    async def test_mailboxes_of_any_name_are_kept_apart(
        self, table: DynamoDBAdapter, make: Maker, name: str
    ) -> None:
        turn = await first_turn(
            table.store, KEY, name, make, Mail(name, body="for it"), Mail("a", body="for a"), Mail("a#b#I")
        )
        assert (turn.mailbox, turn.entry.message.message.body) == (name, "for it")
        await table.store.commit(make.change(turn.task, turn=turn, history=[{"by": name}]))
        assert await read_history(table.store, KEY, name) == [{"by": name}]
        assert await read_history(table.store, KEY, "a") == []
        assert [entry.mailbox for entry in await table.store.read_inbox(KEY)] == ["a", "a#b#I"]

    async def test_the_longest_task_id(self, table: DynamoDBAdapter, make: Maker) -> None:
        """256 characters of 4 bytes: with its start, more than the index takes."""
        stamps = make.clock
        for n in range(3):
            await table.store.commit(make.begin(TaskKey(ANN, "🦊" * 255 + str(n))))
            stamps.advance(1)  # type: ignore[attr-defined]
        first = await table.store.list_tasks(ANN, limit=2)
        second = await table.store.list_tasks(ANN, limit=2, cursor=first.cursor)
        assert [task.task_id[-1] for task in first.tasks + second.tasks] == ["2", "1", "0"]

    async def test_names_that_are_too_long_for_any_task(self, table: DynamoDBAdapter, make: Maker) -> None:
        key = TaskKey(f"user:{'é' * 1000}@swarm", "x" * 100)
        for attempt in (
            table.store.load(key),
            table.store.commit(make.begin(key)),
            table.store.open_turn(key, "alpha", make.lease(), now=NOW, history_after=0),
        ):
            with pytest.raises(BadRequest, match="too long"):
                await attempt
        assert table.items() == []

    async def test_numbers_come_back_to_the_last_digit(self, table: DynamoDBAdapter, make: Maker) -> None:
        lease = make.lease(NOW + 1 / 3)
        await table.store.commit(make.begin(KEY, Mail("alpha"), deadline=NOW + 2 / 3))
        await table.store.open_turn(KEY, "alpha", lease, now=NOW, history_after=0)
        (item,) = table.items("META")
        assert float(item["leases"]["M"]["alpha"]["M"]["expires"]["N"]) == lease.expires
        assert await due_tasks(table.store, NOW + 2 / 3 - 1e-6) == []
        assert await due_tasks(table.store, NOW + 2 / 3) == [KEY]


class TestDeletion:
    async def test_one_that_was_interrupted_is_resumed_by_the_sweeper(
        self, table: DynamoDBAdapter, make: Maker, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun = await committed(table.store, make.begin(KEY, Mail("alpha")))
        turn = await open_turn(table.store, KEY, "alpha", make)
        begun = make.change(turn.task, turn=turn, history=[{"role": "user"}], transition=Transition.COMPLETE)
        await table.store.commit(begun)
        dying = table.another(table.client, clock=make.clock)
        with monkeypatch.context() as patch:
            patch.setattr(DynamoDBTable, "delete_many", lost_request)
            with pytest.raises(Exception):  # noqa: B017, PT011
                await dying.delete(begun.task)
        assert await table.store.load(KEY) is None
        assert (await table.store.list_tasks(ANN)).tasks == []
        with pytest.raises(StoreUnavailable, match="is being deleted; try again"):
            await table.store.commit(make.begin(KEY))
        fork = make.begin(TaskKey(ANN, "fork"))
        with pytest.raises(TaskNotFound):
            await table.store.commit(replace(fork, inherits=Inheritance(KEY, {"alpha": 1}, 10)))
        await table.store.list_due(NOW + AHEAD_SECONDS + 30)
        assert table.items() != [], "its process may still be alive"
        assert await table.store.list_due(NOW + AHEAD_SECONDS + 90) == []
        assert table.items() == []
        await table.store.commit(make.begin(KEY))


class TestLists:
    @pytest.mark.soak
    async def test_of_more_tasks_than_one_request_reads(self, table: DynamoDBAdapter, make: Maker) -> None:
        keys = [TaskKey(ANN, f"task-{n:03}") for n in range(130)]
        await asyncio.gather(*(table.store.commit(make.begin(key, deadline=NOW)) for key in keys))
        page = await table.store.list_tasks(ANN, limit=120)
        assert [task.key for task in page.tasks] == keys[:9:-1]
        assert sorted(token.key for token in await table.store.list_ready()) == keys
        assert sorted(await due_tasks(table.store, NOW)) == keys
        assert await table.store.count_active_instances() == 1

    @pytest.mark.parametrize(
        "news", [{"transition": Transition.COMPLETE}, {"deadline": NOW + 10}], ids=["stopped", "put off"]
    )
    async def test_an_index_that_lags_behind_misleads_nobody(
        self, table: DynamoDBAdapter, client: AwsClient, make: Maker, news: dict[str, Any]
    ) -> None:
        """It still says that the task runs, with the deadline it had; the task itself knows better."""
        begun = await committed(table.store, make.begin(KEY, Mail("alpha"), deadline=NOW))
        change = await committed(table.store, make.change(begun.task, **news))
        row = {
            "PK": {"S": partition(KEY)},
            "SK": {"S": "META"},
            "running": {"S": shard(partition(KEY))},
            "due": {"N": str(NOW)},
        }
        answer_queries(client, [row, row])
        store = table.another(client)
        assert await due_tasks(store, NOW) == []
        assert len(await store.list_ready()) == change.task.is_running

    @pytest.mark.parametrize(("page_bytes", "listed"), [(1, 1), (2**20, 4)])
    async def test_tasks_are_read_in_portions_by_what_they_weigh(
        self,
        table: DynamoDBAdapter,
        client: AwsClient,
        calls: Calls,
        make: Maker,
        monkeypatch: pytest.MonkeyPatch,
        page_bytes: int,
        listed: int,
    ) -> None:
        """The second read is of the one task that shows that the page isn't the last, or of all the others."""
        monkeypatch.setattr("mail.adapters.aws.index.TASKS_AT_FIRST", 1)
        monkeypatch.setattr("mail.adapters.aws.index.PAGE_BYTES", page_bytes)
        for n in range(4):
            begun = make.begin(TaskKey(ANN, f"task-{n}"), Mail("alpha"))
            await table.store.commit(replace(begun, task=replace(begun.task, dead_letters=(1,))))
        store = table.another(client)
        for read in (store.list_tasks, store.list_dead):
            calls.clear()
            page = await read(ANN, limit=10)
            assert (len(page.tasks), calls.count["BatchGetItem"]) == (listed, 2)

    async def test_a_status_that_has_changed_is_not_listed(
        self, table: DynamoDBAdapter, client: AwsClient, make: Maker
    ) -> None:
        begun = await committed(table.store, make.begin(KEY))
        await table.store.commit(make.change(begun.task, transition=Transition.PAUSE))
        (item,) = table.items("META")
        row = {name: item[name] for name in ("PK", "SK", "instance", "started")}
        answer_queries(client, [{**row, "status": {"S": "running"}}])
        store = table.another(client)
        assert (await store.list_tasks(ANN, status=TaskStatus.RUNNING)).tasks == []
        assert len((await store.list_tasks(ANN)).tasks) == 1

    async def test_a_row_of_the_task_that_was_there_before(
        self, table: DynamoDBAdapter, client: AwsClient, make: Maker
    ) -> None:
        begun = await committed(table.store, make.begin(KEY))
        (item,) = table.items("META")
        row = {name: item[name] for name in ("PK", "SK", "instance", "started", "status")}
        old = {**row, "started": {"S": "2020-01-01T00:00:00+00:00#task-1"}}
        gone = {**row, "PK": {"S": partition(TaskKey(ANN, "gone"))}}
        answer_queries(client, [row, old, gone])
        assert (await table.another(client).list_tasks(ANN)).tasks == [begun.task]

    async def test_keys_that_were_left_out_are_asked_for_again(
        self, table: DynamoDBAdapter, client: AwsClient, make: Maker
    ) -> None:
        """A busy DynamoDB answers a batch in part."""
        keys = [TaskKey(ANN, f"task-{n}") for n in range(5)]
        for key in keys:
            await table.store.commit(make.begin(key))
        asked: list[int] = []

        def give_one(params: dict[str, Any], **_: Any) -> None:
            wanted = params["RequestItems"][table.table]
            asked.append(len(wanted["Keys"]))
            left[:] = wanted["Keys"][1:]
            wanted["Keys"] = wanted["Keys"][:1]

        def leave_out(parsed: dict[str, Any], **_: Any) -> None:
            if left:
                parsed["UnprocessedKeys"] = {table.table: {"Keys": left[:], "ConsistentRead": True}}

        left: list[Any] = []
        client.botocore.meta.events.register("provide-client-params.dynamodb.BatchGetItem", give_one)
        client.botocore.meta.events.register("after-call.dynamodb.BatchGetItem", leave_out)
        page = await table.another(client).list_tasks(ANN)
        assert sorted(task.key for task in page.tasks) == keys
        assert asked == [5, 4, 3, 2, 1]

    @pytest.mark.parametrize("instance", ["user:bob@tests", "user:ann@other", "admin:ann@tests"])
    async def test_a_cursor_is_for_its_instance_only(
        self, table: DynamoDBAdapter, make: Maker, instance: str
    ) -> None:
        for n in range(3):
            await table.store.commit(make.begin(TaskKey(ANN, f"task-{n}")))
        page = await table.store.list_tasks(ANN, limit=1)
        assert page.cursor is not None
        with pytest.raises(BadRequest, match="cursor"):
            await table.store.list_tasks(instance, cursor=page.cursor)
        for broken in (page.cursor[:-4], page.cursor[4:], page.cursor.swapcase(), page.cursor + "AAAA"):
            with pytest.raises(BadRequest, match="cursor"):
                await table.store.list_tasks(ANN, cursor=broken)


class TestWrites:
    async def test_items_that_were_left_out_are_written_again(
        self, table: DynamoDBAdapter, client: AwsClient
    ) -> None:
        """A busy DynamoDB takes a batch in part."""
        asked: list[int] = []
        left: list[Any] = []

        def take_ten(params: dict[str, Any], **_: Any) -> None:
            requests = params["RequestItems"][table.table]
            asked.append(len(requests))
            left[:] = requests[10:]
            params["RequestItems"] = {table.table: requests[:10]}

        def leave_out(parsed: dict[str, Any], **_: Any) -> None:
            if left:
                parsed["UnprocessedItems"] = {table.table: left[:]}

        client.botocore.meta.events.register("provide-client-params.dynamodb.BatchWriteItem", take_ten)
        client.botocore.meta.events.register("after-call.dynamodb.BatchWriteItem", leave_out)
        keys = [("partition", f"{n:02}") for n in range(25)]
        await DynamoDBTable(client, table.table).put_many([key_of(key) for key in keys])
        assert [item["SK"]["S"] for item in table.items()] == [sort_key for _, sort_key in keys]
        assert asked == [25, 15, 5]
        await DynamoDBTable(client, table.table).delete_many(keys)
        assert table.items() == []


class TestClient:
    def test_it_is_made_when_it_is_used(self) -> None:
        client = Aws().client("dynamodb")
        assert client._made is None
        DynamoDBStore(client, "table")
        assert client._made is None
        client.close()

    def test_importing_the_store_imports_no_botocore(self) -> None:
        code = "import sys, mail.adapters.aws.store, mail.adapters.aws.documents; print('botocore' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"

    async def test_it_tells_its_caller_only_of_what_it_expects(
        self, client: AwsClient, faults: Faults
    ) -> None:
        faults.plan("ListTables", refusal("AccessDeniedException"), refusal("AccessDeniedException"))
        with pytest.raises(Refused) as refused:
            await client.call("list_tables", expect=("AccessDeniedException",))
        assert (refused.value.code, refused.value.repeated) == ("AccessDeniedException", False)
        with pytest.raises(StoreUnavailable) as failure:
            await client.call("list_tables")
        assert type(failure.value.__cause__).__name__ == "ClientError"
        assert "AccessDenied" not in failure.value.detail, "callers are not told what is ours to know"

    async def test_it_tries_some_times(self, client: AwsClient, faults: Faults) -> None:
        faults.always = {"ListTables": lost_request}
        with pytest.raises(StoreUnavailable) as failure:
            await client.call("list_tables")
        assert faults.met == 4
        assert type(failure.value.__cause__).__name__ == "ConnectTimeoutError"

    async def test_it_knows_whether_it_tried_before(self, client: AwsClient, faults: Faults) -> None:
        faults.plan("ListTables", lost_request, refusal("AccessDeniedException"))
        with pytest.raises(Refused) as refused:
            await client.call("list_tables", expect=("AccessDeniedException",))
        assert refused.value.repeated is True

    async def test_a_missing_table_is_told_as_such(
        self, client: AwsClient, caplog: pytest.LogCaptureFixture
    ) -> None:
        with pytest.raises(StoreUnavailable):
            await DynamoDBStore(client, "no-such-table").load(KEY)
        assert "ResourceNotFoundException" in caplog.text


def item(name: object = "s", **texts: str) -> dict[str, Any]:
    """An item of a partition, with further texts."""
    return {key: {"S": text} for key, text in {"PK": "p", "SK": str(name), **texts}.items()}


def transaction(writes: Iterable[Any]) -> dict[str, Any]:
    return {"ClientRequestToken": "t", "TransactItems": [*writes]}


TOO_MANY = {"t": [{"PutRequest": {"Item": item(n)}} for n in range(26)]}
"""More than a request may write."""


class TestLimits:
    """The check that all other tests here rely on."""

    @pytest.mark.parametrize(
        ("operation", "params"),
        [
            ("PutItem", {"Item": item(x="é" * 204_800)}),
            ("PutItem", {"Item": item(PK="p" * 2049)}),
            ("PutItem", {"Item": item("s" * 1025)}),
            ("PutItem", {"Item": item(started="s" * 1025)}),
            ("UpdateItem", {"Key": item(), "UpdateExpression": "SET #a = :b"}),
            ("TransactWriteItems", transaction({"Put": {"Item": item(n)}} for n in range(101))),
            (
                "TransactWriteItems",
                transaction({"Put": {"Item": item(n, x="x" * 390_000)}} for n in range(11)),
            ),
            ("TransactWriteItems", transaction([{"Put": {"Item": item()}}, {"Delete": {"Key": item()}}])),
            ("BatchWriteItem", {"RequestItems": TOO_MANY}),
            ("BatchGetItem", {"RequestItems": {"t": {"Keys": [item(n) for n in range(101)]}}}),
        ],
    )
    def test_refuses_what_dynamodb_would(self, operation: str, params: dict[str, Any]) -> None:
        with pytest.raises(AssertionError):
            dynamodb_limits.check(operation, params)

    async def test_is_made_in_every_test(self, client: AwsClient) -> None:
        with pytest.raises(AssertionError):
            await client.call("batch_write_item", RequestItems=TOO_MANY)

    async def test_our_own_measure_is_no_less(self, table: DynamoDBAdapter, make: Maker) -> None:
        await table.store.commit(
            make.begin(KEY, Mail("alpha", Tier.PERSON, "日本語 🦊"), Mail("beta"), deadline=NOW + 1)
        )
        await open_turn(table.store, KEY, "alpha", make)
        for item in table.items():
            exact = dynamodb_limits.size(item)
            assert exact <= item_size(item) <= exact + 32
        assert (await everything(table.store, KEY)).task is not None


def answer_queries(client: AwsClient, rows: list[dict[str, Any]]) -> None:
    """Let every query of a client find these rows, as one of an index that lags behind may."""
    client.botocore.meta.events.register(
        "after-call.dynamodb.Query", lambda parsed, **_: parsed.update(Items=list(rows))
    )


def keys(schema: dict[str, Any]) -> list[str]:
    return [key["AttributeName"] for key in schema["KeySchema"]]
