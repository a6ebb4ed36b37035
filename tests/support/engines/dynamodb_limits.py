"""The limits of DynamoDB, which no engine that runs here enforces in full: what we send is held against them."""

import re
from typing import Any

KB = 1024
MAX_ITEM = 400 * KB
MAX_TRANSACTION = 4 * KB * KB
MAX_BATCH = 16 * KB * KB
MAX_EXPRESSION = 4 * KB
PLACEHOLDER = re.compile(r"[#:]\w+")


def check(operation: str, params: dict[str, Any]) -> None:
    """Raise AssertionError for a request that DynamoDB would refuse."""
    match operation:
        case "TransactWriteItems":
            check_transaction(params)
        case "BatchWriteItem":
            ((_, requests),) = params["RequestItems"].items()
            writes = [next(iter(request.values())) for request in requests]
            assert 1 <= len(writes) <= 25
            check_distinct(writes)
            assert sum(size(write.get("Item", {})) for write in writes) <= MAX_BATCH
            for write in writes:
                check_item(write)
        case "BatchGetItem":
            ((_, request),) = params["RequestItems"].items()
            assert 1 <= len(request["Keys"]) <= 100
            check_distinct([{"Key": key} for key in request["Keys"]])
        case "PutItem" | "UpdateItem" | "DeleteItem" | "GetItem" | "Query":
            check_item(params)
            check_expressions(params)


def check_transaction(params: dict[str, Any]) -> None:
    actions = [next(iter(action.values())) for action in params["TransactItems"]]
    assert 1 <= len(actions) <= 100
    check_distinct(actions)
    assert sum(map(check_item, actions)) <= MAX_TRANSACTION
    for action in actions:
        check_expressions(action)
    assert 1 <= len(params["ClientRequestToken"]) <= 36


def check_item(write: dict[str, Any]) -> int:
    """The least that the item can have once it is written."""
    key = write.get("Item") or write.get("Key")
    if key is not None and "PK" in key:
        assert 1 <= len(key["PK"]["S"].encode()) <= 2 * KB
        assert 1 <= len(key["SK"]["S"].encode()) <= KB
        assert len(key.get("instance", {"S": "-"})["S"].encode()) in range(1, 2 * KB + 1)
        assert len(key.get("started", {"S": "-"})["S"].encode()) in range(1, KB + 1)
    least = size(write.get("Item", {})) + size(write.get("Key", {}))
    if "UpdateExpression" in write:
        least += size(write.get("ExpressionAttributeValues", {}))
    assert least <= MAX_ITEM
    return least


def check_distinct(writes: list[dict[str, Any]]) -> None:
    keys = [write.get("Key") or write["Item"] for write in writes]
    places = [(key["PK"]["S"], key["SK"]["S"]) for key in keys]
    assert len(places) == len(set(places)), "several operations on one item"


def check_expressions(request: dict[str, Any]) -> None:
    expressions = [text for name, text in request.items() if name.endswith("Expression")]
    assert all(len(text.encode()) <= MAX_EXPRESSION for text in expressions)
    used = {placeholder for text in expressions for placeholder in PLACEHOLDER.findall(text)}
    names, values = request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})
    assert used == names.keys() | values.keys(), "placeholders that are not defined, or not used"
    assert "ExpressionAttributeNames" not in request or names
    assert "ExpressionAttributeValues" not in request or values


def size(item: dict[str, dict[str, Any]]) -> int:
    """The bytes of an item: names and values, in UTF-8."""
    return sum(len(name.encode()) + value_size(value) for name, value in item.items())


def value_size(value: dict[str, Any]) -> int:
    match value:
        case {"S": text}:
            return len(text.encode())
        case {"B": compressed}:
            return len(compressed)
        case {"N": digits}:
            assert len(digits.strip("-0.").replace(".", "").partition("e")[0]) <= 38
            return len(digits) // 2 + 1
        case {"M": inner}:
            return 3 + len(inner) + size(inner)
    raise AssertionError(f"a type that the store has no use for: {value}")
