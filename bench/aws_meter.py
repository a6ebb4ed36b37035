"""Counts what a process asks of AWS: requests, capacity units, bytes. By hooks of botocore, so nothing escapes.

Units are computed by DynamoDB's published rules, from the items before and after each request: a write costs the larger
of the two in whole KB, double in a transaction, cancelled ones included. An index costs a unit for each row that is put
or deleted, or whose projected attributes change; engines on this machine charge for it at each write of the item. Reads
cost what they have read.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from mail.adapters.aws.items import META, Item, Value, is_mail, item_size
from mail.adapters.aws.schema import DEAD_INDEX, RUNNING_INDEX, TASKS_INDEX

WRITE_UNIT, READ_UNIT = 1024, 4096
"""Bytes."""

TRANSACTION_FACTOR = 2
"""Units of a write in a transaction, by those of the same write alone."""

EVENTUAL_FACTOR = 0.5
"""Units of a read that may be a moment old, by those of a consistent one."""

INDEXES = {
    TASKS_INDEX: (("instance", "started"), ("status",)),
    RUNNING_INDEX: (("running", "due"), ()),
    DEAD_INDEX: (("dead", "dead_place"), ()),
}
"""The key of each index, and the attributes that it has besides (`mail.adapters.aws.schema`)."""

KINDS = {"E": "events", "R": "answer", "L": "live events"}
"""What items are, by the start of their sort keys."""


@dataclass(slots=True)
class Usage:
    """What was used.

    Attributes:
        calls: HTTP requests by operation, those that botocore has repeated included.
        writes: write units by what was written.
        written: bytes of items in write requests.
        messages: the entries of batches that were sent to queues.
    """

    calls: Counter[str] = field(default_factory=Counter)
    writes: Counter[str] = field(default_factory=Counter)
    read_units: float = 0.0
    written: int = 0
    messages: list[dict[str, str]] = field(default_factory=list)

    @property
    def write_units(self) -> int:
        """All that was written."""
        return self.writes.total()

    def __iadd__(self, other: "Usage") -> "Usage":
        self.calls += other.calls
        self.writes += other.writes
        self.read_units += other.read_units
        self.written += other.written
        self.messages += other.messages
        return self


@dataclass(frozen=True, slots=True)
class Write:
    """A write, or a check, of one item.

    Attributes:
        verb: of a transaction or a batch; "Update" for other writes.
        item: the item as it is put, or the values that an update sets.
    """

    table: str
    verb: str
    key: Item
    item: Item
    is_transactional: bool

    @property
    def what(self) -> str:
        """What is written, in words."""
        sort_key = self.key["SK"]["S"]
        if sort_key == META:
            return (
                "task" if self.is_transactional else "checkpoint" if ":checkpoint" in self.item else "lease"
            )
        if sort_key[0] == "A":
            kind = "mail" if "#I#" in sort_key or is_mail(self.item) else "history"
        else:
            kind = KINDS.get(sort_key[0], "document")
        return f"{kind}, deleted" if self.verb.startswith("Delete") else kind

    def units(self, before: Item, after: Item) -> int:
        """The units of the item itself."""
        size = max(item_size(before), item_size(after))
        return units(size, WRITE_UNIT) * (TRANSACTION_FACTOR if self.is_transactional else 1)


class Meter:
    """Watches clients of botocore.

    `find` gives an item of a table, by a request that isn't counted; {} if there is none.
    """

    def __init__(self, find: Callable[[str, Item], Item]) -> None:
        self._find = find
        self._usage = Usage()

    def watch(self, client: Any) -> None:
        """Count what this client does from now on."""
        events = client.meta.events
        events.register("before-parameter-build", self._look_before)
        events.register("before-send", self._count)
        events.register("after-call", self._look_after)

    def take(self) -> Usage:
        """What was used since the last time."""
        usage, self._usage = self._usage, Usage()
        return usage

    def _look_before(self, params: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        context["params"] = params
        if model.name == "SendMessageBatch":
            self._usage.messages += params["Entries"]
        context["writes"] = [(write, self._find(write.table, write.key)) for write in writes(params)]

    def _count(self, event_name: str, **_: Any) -> None:
        self._usage.calls[event_name.rpartition(".")[2]] += 1

    def _look_after(self, parsed: dict[str, Any], model: Any, context: dict[str, Any], **_: Any) -> None:
        for write, before in context["writes"]:
            if "Error" in parsed:  # refused by a condition; what it would have written is known in part
                self._usage.writes["refused"] += write.units(before, write.item)
                continue
            after = self._find(write.table, write.key)
            self._usage.writes[write.what] += write.units(before, after)
            self._usage.writes["index"] += index_units(before, after)
            self._usage.written += item_size(write.item)
        if "Error" not in parsed and model.name in ("GetItem", "Query", "BatchGetItem"):
            self._usage.read_units += read_units(model.name, context["params"], parsed)


def writes(params: dict[str, Any]) -> Iterable[Write]:
    """The writes of a request, and the checks of a transaction."""
    if "TransactItems" in params:
        for action in params["TransactItems"]:
            ((verb, arguments),) = action.items()
            yield _write(arguments["TableName"], verb, arguments, is_transactional=True)
    elif "RequestItems" in params:
        for table, requests in params["RequestItems"].items():
            for request in requests if isinstance(requests, list) else ():
                ((verb, arguments),) = request.items()
                yield _write(table, verb, arguments)
    elif "Item" in params or "UpdateExpression" in params:
        yield _write(params["TableName"], "Update", params)
    elif "Key" in params and "ConditionExpression" in params:
        yield _write(params["TableName"], "Delete", params)


def _write(table: str, verb: str, arguments: dict[str, Any], *, is_transactional: bool = False) -> Write:
    item: Item = arguments.get("Item", {})
    key = arguments.get("Key") or {name: item[name] for name in ("PK", "SK")}
    if verb == "Update" and not item:
        item = arguments.get("ExpressionAttributeValues", {})
    return Write(table, verb, key, item, is_transactional)


def index_units(before: Item, after: Item) -> int:
    """The units of the indexes when an item changes. Their rows are smaller than 1 KB, and not part of transactions."""
    total = 0
    for key, others in INDEXES.values():
        old, new = (
            [_plain(item.get(name)) for name in (*key, *others)]
            if all(name in item for name in key)
            else None
            for item in (before, after)
        )
        if old is None or new is None:
            total += old is not new
        elif old[: len(key)] != new[: len(key)]:
            total += 2  # the old row is deleted, and the new one put
        elif old != new:
            total += 1
    return total


def _plain(value: Value | None) -> object:
    """Return an attribute as its row in an index has it: engines on this machine write a number in several ways."""
    return float(value["N"]) if value is not None and "N" in value else value


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


def units(size: int, unit: int) -> int:
    """How many units that many bytes are; reading or writing nothing is one, too."""
    return max(1, ceil(size / unit))


def _factor(params: dict[str, Any]) -> float:
    return 1.0 if params.get("ConsistentRead") else EVENTUAL_FACTOR
