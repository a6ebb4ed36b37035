"""A change of a task as one statement.

It writes all or nothing, and nothing if the task has another version or the turn's lease is gone: all writes are
joined with the row of the task that the statement could change. The statement before it has locked that row, so that
it sees the last commit. The first commit of a task needs no lock, as it inserts that row. A commit may also take the
leases of turns that read its messages (`mail.adapters.postgres.ahead`).
"""

from collections.abc import Sequence
from typing import Any, LiteralString

from pydantic_core import to_json

from mail.adapters.postgres.ahead import Opening
from mail.adapters.postgres.leases import NEXT_PARK, NOW, encode_lease
from mail.adapters.postgres.pool import Row
from mail.adapters.postgres.schema import task_number
from mail.adapters.shared.snapshots import MOVED_BY, encode_delivered, encode_read, rows_of
from mail.core.task.change import TaskChange
from mail.core.task.stored import read_task, write_task, write_wait
from mail.errors import LeaseLost, StoreError, VersionConflict

_BEGIN: LiteralString = """
WITH moved AS (
    INSERT INTO mail.tasks (id, instance, task_id, status, due, delivering, dead, updated, seq, version, bytes,
        state)
    VALUES (%(task)s, %(instance)s, %(task_id)s, %(status)s, %(deadline)s, %(delivering)s, %(dead)s, %(updated)s,
        %(seq)s, %(version)s, %(bytes)s, %(state)s)
    ON CONFLICT (id) DO NOTHING
    RETURNING id
), inherited AS (
    INSERT INTO mail.commits (task, seq, agent, n, events, history, state)
    SELECT moved.id, inherited_row.*, %(state)s::text FROM moved, unnest(
        %(row_seqs)s::integer[], %(row_agents)s::text[], %(row_ns)s::integer[], %(row_events)s::text[],
        %(row_histories)s::text[]
    ) AS inherited_row
)"""

_MOVE: LiteralString = f"""
WITH moved AS (
    UPDATE mail.tasks SET status = %(status)s, due = least(%(deadline)s, {NEXT_PARK}),
        delivering = %(delivering)s, dead = %(dead)s, updated = %(updated)s, seq = %(seq)s,
        version = %(version)s, bytes = %(bytes)s, state = %(state)s
    WHERE id = %(task)s AND version = %(expected)s AND (%(token)s::text IS NULL OR EXISTS (
        SELECT FROM mail.leases WHERE task = %(task)s AND mailbox = %(leased)s::text AND token = %(token)s::text
    ))
    RETURNING id
), freed AS (
    DELETE FROM mail.leases USING moved
    WHERE leases.task = moved.id AND mailbox = %(leased)s::text AND token = %(token)s::text
        AND mailbox <> ALL(%(opened)s::text[])
), consumed AS (
    DELETE FROM mail.inbox USING moved
    WHERE inbox.task = moved.id AND mailbox = %(read_mailbox)s::text AND inbox.seq = ANY(%(read)s::integer[])
)"""

_RECORDS: LiteralString = """, waiting AS (
    INSERT INTO mail.waits (task, id, due, record)
    SELECT moved.id, wait.* FROM moved, unnest(
        %(wait_ids)s::text[], %(wait_dues)s::double precision[], %(waits)s::text[]
    ) AS wait
    ON CONFLICT (task, id) DO UPDATE SET due = excluded.due, record = excluded.record
), ended AS (
    DELETE FROM mail.waits USING moved WHERE waits.task = moved.id AND waits.id = ANY(%(ended_waits)s::text[])
), asking AS (
    INSERT INTO mail.asks (who, id, task)
    SELECT ask.*, moved.id FROM moved, unnest(%(asks)s::text[], %(ask_ids)s::text[]) AS ask
), unasking AS (
    DELETE FROM mail.asks USING moved, unnest(%(unasks)s::text[], %(unask_ids)s::text[]) AS gone (who, id)
    WHERE asks.who = gone.who AND asks.id = gone.id AND asks.task = moved.id
)"""

