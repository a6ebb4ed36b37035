"""DynamoDB, with SQS for wake-ups and S3 for what is too large: any number of functions share a table."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from mail.adapters.aws.blobs import Blobs
from mail.adapters.aws.client import Aws, AwsClient
from mail.adapters.aws.documents import DynamoDBDocuments
from mail.adapters.aws.files import DynamoDBFiles
from mail.adapters.aws.queue import SQSQueue
from mail.adapters.aws.store import DynamoDBStore
from mail.adapters.shared.backend import Backend, Database, WorkQueue
from mail.adapters.shared.codec import build_validators
from mail.core.protocol.clock import Clock
from mail.core.protocol.error_text import missing_package
from mail.core.task.ports import Documents
from mail.errors import ConfigurationError, StoreUnavailable

if TYPE_CHECKING:
    from mail.adapters.aws.rows import DynamoDBRows
    from mail.core.task.rows import Rows

SCHEME = "dynamodb://"


class DynamoDB(Database):
    """A DynamoDB table, in the account and region of the environment."""

    not_for: ClassVar = dict.fromkeys(
        ("server", "program"),
        "`mail server` keeps its tasks in SQLite or PostgreSQL; tasks in DynamoDB are served "
        "by the functions of template.yaml (docs/deploy.md)",
    )
    row_options = ("region", "endpoint_url")
    backup_tools = (
        "`mail` copies SQLite files; a DynamoDB table is restored, to any second of the last 35 days, with "
        "aws dynamodb restore-table-to-point-in-time (docs/going-back.md)"
    )

    @property
    def table(self) -> str:
        """The name of the table."""
        return self.place.removeprefix(SCHEME)

    def open(self, swarm: str, clock: Clock, local: WorkQueue) -> Backend[WorkQueue]:
        raise NotImplementedError("see `open_functions`")

    async def create_tables(self) -> tuple[str, ...]:
        from mail.adapters.aws.schema import create_table

        async with self._client() as client:
            await create_table(client, self.table)
        return (self.table,)

    @asynccontextmanager
    async def open_documents(self) -> AsyncIterator[Documents]:
        async with self._client() as client:
            yield DynamoDBDocuments(client, self.table)

    async def open_rows(self, options: Mapping[str, str]) -> "Rows":
        endpoint_url = options.get("endpoint_url", "")
        if endpoint_url and urlsplit(endpoint_url).scheme not in ("http", "https"):
            raise ConfigurationError(f"{self.place}: endpoint_url is not an http or https URL")
        client = Aws(options.get("region", ""), endpoint_url).client("dynamodb")
        rows = _rows(client, self.table)
        try:
            await rows.open()
        except (StoreUnavailable, ImportError) as error:
            await rows.close()
            raise self._explained(error) from error
        return rows

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[AwsClient]:
        """Make a client for an operator: errors say what AWS says."""
        client = Aws().client("dynamodb")
        try:
            yield client
        except (StoreUnavailable, ImportError) as error:
            raise self._explained(error) from error
        finally:
            client.close()

    def _explained(self, error: StoreUnavailable | ImportError) -> ConfigurationError:
        if isinstance(error, ImportError):
            return ConfigurationError(f"{self.place} needs {missing_package(error)}")
        return ConfigurationError(f"{self.place} can't be used: {error.__cause__ or error}")


def open_functions(
    account: Aws,
    table: str,
    clock: Clock,
    *,
    bucket: str | None,
    retention_days: int | None,
    keeps_latest: bool,
    turn_queues: Sequence[str],
    outbound_queue: str,
) -> Backend[SQSQueue]:
    """Open the table for a function. What takes time is done here, while the function is initialized."""
    dynamodb, sqs = account.client("dynamodb"), account.client("sqs")
    dynamodb.warm_up()
    if turn_queues:
        sqs.warm_up()
    blobs = Blobs(account.client("s3"), bucket) if bucket else None
    store = DynamoDBStore(
        dynamodb, table, blobs=blobs, retention_days=retention_days, keeps_latest=keeps_latest, clock=clock
    )

    def before_snapshot() -> None:
        build_validators()
        dynamodb.rehearse(_calls_of_dynamodb(table))
        if turn_queues:
            sqs.rehearse(_calls_of_sqs(turn_queues[0]))

    return Backend(
        store=store,
        live=store.live,
        documents=DynamoDBDocuments(dynamodb, table),
        files=DynamoDBFiles(dynamodb, table, blobs, clock, retention_days and retention_days * 86_400),
        rows=lambda: _rows(dynamodb, table),
        queue=SQSQueue(sqs, turn_queues, outbound_queue, store=store),
        before_snapshot=before_snapshot,
        after_restore=account.close_connections,
    )


def _rows(client: AwsClient, table: str) -> "DynamoDBRows":
    from mail.adapters.aws.rows import DynamoDBRows

    return DynamoDBRows(client, table)


def _calls_of_dynamodb(table: str) -> dict[str, dict[str, Any]]:
    """Return a call of each operation that a turn or a message needs."""
    text = {"S": "-"}
    key = {"TableName": table, "Key": {"pk": text}}
    put = {"TableName": table, "Item": {"pk": text}}
    return {
        "get_item": key,
        "put_item": put,
        "update_item": {
            **key,
            "UpdateExpression": "SET a = :a",
            "ExpressionAttributeValues": {":a": text},
        },
        "query": {
            "TableName": table,
            "KeyConditionExpression": "pk = :pk",
            "ExpressionAttributeValues": {":pk": text},
        },
        "transact_write_items": {"TransactItems": [{"Put": put}]},
    }


def _calls_of_sqs(queue: str) -> dict[str, dict[str, Any]]:
    """Return a call of the operation with which wake-ups are published."""
    return {"send_message_batch": {"QueueUrl": queue, "Entries": [{"Id": "0", "MessageBody": "-"}]}}
