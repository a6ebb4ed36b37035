"""The rows of a task in the file: how a change becomes some, and how they go."""

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import astuple

from pydantic_core import to_json

from mail.adapters.shared.snapshots import MOVED_BY, decode_read, encode_delivered, encode_read, rows_of
from mail.adapters.sqlite.database import commit_id, give_space_back, transaction
from mail.adapters.sqlite.task_cache import CachedTask, IndexColumns
from mail.core.task.change import Past, TaskChange
from mail.core.task.stored import TaskEncoder, write_wait
from mail.core.task.task import TaskKey
from mail.core.task.waits import Wait

FIRST_SEQ = -(2**31)
"""What a fork has inherited begins here (`commit_id`)."""

_FIND_DOOMED = f"""
SELECT tasks.id, instance, task_id FROM json_each(?) AS doomed
JOIN tasks ON instance = json_extract(doomed.value, '$[0]') AND task_id = json_extract(doomed.value, '$[1]')
WHERE json_extract(doomed.value, '$[2]') = (
    SELECT json_extract(CAST(state AS TEXT), '$.version') FROM commits
    WHERE commits.id > (tasks.id << 32) + {FIRST_SEQ} AND commits.id < (tasks.id + 1 << 32) + {FIRST_SEQ}
    ORDER BY commits.id DESC LIMIT 1
)
"""  # noqa: S608

UNSCRUBBED = "unscrubbed"
"""The setting that says that pages may have copies of deleted texts in their unused parts."""

PUT_WAIT = "INSERT INTO waits (task, id, due, record) VALUES (?, ?, ?, ?) ON CONFLICT DO"
REPLACE = "UPDATE SET due = excluded.due, record = excluded.record"


def write_change(
    sql: sqlite3.Connection,
    change: TaskChange,
    cached: CachedTask | None,
    columns: IndexColumns,
    encoder: TaskEncoder,
    reserved: int | None = None,
) -> int | None:
    """Write a change; return the row of its task, or None if there is a task of this key already.

    A new task is written to the `reserved` row, if there is one.
    The usual turn is a single statement, which is atomic.
    """
    finished = cached.finished_checkpoint(change) if cached is not None and cached.checkpoints else None
    if cached is not None and finished is None and columns == cached.columns and not change.has_records:
        insert_commit(sql, cached.row, change, encoder.encode(change.task))
        return cached.row
    sql.execute("BEGIN IMMEDIATE")
    row: int | None
    if cached is None and reserved is not None:
        row = reserved
        updated = sql.execute(
            "UPDATE OR IGNORE tasks SET instance = ?, task_id = ?, status = ?, due = ?, delivering = ?,"
            " dead = ?, bytes = ? WHERE id = ?",
            (*change.key, *columns, change.task.stored_bytes, row),
        )
        if not updated.rowcount:
            sql.execute("ROLLBACK")
            return None
    elif cached is None:
        inserted = sql.execute(
            "INSERT INTO tasks (instance, task_id, status, due, delivering, dead, bytes)"
            " VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
            (*change.key, *columns, change.task.stored_bytes),
        )
        if not inserted.rowcount:
            sql.execute("ROLLBACK")
            return None
        row = inserted.lastrowid
        assert row is not None
    else:
        row = cached.row
        sql.execute(
            "UPDATE tasks SET status = ?, due = ?, delivering = ?, dead = ?, bytes = ? WHERE id = ?",
            (*columns, change.task.stored_bytes, row),
        )
    if finished is not None:
        sql.execute("DELETE FROM checkpoints WHERE task = ? AND mailbox = ? AND seq = ?", (row, *finished))
    if change.has_records:
        sql.executemany(f"{PUT_WAIT} {REPLACE}", [wait_row(row, wait) for wait in change.stored_waits])
        ended = [(row, wait_id) for wait_id in change.ended_waits]
        sql.executemany("DELETE FROM waits WHERE task = ? AND id = ?", ended)
        sql.executemany("DELETE FROM asks WHERE who = ? AND id = ?", map(astuple, change.unasks))
        asks = [(*astuple(ask), row) for ask in change.asks]
        sql.executemany("INSERT INTO asks (who, id, task) VALUES (?, ?, ?)", asks)
    if change.dropped is not None and cached is not None:
        unread = min((seq for _, seq, _ in cached.all_mail()), default=change.task.seq)
        _drop_past(sql, row, change.dropped, commit_id(row, min(unread, change.task.seq)))
    insert_commit(sql, row, change, encoder.encode(change.task))
    sql.execute("COMMIT")
    return row


