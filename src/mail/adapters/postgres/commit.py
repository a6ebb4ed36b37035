"""A change of a task as one statement.

It writes all or nothing, and nothing where the task has moved on or the turn's lease is gone: what it writes is joined
with the row of the task that it could change. The statement before it has locked that row, so what it looks at is what
was committed last.
"""

from typing import Any, LiteralString

from mail.adapters.postgres.keys import task_number
from mail.adapters.postgres.pool import Row
from mail.adapters.shared.codec import encode_events, encode_history
from mail.adapters.shared.snapshots import encode_delivered, encode_read, rows_of
from mail.core.task.change import TaskChange
from mail.core.task.stored import read_task, write_task
from mail.errors import LeaseLost, StoreError, VersionConflict

_BEGIN: LiteralString = """
WITH moved AS (
    INSERT INTO mail.tasks (id, instance, task_id, status, due, delivering, dead, updated, seq, version, state)
    VALUES (%(task)s, %(instance)s, %(task_id)s, %(status)s, %(due)s, %(delivering)s, %(dead)s, %(updated)s,
        %(seq)s, %(version)s, %(state)s)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
), inherited AS (
    INSERT INTO mail.commits (task, seq, agent, n, events, history, state)
    SELECT moved.id, part.*, %(state)s::text FROM moved, unnest(
        %(part_seqs)s::integer[], %(part_agents)s::text[], %(part_ns)s::integer[], %(part_events)s::text[],
        %(part_histories)s::text[]
    ) AS part
)"""

_MOVE: LiteralString = """
WITH moved AS (
    UPDATE mail.tasks SET status = %(status)s, due = %(due)s, delivering = %(delivering)s, dead = %(dead)s,
        updated = %(updated)s, seq = %(seq)s, version = %(version)s, state = %(state)s
    WHERE id = %(task)s AND version = %(expected)s AND (%(token)s::text IS NULL OR EXISTS (
        SELECT FROM mail.leases WHERE task = %(task)s AND mailbox = %(leased)s::text AND token = %(token)s::text
    ))
    RETURNING id
), freed AS (
    DELETE FROM mail.leases USING moved
    WHERE leases.task = moved.id AND mailbox = %(leased)s::text AND token = %(token)s::text
), consumed AS (
    DELETE FROM mail.inbox USING moved
    WHERE inbox.task = moved.id AND mailbox = %(read_mailbox)s::text AND inbox.seq = ANY(%(read)s::integer[])
)"""

_ADD: LiteralString = """, delivered AS (
    INSERT INTO mail.inbox (task, mailbox, tier, seq, message)
    SELECT moved.id, mail.* FROM moved, unnest(
        %(mailboxes)s::text[], %(tiers)s::smallint[], %(seqs)s::integer[], %(messages)s::text[]
    ) AS mail
), written AS (
    INSERT INTO mail.commits (task, seq, agent, n, ended, delivered, read, state, events, history, response)
    SELECT id, %(seq)s, %(agent)s::text, %(n)s::integer, %(ended)s::integer, %(delivered)s::text,
        %(taken)s::text, %(state)s::text, %(events)s::text, %(history)s::text, %(response)s::text
    FROM moved
)
SELECT is_done, (SELECT state FROM mail.tasks WHERE id = %(task)s AND NOT is_done),
    (SELECT token FROM mail.leases WHERE task = %(task)s AND mailbox = %(leased)s::text)
FROM (SELECT EXISTS (SELECT FROM moved) AS is_done) AS outcome
"""

BEGIN_TASK: LiteralString = _BEGIN + _ADD
MOVE_TASK: LiteralString = _MOVE + _ADD

IS_WRITTEN: LiteralString = (
    "SELECT FROM mail.commits WHERE task = %(task)s AND seq = %(seq)s AND events = %(events)s"
)
"""Whether a commit whose answer was lost went through: no two have the same events, with their ids and times."""


def commit_values(change: TaskChange) -> dict[str, Any]:
    """The values of the statements. Raises ValueError for history that JSON can't hold."""
    task, turn, response = change.task, change.turn, change.response
    *parts, (_, new, events) = rows_of(change)
    records = [(seq, record, batch) for seq, record, batch in parts if record is not None]
    assert not records or change.expected_version == 0
    read = () if change.consumed is None else (change.consumed, *change.also_read)
    return {
        "task": task_number(change.key),
        "instance": change.key.instance,
        "task_id": change.key.task_id,
        "status": task.status.value,
        "due": task.deadline,
        "delivering": task.is_delivering,
        "dead": bool(task.dead_letters),
        "updated": task.updated,
        "seq": task.seq,
        "version": task.version,
        "expected": change.expected_version,
        "state": write_task(task),
        "leased": turn and turn.mailbox,
        "token": turn and turn.lease.token,
        "read_mailbox": change.consumed and change.consumed.mailbox,
        "read": [entry.seq for entry in read],
        "mailboxes": [entry.mailbox for entry in change.deliveries],
        "tiers": [int(entry.tier) for entry in change.deliveries],
        "seqs": [entry.seq for entry in change.deliveries],
        "messages": [entry.message.model_dump_json() for entry in change.deliveries],
        "agent": new and new.agent,
        "n": new and new.n,
        "ended": change.ended,
        "delivered": encode_delivered(change),
        "taken": encode_read(change),
        "events": encode_events(events).decode(),
        "history": new and encode_history(new.entries).decode(),
        "response": response and response.model_dump_json(),
        "part_seqs": [seq for seq, _, _ in records],
        "part_agents": [record.agent for _, record, _ in records],
        "part_ns": [record.n for _, record, _ in records],
        "part_events": [encode_events(batch).decode() for _, _, batch in records],
        "part_histories": [encode_history(record.entries).decode() for _, record, _ in records],
    }


def refusal(change: TaskChange, row: Row) -> StoreError | None:
    """Why the change was not written, from what its statement has found; None if it was."""
    is_done, state, token = row
    if is_done:
        return None
    if change.turn is not None and token != change.turn.lease.token:
        return LeaseLost()
    return VersionConflict(None if state is None else read_task(state))