_AMEND: LiteralString = """, amended AS (
    UPDATE mail.commits SET state = %(state)s::text, read = coalesce(
        left(commits.read, -1) || ',' || substr(%(consumed)s::text, 2), %(consumed)s::text, commits.read
    ) FROM moved WHERE commits.task = moved.id AND commits.seq = %(seq)s
)
SELECT is_done, (SELECT state FROM mail.tasks WHERE id = %(task)s AND NOT is_done),
    (SELECT token FROM mail.leases WHERE task = %(task)s AND mailbox = %(leased)s::text), '{}'::text[], '{}'::text[]
FROM (SELECT EXISTS (SELECT FROM moved) AS is_done) AS outcome
"""

_ADD: LiteralString = f""", delivered AS (
    INSERT INTO mail.inbox (task, mailbox, tier, seq, message)
    SELECT moved.id, mail.* FROM moved, unnest(
        %(mailboxes)s::text[], %(tiers)s::smallint[], %(seqs)s::integer[], %(messages)s::text[]
    ) AS mail
), written AS (
    INSERT INTO mail.commits (task, seq, agent, n, ended, delivered, read, state, events, history, response)
    SELECT id, %(seq)s, %(agent)s::text, %(n)s::integer, %(ended)s::integer, %(delivered)s::text,
        %(consumed)s::text, %(state)s::text, %(events)s::text, %(history)s::text, %(response)s::text
    FROM moved
), opened AS (
    INSERT INTO mail.leases (task, mailbox, token, expires, owner)
    SELECT moved.id, opening.mailbox, opening.token, {NOW} + %(expires)s, %(owner)s::integer
    FROM moved, unnest(%(opened)s::text[], %(tokens)s::text[]) AS opening (mailbox, token)
    WHERE opening.mailbox IS DISTINCT FROM %(leased)s::text
    ON CONFLICT DO NOTHING
    RETURNING mailbox
), reopened AS (
    UPDATE mail.leases SET token = opening.token, expires = {NOW} + %(expires)s, owner = %(owner)s
    FROM moved, unnest(%(opened)s::text[], %(tokens)s::text[]) AS opening (mailbox, token)
    WHERE leases.task = moved.id AND leases.mailbox = opening.mailbox
        AND opening.mailbox = %(leased)s::text AND leases.token = %(token)s::text
    RETURNING leases.mailbox
)
SELECT is_done, (SELECT state FROM mail.tasks WHERE id = %(task)s AND NOT is_done),
    (SELECT token FROM mail.leases WHERE task = %(task)s AND mailbox = %(leased)s::text),
    ARRAY(SELECT mailbox FROM opened UNION ALL SELECT mailbox FROM reopened),
    ARRAY(
        SELECT mailbox FROM mail.leases WHERE task = %(task)s AND cardinality(%(opened)s::text[]) > 0
            AND mailbox IS DISTINCT FROM %(leased)s::text AND expires > {NOW}
    )
FROM (SELECT EXISTS (SELECT FROM moved) AS is_done) AS outcome
"""

BEGIN_TASK: LiteralString = _BEGIN + _ADD
BEGIN_TASK_WITH_RECORDS: LiteralString = _BEGIN + _RECORDS + _ADD
MOVE_TASK: LiteralString = _MOVE + _ADD
MOVE_TASK_WITH_RECORDS: LiteralString = _MOVE + _RECORDS + _ADD

AMEND_TASK: LiteralString = _MOVE + _RECORDS + _AMEND
"""A change without events: the row of the last commit has the state after it, and what it has consumed."""

_DROP: LiteralString = """, past AS (
    SELECT moved.id, least(%(seq)s,
        (SELECT min(seq) FROM mail.inbox WHERE task = moved.id),
        (SELECT seq FROM mail.commits WHERE task = moved.id AND ended = %(answered)s)
    ) AS until FROM moved
), dropped AS (
    DELETE FROM mail.commits USING past WHERE commits.task = past.id AND commits.seq < until
        AND (n IS NULL OR n < (%(first_portions)s::jsonb ->> agent)::integer)
), kept AS (
    UPDATE mail.commits SET seq = commits.seq - %(moved_by)s, ended = NULL, delivered = NULL, read = NULL, state = '',
        events = '[]', response = NULL
    FROM past WHERE commits.task = past.id AND commits.seq > 0 AND commits.seq < until
        AND n >= coalesce((%(first_portions)s::jsonb ->> agent)::integer, 1)
), unsearched AS (
    DELETE FROM mail.searched USING moved WHERE searched.task = moved.id
), unread AS (
    DELETE FROM mail.texts USING moved WHERE texts.task = moved.id
)"""

