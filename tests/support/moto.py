"""AWS inside this process: moto answers the requests of a botocore client, and no socket is opened.

`tests/aws/test_moto.py` lists where moto differs from the service, with a test for each difference.
"""

import copy
import threading
from functools import cache
from types import SimpleNamespace
from typing import Any

from botocore.awsrequest import AWSPreparedRequest

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
}

_LOCK = threading.Lock()
"""Moto checks and writes in separate steps; the service does both at once."""


@cache
def _stubber() -> Any:
    from moto.core.botocore_stubber import BotocoreStubber

    _save_time()
    stubber = BotocoreStubber()
    stubber.enabled = True
    return stubber


def _save_time() -> None:
    """Let moto sort by plain values, and copy only those items that a transaction may change.

    Moto copies the whole table for each item of a transaction, and sorts the whole table for each query.
    """
    from moto.dynamodb import models
    from moto.dynamodb.models.dynamo_type import DynamoType
    from moto.dynamodb.models.table import Table
    from moto.sqs import models as sqs

    cast, list_all, transact = (
        DynamoType.cast_value.fget,
        Table.all_items,
        models.DynamoDBBackend.transact_write_items,
    )

    def cast_value(self: Any) -> Any:
        return self.value if self.type in ("S", "B", "BOOL") else cast(self)

    def all_items(self: Any) -> list[Any]:
        if not self.range_key_attr:
            return list_all(self)
        items = [item for items in self.items.values() for item in items.values()]
        return sorted(items, key=lambda item: (item.hash_key.cast_value, item.range_key.cast_value))

    def transact_write_items(self: Any, transact_items: list[dict[str, Any]]) -> None:
        before = []
        for operation in (each for item in transact_items for each in item.values()):
            if (table := self.tables.get(operation["TableName"])) is not None:
                key = operation.get("Key") or operation["Item"]
                hash_key = DynamoType(key[table.hash_key_attr])
                range_key = DynamoType(key[table.range_key_attr])
                item = table.items.get(hash_key, {}).get(range_key)
                before.append((table, hash_key, range_key, copy.deepcopy(item)))
        try:
            transact(self, transact_items)
        except BaseException:
            for table, hash_key, range_key, item in before:
                if item is not None:
                    table.items[hash_key][range_key] = item
                else:
                    table.items.get(hash_key, {}).pop(range_key, None)
            raise

    DynamoType.cast_value = property(cast_value)
    Table.all_items = all_items
    models.DynamoDBBackend.transact_write_items = transact_write_items
    sqs.camelcase_to_underscores = cache(sqs.camelcase_to_underscores)
    models.copy = SimpleNamespace(deepcopy=lambda it: it if isinstance(it, Table) else copy.deepcopy(it))


class _Session:
    """What botocore sends requests through, with moto at its other end."""

    def send(self, request: AWSPreparedRequest) -> Any:
        with _LOCK:
            return _stubber()("before-send", request)

    def close(self) -> None:
        """Close nothing: there is no connection."""


def answer(botocore_client: Any) -> None:
    """Answer all requests of a client in this process."""
    botocore_client._endpoint.http_session = _Session()
