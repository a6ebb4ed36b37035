"""AWS inside this process: moto answers the requests of a botocore client, and no socket is opened.

`tests/aws/test_moto.py` lists where moto differs from the service, with a test for each difference.
"""

import base64
import copy
import json
import os
import threading
from functools import cache
from inspect import signature
from itertools import chain
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from botocore.awsrequest import AWSPreparedRequest

from mail.adapters.aws.client import Aws

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
}

_LOCK = threading.Lock()
"""Moto checks and writes in separate steps; the service does both at once."""

_ITEMS = {
    "BatchGetItem",
    "BatchWriteItem",
    "DeleteItem",
    "GetItem",
    "PutItem",
    "Query",
    "Scan",
    "TransactGetItems",
    "TransactWriteItems",
    "UpdateItem",
}
"""Operations whose results moto has in the form in which they travel."""


@cache
def _stubber() -> Any:
    from moto.core.botocore_stubber import BotocoreStubber

    _save_time()
    stubber = BotocoreStubber()
    stubber.enabled = True
    return stubber


def _save_time() -> None:
    """Let moto sort by plain values, copy only those items that a transaction may change, and write items as JSON at
    once.

    Moto copies the whole table for each item of a transaction, sorts the whole table for each query, looks for each
    attribute of a result under several names, and for each request lists the methods of its class.
    """
    from moto.core import responses
    from moto.dynamodb import models
    from moto.dynamodb.models.dynamo_type import DynamoType
    from moto.dynamodb.models.table import Table
    from moto.sqs import models as sqs

    cast, query_all, transact, execute = (
        DynamoType.cast_value.fget,  # type: ignore[attr-defined]
        Table.query,
        models.DynamoDBBackend.transact_write_items,
        responses.ActionResult.execute_result,
    )

    def cast_value(self: Any) -> Any:
        return self.value if self.type in ("S", "B", "BOOL") else cast(self)

    def query(self: Any, hash_key: Any, *positional: Any, **named: Any) -> Any:
        """Look only at the partition that is asked for, in its order; results from an index are sorted later anyway."""
        is_of_table = bound(self, hash_key, *positional, **named).arguments.get("index_name") is None
        items = (
            self.items.get(hash_key, {}).values()
            if is_of_table
            else chain(*map(dict.values, self.items.values()))
        )
        self.all_items = lambda: sorted(items, key=sort_key) if is_of_table and self.range_key_attr else items
        try:
            return query_all(self, hash_key, *positional, **named)
        finally:
            del self.all_items

    def sort_key(item: Any) -> Any:
        return item.range_key.cast_value

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

    def execute_result(self: Any, context: Any) -> Any:
        if context.operation_model.name not in _ITEMS or isinstance(self.result, Exception):
            return execute(self, context)
        given = {name: value for name, value in self.result.items() if value is not None}
        body = json.dumps(given, default=_encoded)
        return 200, {"Content-Type": "application/x-amz-json-1.0"}, body

    bound = signature(query_all).bind
    DynamoType.cast_value = property(cast_value)
    responses.ActionResult.execute_result = execute_result
    responses.method_names_from_class = cache(responses.method_names_from_class)
    Table.query = query
    models.DynamoDBBackend.transact_write_items = transact_write_items
    sqs.camelcase_to_underscores = cache(sqs.camelcase_to_underscores)
    models.copy = SimpleNamespace(deepcopy=lambda it: it if isinstance(it, Table) else copy.deepcopy(it))


def _encoded(value: Any) -> Any:
    """Return JSON's form of a value of a result that has none."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value.to_json()


class _Session:
    """What botocore sends requests through, with moto at its other end."""

    def send(self, request: AWSPreparedRequest) -> Any:
        with _LOCK:
            return _stubber()("before-send", request)

    def close(self) -> None:
        """Close nothing: there is no connection."""


def empty_table(name: str) -> None:
    """Delete all items of a table of DynamoDB."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.dynamodb.models import dynamodb_backends

    with _LOCK:
        dynamodb_backends[DEFAULT_ACCOUNT_ID][ENVIRONMENT["AWS_REGION"]].tables[name].items.clear()


class MotoAws(Aws):
    """The account of moto. All requests of its clients are answered in this process."""

    def make(self, service: str, connections: int) -> Any:
        with patch.dict(os.environ, ENVIRONMENT):
            client = super().make(service, connections)
        client._endpoint.http_session = _Session()
        return client