DROP_PAST: LiteralString = _MOVE + _DROP + _RECORDS + _AMEND
"""A change that drops the past of a task (`mail.core.task.change.Past`); histories that it keeps get a negative seq."""

DELETE_TASK: LiteralString = """
WITH deleted AS (
    DELETE FROM mail.tasks WHERE id = %(task)s AND version = %(expected)s RETURNING id
), commits AS (
    DELETE FROM mail.commits USING deleted WHERE commits.task = deleted.id
), inbox AS (
    DELETE FROM mail.inbox USING deleted WHERE inbox.task = deleted.id
), leases AS (
    DELETE FROM mail.leases USING deleted WHERE leases.task = deleted.id
), waits AS (
    DELETE FROM mail.waits USING deleted WHERE waits.task = deleted.id
), asks AS (
    DELETE FROM mail.asks USING deleted WHERE asks.task = deleted.id
), contents AS (
    DELETE FROM mail.contents USING deleted WHERE contents.task = deleted.id
), searched AS (
    DELETE FROM mail.searched USING deleted WHERE searched.task = deleted.id
), texts AS (
    DELETE FROM mail.texts USING deleted WHERE texts.task = deleted.id
), wake_ups AS (
    DELETE FROM mail.wake_ups USING deleted WHERE wake_ups.task = deleted.id
)
SELECT is_done, (SELECT state FROM mail.tasks WHERE id = %(task)s AND NOT is_done)
FROM (SELECT EXISTS (SELECT FROM deleted) AS is_done) AS outcome
"""

FIND_MAIL: LiteralString = """
SELECT events FROM mail.commits WHERE task = %(source)s AND seq >= %(sent)s ORDER BY seq LIMIT 1
"""
"""Selects the events of the commit that has sent a message."""

ADD_SLICE: LiteralString = """
WITH delivered AS (
    INSERT INTO mail.inbox (task, mailbox, tier, seq, message)
    SELECT %(task)s, mail.* FROM unnest(
        %(mailboxes)s::text[], %(tiers)s::smallint[], %(seqs)s::integer[], %(messages)s::text[]
    ) AS mail ON CONFLICT DO NOTHING
), written AS (
    INSERT INTO mail.commits (task, seq, agent, n, events, history, state)
    SELECT %(task)s, early.*, '' FROM unnest(
        %(row_seqs)s::integer[], %(row_agents)s::text[], %(row_ns)s::integer[], %(row_events)s::text[],
        %(row_histories)s::text[]
    ) AS early ON CONFLICT DO NOTHING
)
INSERT INTO mail.commits (task, seq, agent, n, delivered, state, events, history)
VALUES (%(task)s, %(seq)s, %(agent)s, %(n)s, %(delivered)s, '', %(events)s, %(history)s) ON CONFLICT DO NOTHING
"""
"""Adds a slice of a fork's first commit, in the transaction of the last one."""

INHERIT: LiteralString = """
WITH copied AS (
    INSERT INTO mail.commits (task, seq, agent, n, state, events, history)
    SELECT %(task)s, -row_number() OVER (ORDER BY agent, n), agent, n, '', '[]', history FROM mail.commits
    WHERE task = %(source)s AND n <= (%(portions)s::jsonb ->> agent)::integer
), contents AS (
    INSERT INTO mail.contents (task, ref, content)
    SELECT %(task)s, ref, content FROM mail.contents WHERE task = %(source)s
) SELECT EXISTS (SELECT FROM mail.tasks WHERE id = %(source)s)
"""
"""Copies what a new task inherits to rows with a negative seq, in the transaction of its first commit.

It selects whether the other task is there.
"""

