"""Bugs to order: with any of them built in, the crash suite must fail. Else it proves nothing."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from pydantic_core import to_json

from mail.adapters.aws.leases import Leases
from mail.adapters.aws.store import DynamoDBStore
from mail.adapters.aws.table import DynamoDBTable
from mail.adapters.postgres import leases as postgres_turns
from mail.adapters.postgres import store as postgres
from mail.adapters.postgres.schema import task_number
from mail.adapters.postgres.store import PostgresStore
from mail.adapters.sqlite import commit as sqlite
from mail.adapters.sqlite.database import commit_id
from mail.adapters.sqlite.store import SQLiteStore
from mail.core.engine.guards import TurnGuards
from mail.core.engine.recovery import Recovery, Swept
from mail.core.task.change import TaskChange, Turn
from mail.core.task.leases import Lease
from mail.core.task.task import TaskKey
from mail.core.task.turn_state import Checkpoint
from mail.errors import StoreError, VersionConflict


@contextmanager
def torn_commits() -> Iterator[None]:
    """The mail of a commit is written after the rest of it, by a statement of its own."""
    insert = sqlite.insert_commit

    def insert_in_two_steps(sql: sqlite3.Connection, row: int, change: TaskChange, state: bytes) -> None:
        insert(sql, row, replace(change, deliveries=()), state)
        whole = to_json([(entry.mailbox, entry.tier, entry.seq) for entry in change.deliveries])
        place = commit_id(row, change.task.seq)
        sql.execute("UPDATE commits SET delivered = ? WHERE id = ?", (whole, place))

    with patch.object(sqlite, "insert_commit", insert_in_two_steps):
        yield


@contextmanager
def forgotten_checkpoints() -> Iterator[None]:
    """Receipts are not stored, so that nobody knows which actions have run."""

    async def forget(self: Any, turn: Turn, checkpoint: Checkpoint, *, on_disk: bool = False) -> None:
        return None

    with (
        patch.object(SQLiteStore, "save_checkpoint", forget),
        patch.object(Leases, "save_checkpoint", forget),
        patch.object(postgres_turns.Leases, "save_checkpoint", forget),
    ):
        yield


@contextmanager
def no_recovery() -> Iterator[None]:
    """After a restart nobody is woken, not even for the turns that commits have opened."""

    async def sleep_on(self: Recovery, **_: Any) -> int:
        return 0

    async def look_away(self: Recovery, **_: Any) -> Swept:
        return Swept()

    with patch.object(Recovery, "recover", sleep_on), patch.object(Recovery, "sweep", look_away):
        yield


@contextmanager
def late_commits() -> Iterator[None]:
    """A commit is acknowledged before it is in the file: it gets there with the next one."""
    write, insert = sqlite.write_change, sqlite.insert_commit

    def write_the_one_before(sql: sqlite3.Connection, *args: Any) -> int | None:
        if sql.in_transaction:
            sql.execute("COMMIT")
        return write(sql, *args)

    def insert_for_later(sql: sqlite3.Connection, row: int, change: TaskChange, state: bytes) -> None:
        if not sql.in_transaction:
            sql.execute("BEGIN")
        insert(sql, row, change, state)

    with (
        patch("mail.adapters.sqlite.store.write_change", write_the_one_before),
        patch.object(sqlite, "insert_commit", insert_for_later),
    ):
        yield


@contextmanager
def misplaced_checkpoints() -> Iterator[None]:
    """The output for one message is used for a more urgent one that has come into the same mailbox."""
    open_turn = SQLiteStore.open_turn

    async def open_with_any(self: SQLiteStore, *args: Any, **options: Any) -> Any:
        turn = await open_turn(self, *args, **options)
        if not isinstance(turn, Turn) or turn.checkpoint is not None:
            return turn
        cached = self._cache[turn.task.key]
        places = [place for place in cached.checkpoints if place[0] == turn.mailbox]
        return replace(turn, checkpoint=next((self._checkpoint(cached, *place) for place in places), None))

    with patch.object(SQLiteStore, "open_turn", open_with_any):
        yield


@contextmanager
def torn_transactions() -> Iterator[None]:
    """On DynamoDB: the mail of a commit is written after the rest of it, by a request of its own."""
    transact = DynamoDBTable.transact

    async def transact_in_two_steps(self: DynamoDBTable, actions: Sequence[Any], token: str) -> None:
        items = [action["Put"]["Item"] for action in actions if "Put" in action]
        mail = [item for item in items if "#I#" in item["SK"]["S"]]
        rest = [action for action in actions if action.get("Put", {}).get("Item") not in mail]
        await transact(self, rest, token)
        await self.put_many(mail)

    with patch.object(DynamoDBTable, "transact", transact_in_two_steps):
        yield


def without_condition(condition: str, value: str) -> AbstractContextManager[Any]:
    """On DynamoDB: commits don't ask for one of the things that they should."""
    transact = DynamoDBTable.transact

    async def transact_unasked(self: DynamoDBTable, actions: Sequence[Any], token: str) -> None:
        update = deepcopy(actions[0].get("Update", {}))
        asked = update.get("ConditionExpression", "")
        if condition in asked:
            update["ConditionExpression"] = asked.replace(condition, "attribute_exists(PK)")
            del update["ExpressionAttributeValues"][value]
            names = update["ExpressionAttributeNames"]
            text = update["ConditionExpression"] + update["UpdateExpression"]
            update["ExpressionAttributeNames"] = {name: names[name] for name in names if name in text}
            actions = [{"Update": update}, *actions[1:]]
        await transact(self, actions, token)

    return patch.object(DynamoDBTable, "transact", transact_unasked)


