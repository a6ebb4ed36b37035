"""The events of tasks that EventBridge gets: the filter of template.yaml, on items that the store has written."""

from pathlib import Path
from typing import Any

import pytest
from moto.events.models import EventPattern
from support.engines.dynamodb import DynamoDBAdapter

from mail.adapters.aws.client import AwsClient
from mail.core.task.task import TaskKey, Transition
from mail.local_aws.deployment import read_template
from mail.testing.changes import ANN, Mail, Maker
from mail.testing.contracts import open_turn

TEMPLATE = Path(__file__).parents[2] / "template.yaml"
KEY = TaskKey(ANN, "task-1")


@pytest.fixture
def pipe() -> dict[str, Any]:
    properties: dict[str, Any] = read_template(TEMPLATE)["Resources"]["TaskEvents"]["Properties"]
    return properties


async def test_a_task_that_ends_is_an_event(
    table: DynamoDBAdapter, client: AwsClient, make: Maker, pipe: dict[str, Any]
) -> None:
    store = table.another(client)

    async def stored() -> dict[str, Any]:
        answer = await client.call(
            "get_item", TableName=table.table, Key={"PK": {"S": f"T#{ANN}#task-1"}, "SK": {"S": "META"}}
        )
        item: dict[str, Any] = answer["Item"]
        return item

    def events(old: dict[str, Any], new: dict[str, Any]) -> int:
        """How many of the filters let the record of the table's stream pass; one event is sent if any does."""
        images = {"OldImage": old, "NewImage": new}
        readable = {  # moto copies records by way of JSON, which has no bytes
            name: {attribute: value for attribute, value in item.items() if "B" not in value}
            for name, item in images.items()
        }
        record = {"eventName": "MODIFY", "dynamodb": readable}
        filters = pipe["SourceParameters"]["FilterCriteria"]["Filters"]
        return sum(EventPattern.load(each["Pattern"]).matches_event(record) for each in filters)

    await store.commit(make.begin(KEY, Mail("alpha")))
    begun = await stored()
    turn = await open_turn(store, KEY, "alpha", make)
    leased = await stored()
    assert events(begun, leased) == 0
    await store.commit(make.change(turn.task, turn=turn, transition=Transition.COMPLETE))
    ended = await stored()
    assert events(leased, ended) == 1
    assert events(ended, ended) == 0
    for path in ("instance", "PK", "status"):
        assert f"<$.dynamodb.NewImage.{path}.S>" in pipe["TargetParameters"]["InputTemplate"]["Fn::Sub"]
        assert ended[path].keys() == {"S"}
