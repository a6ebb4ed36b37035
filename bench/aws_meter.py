"""Counts what a process asks of AWS: requests, capacity units, bytes. By hooks of botocore, so nothing escapes.

Writes are counted as the engine reports them (ReturnConsumedCapacity), index writes included. What engines don't
report is computed by the published rules: reads by the sizes of what was read, checks in transactions as writes, and
cancelled transactions as if they had gone through, at the least that they can cost.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from mail.adapters.aws.items import Item, item_size

WRITE_UNIT, READ_UNIT = 1024, 4096
"""Bytes."""

TRANSACTION_FACTOR = 2
"""Units of a write in a transaction, by those of the same write alone."""

EVENTUAL_FACTOR = 0.5
"""Units of a read that may be a moment old, by those of a consistent one."""


@dataclass(slots=True)
class Usage:
    """What was used.

    Attributes:
        calls: HTTP requests by operation, those that botocore has repeated included.
        written: bytes of items in write requests.
        messages: the entries of batches that were sent to queues.
    """

    calls: Counter[str] = field(default_factory=Counter)
    write_units: float = 0.0
    read_units: float = 0.0
    written: int = 0
    messages: list[dict[str, str]] = field(default_factory=list)

    def __iadd__(self, other: "Usage") -> "Usage":
        self.calls += other.calls
        self.write_units += other.write_units
        self.read_units += other.read_units
        self.written += other.written
        self.messages += other.messages
        return self


class Meter:
    """Watches clients of botocore. `size_of` gives the size of an item in the table, by a request that isn't counted."""

    def __init__(self, size_of: Callable[[str, Item], int]) -> None:
        self._size_of = size_of
        self._usage = Usage()

    def watch(self, client: Any) -> None:
        """Count what this client does from now on."""
        events = client.meta.events
        events.register("before-parameter-build", self._ask_for_units)
        events.register("before-send", self._count)
        events.register("after-call", self._read_units)

    def take(self) -> Usage:
        """What was used since the last time."""
        usage, self._usage = self._usage, Usage()
        return usage

    def _ask_for_units(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        if "ReturnConsumedCapacity" in model.input_shape.members:
            params["ReturnConsumedCapacity"] = "TOTAL"
        context["params"] = params
        if model.name == "SendMessageBatch":
            self._usage.messages += params["Entries"]

    def _count(self, event_name: str, **_: Any) -> None:
        self._usage.calls[event_name.rpartition(".")[2]] += 1

    def _read_units(self, parsed: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        if "ReturnConsumedCapacity" not in model.input_shape.members:
            return
        params = context["params"]
        if "Error" in parsed:
            self._usage.write_units += sum(map(least_units, params.get("TransactItems", ())))
        elif model.name in ("GetItem", "Query", "BatchGetItem"):
            self._usage.read_units += read_units(model.name, params, parsed)
        else:
            self._count_written(params, parsed)

    def _count_written(self, params: dict[str, Any], parsed: dict[str, Any]) -> None:
        reported = parsed.get("ConsumedCapacity", [])
        for each in reported if isinstance(reported, list) else [reported]:
            self._usage.write_units += each["CapacityUnits"]
        for action in params.get("TransactItems", ()):
            if check := action.get("ConditionCheck"):
                size = self._size_of(check["TableName"], check["Key"])
                self._usage.write_units += TRANSACTION_FACTOR * units(size, WRITE_UNIT)
        self._usage.written += sum(map(item_size, written_items(params)))


def read_units(operation: str, params: dict[str, Any], parsed: dict[str, Any]) -> float:
    """The units of a read. A query pays for all that it reads together, other reads for each item."""
    if operation == "BatchGetItem":
        tables = params["RequestItems"]
        return sum(
            units(item_size(item), READ_UNIT) * _factor(tables[table])
            for table, items in parsed["Responses"].items()
            for item in items
        )
    items = parsed["Items"] if operation == "Query" else [parsed.get("Item", {})]
    return units(sum(map(item_size, items)), READ_UNIT) * _factor(params)


def least_units(action: dict[str, Any]) -> int:
    """The units of an action of a transaction, as far as the request tells."""
    size = sum(map(item_size, written_items({"TransactItems": [action]})))
    return TRANSACTION_FACTOR * units(size, WRITE_UNIT)


def units(size: int, unit: int) -> int:
    """How many units that many bytes are; reading or writing nothing is one, too."""
    return max(1, ceil(size / unit))


def written_items(params: dict[str, Any]) -> Iterable[Item]:
    """What a request writes: whole items, and the values of updates."""
    if "TransactItems" in params:
        for action in params["TransactItems"]:
            for verb in ("Put", "Update"):
                yield from written_items(action.get(verb, {}))
    elif "RequestItems" in params:
        for requests in params["RequestItems"].values():
            yield from (request["PutRequest"]["Item"] for request in requests if "PutRequest" in request)
    elif "Item" in params:
        yield params["Item"]
    elif "UpdateExpression" in params:
        yield params["ExpressionAttributeValues"]


def _factor(params: dict[str, Any]) -> float:
    return 1.0 if params.get("ConsistentRead") else EVENTUAL_FACTOR