@contextmanager
def unordered_commits() -> Iterator[None]:
    """On DynamoDB: a commit overwrites whatever has been committed since its task was read."""
    with without_condition("#version = :expected", ":expected"):
        yield


@contextmanager
def zombies() -> Iterator[None]:
    """On DynamoDB: a process commits its turn though somebody else has taken it over."""

    async def forgive(self: DynamoDBStore, change: TaskChange, *refusal: object) -> StoreError:
        return VersionConflict(await self.load(change.key))

    lenient = patch.object(DynamoDBStore, "_refusal", forgive)
    with lenient, without_condition("#leases.#mailbox.#token = :token", ":token"):
        yield


@contextmanager
def ignored_leases() -> Iterator[None]:
    """On DynamoDB: a mailbox that somebody works on is given to anybody who asks."""
    take = Leases._take

    async def take_by_force(self: Leases, key: TaskKey, mailbox: str, lease: Lease, now: float) -> Any:
        return await take(self, key, mailbox, lease, now + 1e9)

    with patch.object(Leases, "_take", take_by_force):
        yield


@contextmanager
def torn_pipelines() -> Iterator[None]:
    """On PostgreSQL: the mail of a commit is written after the rest of it, in a transaction of its own."""
    commit = PostgresStore.commit

    async def commit_in_two_steps(self: PostgresStore, change: TaskChange) -> None:
        await commit(self, replace(change, deliveries=()))
        number = task_number(change.key)
        for entry in change.deliveries:
            text = entry.message.model_dump_json()
            await self._sql.fetch(
                "INSERT INTO mail.inbox (task, mailbox, tier, seq, message) VALUES (%s, %s, %s, %s, %s)",
                (number, entry.mailbox, int(entry.tier), entry.seq, text),
            )

    with patch.object(PostgresStore, "commit", commit_in_two_steps):
        yield


def without(module: Any, name: str, condition: str) -> AbstractContextManager[Any]:
    """On PostgreSQL: a statement doesn't ask for something that it should."""
    statement = getattr(module, name)
    assert condition in statement
    return patch.object(module, name, statement.replace(condition, ""))


@contextmanager
def unordered_pipelines() -> Iterator[None]:
    """On PostgreSQL: a commit overwrites whatever has been committed since its task was read."""
    with without(postgres, "MOVE_TASK", "AND version = %(expected)s"):
        yield


@contextmanager
def living_dead() -> Iterator[None]:
    """On PostgreSQL: a process commits its turn though somebody else has taken it over."""
    asks = " AND (%(token)s::text IS NULL OR EXISTS (\n        SELECT FROM mail.leases WHERE task = %(task)s"
    asks += " AND mailbox = %(leased)s::text AND token = %(token)s::text\n    ))"

    def forgive(change: TaskChange, row: Any) -> StoreError | None:
        return None if row[0] else VersionConflict()

    with without(postgres, "MOVE_TASK", asks), patch.object(postgres, "refusal", forgive):
        yield


@contextmanager
def stolen_leases() -> Iterator[None]:
    """On PostgreSQL: a mailbox that somebody works on is given to anybody who asks."""
    now = postgres_turns.NOW
    asks = f"WHERE held.expires <= {now} + %(now)s OR held.token = excluded.token"
    with without(postgres_turns, "TAKE_LEASE", asks):
        yield


@contextmanager
def late_guards() -> Iterator[None]:
    """A reply is stored before its guards have judged it."""
    judge = TurnGuards.judge

    async def keep_first(self: TurnGuards, output: Checkpoint, recipient: str) -> Checkpoint:
        await self.keep(output)
        return await judge(self, output, recipient)

    with patch.object(TurnGuards, "judge", keep_first):
        yield


@contextmanager
def forgotten_refusals() -> Iterator[None]:
    """A call runs although a guard has refused it."""
    with patch.object(Checkpoint, "refusal", lambda self, place: None):
        yield


SABOTAGES: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "torn commits": torn_commits,
    "forgotten checkpoints": forgotten_checkpoints,
    "no recovery": no_recovery,
    "late commits": late_commits,
    "misplaced checkpoints": misplaced_checkpoints,
    "torn transactions": torn_transactions,
    "unordered commits": unordered_commits,
    "zombies": zombies,
    "ignored leases": ignored_leases,
    "torn pipelines": torn_pipelines,
    "unordered pipelines": unordered_pipelines,
    "living dead": living_dead,
    "stolen leases": stolen_leases,
    "late guards": late_guards,
    "forgotten refusals": forgotten_refusals,
}