def insert_commit(sql: sqlite3.Connection, row: int, change: TaskChange, state: bytes) -> None:
    """Insert the rows of a change, with the state of the task after it."""
    consumed, response = change.consumed, change.response
    consumed_seqs: int | str | None = consumed.seq if consumed else None
    if consumed and change.also_read:
        consumed_seqs = to_json([consumed.seq, *(entry.seq for entry in change.also_read)]).decode()
    if not change.events:
        sql.execute(
            "UPDATE commits SET state = ?, read_mailbox = coalesce(read_mailbox, ?), read_seq ="
            " coalesce('[' || trim(read_seq, '[]') || ',' || substr(?, 2), ?, read_seq) WHERE id = ?",
            (
                state,
                consumed and consumed.mailbox,
                encode_read(change),
                consumed_seqs,
                commit_id(row, change.task.seq),
            ),
        )
        return
    *early, (seq, new, events) = rows_of(change)
    for early_seq, record, batch in early:
        assert record is not None
        sql.execute(
            "INSERT INTO commits (id, agent, n, state, events, history) VALUES (?, ?, ?, ?, ?, ?)",
            (
                commit_id(row, early_seq),
                record.agent,
                record.n,
                state,
                batch,
                record.encoded,
            ),
        )
    sql.execute(
        "INSERT INTO commits (id, agent, n, ended, delivered, read_mailbox, read_seq, state, events, history,"
        " response) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            commit_id(row, seq),
            new and new.agent,
            new and new.n,
            change.ended,
            encode_delivered(change),
            consumed and consumed.mailbox,
            consumed_seqs,
            state,
            events,
            new and new.encoded,
            response and response.model_dump_json(),
        ),
    )


def _drop_past(sql: sqlite3.Connection, row: int, past: Past, end: int) -> None:
    """Delete the commits before the last answer and the id `end`, but for histories: they get ids of inherited ones."""
    first, _ = ids_of(row)
    answered = sql.execute(
        "SELECT id FROM commits WHERE id > ? AND id < ? AND ended = ?", (first, end, past.generation)
    ).fetchone()
    end = end if answered is None else answered[0]
    sql.execute("PRAGMA secure_delete = ON").fetchall()
    sql.execute("INSERT OR IGNORE INTO settings (name, value) VALUES (?, '')", (UNSCRUBBED,))
    sql.execute(
        "DELETE FROM commits WHERE id > ? AND id < ? AND"
        " (n IS NULL OR n < (SELECT value FROM json_each(?) WHERE key = agent))",
        (first, end, to_json(past.portions).decode()),
    )
    sql.execute(
        "UPDATE commits SET id = id - ?, ended = NULL, delivered = NULL, read_mailbox = NULL, read_seq = NULL,"
        " state = '', events = '[]', response = NULL WHERE id > ? AND id < ?",
        (MOVED_BY, commit_id(row, 0), end),
    )
    give_space_back(sql)


def wait_row(row: int, wait: Wait) -> tuple[int, str, float | None, str]:
    return row, wait.id, wait.waits_until, write_wait(wait)


def consumed_by(mailbox: str | None, seqs: int | str | None) -> list[tuple[str, int]]:
    """Return the mailbox and seq of each message that a commit has consumed, given its columns."""
    if mailbox is None or seqs is None:
        return []
    if isinstance(seqs, int):
        return [(mailbox, seqs)]
    return decode_read(f"[{to_json(mailbox).decode()},{seqs[1:]}")


def delete_tasks(sql: sqlite3.Connection, tasks: Iterable[tuple[str, str, int]]) -> dict[TaskKey, int]:
    """Delete those of the tasks, by instance, id and version, that have this version; return them, with their rows.

    What is deleted is overwritten.
    """
    sql.execute("PRAGMA secure_delete = ON").fetchall()
    with transaction(sql):
        found = sql.execute(_FIND_DOOMED, (to_json(list(tasks)).decode(),)).fetchall()
        delete_rows(sql, [row for row, *_ in found])
        give_space_back(sql)
    return {TaskKey(instance, task_id): row for row, instance, task_id in found}


def delete_rows(sql: sqlite3.Connection, rows: Sequence[int]) -> None:
    """Delete the rows of tasks, and note that what this leaves in unused space must be overwritten, too."""
    sql.execute("INSERT OR IGNORE INTO settings (name, value) VALUES (?, '')", (UNSCRUBBED,))
    sql.executemany("DELETE FROM commits WHERE id > ? AND id < ?", map(ids_of, rows))
    given = (to_json(rows).decode(),)
    for table in ("checkpoints", "waits", "asks", "contents"):
        sql.execute(f"DELETE FROM {table} WHERE task IN (SELECT value FROM json_each(?))", given)  # noqa: S608
    sql.execute("DELETE FROM tasks WHERE id IN (SELECT value FROM json_each(?))", given)


def ids_of(row: int) -> tuple[int, int]:
    """Return the exclusive bounds of the ids of a task's commits."""
    return commit_id(row, FIRST_SEQ), commit_id(row + 1, FIRST_SEQ)
