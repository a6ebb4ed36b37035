"""Write units as the bench counts them: by DynamoDB's published rule, from requests and the items before and after."""

from typing import Any

import pytest

from bench.aws_meter import Item, index_units, writes

KEY = {"PK": {"S": "T#a#b"}, "SK": {"S": "META"}}
ROW: Item = {
    **KEY,
    "instance": {"S": "a"},
    "started": {"S": "2026"},
    "status": {"S": "running"},
    "running": {"S": "3"},
    "due": {"N": "9000000000000000.0"},
}


def units(request: dict[str, Any], before: Item, after: Item) -> int:
    (write,) = writes(request)
    return write.units(before, after)


def of_size(size: int) -> Item:
    return {"SK": {"S": "x" * (size - 2)}}


@pytest.mark.parametrize(
    ("before", "after", "alone"), [(0, 1, 1), (0, 1024, 1), (0, 1025, 2), (5000, 10, 5), (0, 0, 1)]
)
def test_the_larger_of_before_and_after_counts_double_in_a_transaction(
    before: int, after: int, alone: int
) -> None:
    items = [of_size(size) if size else {} for size in (before, after)]
    put = {"TableName": "t", "Item": KEY}
    assert units(put, *items) == alone
    for action in (
        {"Put": put},
        {"Update": {"TableName": "t", "Key": KEY, "UpdateExpression": "SET a = :a"}},
        {"Delete": {"TableName": "t", "Key": KEY}},
        {"ConditionCheck": {"TableName": "t", "Key": KEY}},
    ):
        assert units({"TransactItems": [action]}, *items) == 2 * alone


def test_a_batch_counts_each_item_once() -> None:
    requests = [{"PutRequest": {"Item": KEY}}, {"DeleteRequest": {"Key": KEY}}]
    found = list(writes({"RequestItems": {"t": requests}}))
    assert [write.units({}, of_size(1500)) for write in found] == [2, 2]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (ROW, {**ROW, "state": {"S": "x"}, "due": {"N": "9000000000000000"}}, 0),
        (ROW, {**ROW, "status": {"S": "completed"}}, 1),
        (ROW, {**ROW, "due": {"N": "7"}}, 2),
        ({}, ROW, 2),
        (ROW, {name: ROW[name] for name in ROW if name not in ("running", "due")}, 1),
    ],
    ids=["nothing projected", "a projected attribute", "a key", "a new item", "out of an index"],
)
def test_an_index_costs_only_when_its_row_changes(before: Item, after: Item, expected: int) -> None:
    assert index_units(before, after) == expected
