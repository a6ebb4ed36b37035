"""Creates the table and its indexes as `template.yaml` declares them, for tests and for engines on this machine."""

import contextlib

from mail.adapters.aws.client import AwsClient, Refused, back_off
from mail.errors import StoreUnavailable

TASKS_INDEX = "tasks"
"""The tasks of each instance, by start."""

RUNNING_INDEX = "running"
"""The running tasks, by deadline."""

DEAD_INDEX = "dead"
"""The tasks with dead letters, by instance."""

_ATTRIBUTES = {
    "PK": "S",
    "SK": "S",
    "instance": "S",
    "started": "S",
    "running": "S",
    "due": "N",
    "dead": "S",
    "dead_place": "S",
}

_ATTEMPTS = 60


async def create_table(client: AwsClient, name: str) -> bool:
    """Create the table if it is missing; return whether it was. Raises StoreUnavailable.

    Turn on the expiry of items and continuous backups in any case, as a restored table has neither.
    """
    is_new = True
    try:
        await client.call(
            "create_table",
            expect=("ResourceInUseException",),
            TableName=name,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[
                {"AttributeName": attribute, "AttributeType": kind} for attribute, kind in _ATTRIBUTES.items()
            ],
            KeySchema=_key("PK", "SK"),
            GlobalSecondaryIndexes=[
                {
                    "IndexName": TASKS_INDEX,
                    "KeySchema": _key("instance", "started"),
                    "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["status", "bytes"]},
                },
                {
                    "IndexName": RUNNING_INDEX,
                    "KeySchema": _key("running", "due"),
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                },
                {
                    "IndexName": DEAD_INDEX,
                    "KeySchema": _key("dead", "dead_place"),
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                },
            ],
        )
    except Refused:
        is_new = False
    await _until_active(client, name)
    with contextlib.suppress(Refused):  # it is on
        await client.call(
            "update_time_to_live",
            expect=("ValidationException",),
            TableName=name,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"},
        )
    await _turn_on_backups(client, name)
    return is_new


def _key(hash_key: str, range_key: str) -> list[dict[str, str]]:
    return [{"AttributeName": hash_key, "KeyType": "HASH"}, {"AttributeName": range_key, "KeyType": "RANGE"}]


async def _until_active(client: AwsClient, name: str) -> None:
    for attempt in range(_ATTEMPTS):
        table = (await client.call("describe_table", TableName=name))["Table"]
        if table["TableStatus"] == "ACTIVE":
            return
        await back_off(attempt)
    raise StoreUnavailable(f"the table {name} is not ready yet; try again")


async def _turn_on_backups(client: AwsClient, name: str) -> None:
    """Turn on point-in-time recovery; not all local engines have it."""
    for attempt in range(_ATTEMPTS):
        try:
            await client.call(
                "update_continuous_backups",
                expect=("UnknownOperationException", "ContinuousBackupsUnavailableException"),
                TableName=name,
                PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True},
            )
        except Refused as refusal:
            if refusal.code == "UnknownOperationException":
                return
        else:
            return
        await back_off(attempt)