FIND_WRITTEN: LiteralString = f"""
SELECT true, NULL, NULL,
    ARRAY(SELECT mailbox FROM mail.leases WHERE task = %(task)s AND token = ANY(%(tokens)s::text[])),
    ARRAY(
        SELECT mailbox FROM mail.leases WHERE task = %(task)s AND token <> ALL(%(tokens)s::text[]) AND expires > {NOW}
    )
FROM mail.commits WHERE task = %(task)s AND seq = %(seq)s AND events = %(events)s
"""
"""Selects the outcome of a commit whose answer was lost, if it went through: no two commits have the same events."""


def commit_values(
    change: TaskChange, openings: Sequence[Opening], *, owner: int | None, now: float
) -> dict[str, Any]:
    """Return the values of the statements. Raises ValueError for a history that is not JSON.

    Args:
        openings: the turns that the commit opens, for the server with the number `owner`.
        now: the seconds since the epoch, as that server's clock has them.
    """
    task, turn, response = change.task, change.turn, change.response
    *early, (_, new, events) = rows_of(change)
    inherited = [(seq, history, batch) for seq, history, batch in early if history is not None]
    assert not inherited or change.expected_version == 0
    consumed = () if change.consumed is None else (change.consumed, *change.also_read)
    return {
        "task": task_number(change.key),
        "instance": change.key.instance,
        "task_id": change.key.task_id,
        "status": task.listed_as,
        "deadline": task.deadline,
        "delivering": task.has_outbound_mail,
        "dead": bool(task.dead_letters),
        "updated": task.updated,
        "seq": change.last_seq,
        "clock": now,
        "version": task.version,
        "bytes": task.stored_bytes,
        "expected": change.expected_version,
        "state": write_task(task),
        "leased": turn and turn.mailbox,
        "token": turn and encode_lease(turn.lease),
        "opened": [opening.entry.mailbox for opening in openings],
        "tokens": [encode_lease(opening.lease) for opening in openings],
        "expires": max((opening.lease.expires - now for opening in openings), default=0.0),
        "owner": owner,
        "read_mailbox": change.consumed and change.consumed.mailbox,
        "read": [entry.seq for entry in consumed],
        "mailboxes": [entry.mailbox for entry in change.deliveries],
        "tiers": [int(entry.tier) for entry in change.deliveries],
        "seqs": [entry.seq for entry in change.deliveries],
        "messages": [entry.message.model_dump_json() for entry in change.deliveries],
        "agent": new and new.agent,
        "n": new and new.n,
        "ended": change.ended,
        "delivered": encode_delivered(change),
        "consumed": encode_read(change),
        "events": events.decode(),
        "history": new and new.encoded.decode(),
        "response": response and response.model_dump_json(),
        "wait_ids": [wait.id for wait in change.stored_waits],
        "wait_dues": [wait.waits_until for wait in change.stored_waits],
        "waits": [write_wait(wait) for wait in change.stored_waits],
        "ended_waits": change.ended_waits,
        "asks": [ask.who for ask in change.asks],
        "ask_ids": [ask.id for ask in change.asks],
        "unasks": [ask.who for ask in change.unasks],
        "unask_ids": [ask.id for ask in change.unasks],
        "source": None if change.inherits is None else task_number(change.inherits.key),
        "portions": None if change.inherits is None else to_json(change.inherits.portions).decode(),
        "answered": change.dropped and change.dropped.generation,
        "first_portions": None if change.dropped is None else to_json(change.dropped.portions).decode(),
        "moved_by": MOVED_BY,
        "row_seqs": [seq for seq, _, _ in inherited],
        "row_agents": [history.agent for _, history, _ in inherited],
        "row_ns": [history.n for _, history, _ in inherited],
        "row_events": [batch.decode() for _, _, batch in inherited],
        "row_histories": [history.encoded.decode() for _, history, _ in inherited],
    }


def refusal(change: TaskChange, row: Row) -> StoreError | None:
    """Return why a change was not written, from the row of its statement; None if it was written."""
    is_done, state, token, *_ = row
    if is_done:
        return None
    if change.turn is not None and token != encode_lease(change.turn.lease):
        return LeaseLost()
    return VersionConflict(None if state is None else read_task(state))
