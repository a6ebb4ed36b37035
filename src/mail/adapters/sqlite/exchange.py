"""Mailboxes of an exchange in an SQLite file, which several processes may use concurrently.

The exchange has tables and a schema version of its own, so that it may share a file with the tasks of a server: it
ignores the server's claim on the file, and locks the file for one batch of deliveries at a time.

The content of a mail is stored in one row, with references from outboxes and inboxes, and deleted with the last of
them. A broadcast to more than a batch of mailboxes stays in the outbox, with its progress, until it is delivered to
all.
"""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mail.core.task.documents import IN_MEMORY
from mail.core.task.exchange import MailboxContents
from mail.errors import ConfigurationError, StoreUnavailable

SCHEMA_VERSION = 1

SCHEMA = (
    "CREATE TABLE exchange_schema (version INTEGER NOT NULL)",
    f"INSERT INTO exchange_schema VALUES ({SCHEMA_VERSION})",  # noqa: S608
    # AUTOINCREMENT never reuses an id: an owner that registers again gets another mailbox
    """CREATE TABLE exchange_boxes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        exchange TEXT NOT NULL,
        owner TEXT NOT NULL,
        UNIQUE (exchange, owner)
    )""",
    "CREATE INDEX exchange_boxes_of_all ON exchange_boxes (exchange, id)",
    """CREATE TABLE exchange_mail (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        mail_id TEXT NOT NULL,
        mail TEXT NOT NULL
    )""",
    """CREATE TABLE exchange_outbox (
        mail INTEGER PRIMARY KEY REFERENCES exchange_mail (id),
        exchange TEXT NOT NULL,
        box INTEGER NOT NULL,
        sender TEXT NOT NULL,
        recipient TEXT,
        reached INTEGER NOT NULL DEFAULT 0  -- of a broadcast: the last mailbox that has got it
    )""",
    "CREATE INDEX exchange_outbox_of_all ON exchange_outbox (exchange, mail)",
    "CREATE INDEX exchange_outbox_of_one ON exchange_outbox (box, mail)",
    """CREATE TABLE exchange_inbox (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        box INTEGER NOT NULL,
        sender TEXT NOT NULL,
        mail_id TEXT NOT NULL,
        mail INTEGER NOT NULL REFERENCES exchange_mail (id)
    )""",
    "CREATE INDEX exchange_inbox_by_sender ON exchange_inbox (box, sender, id)",
    "CREATE INDEX exchange_inbox_by_id ON exchange_inbox (box, mail_id)",
    "CREATE INDEX exchange_inbox_by_mail ON exchange_inbox (mail)",
    *(
        f"CREATE TRIGGER exchange_last_of_{table} AFTER DELETE ON exchange_{table} "  # noqa: S608
        "WHEN NOT EXISTS (SELECT 1 FROM exchange_inbox WHERE mail = OLD.mail) "
        "AND NOT EXISTS (SELECT 1 FROM exchange_outbox WHERE mail = OLD.mail) "
        "BEGIN DELETE FROM exchange_mail WHERE id = OLD.mail; END"
        for table in ("outbox", "inbox")
    ),
)

BATCH = 500
"""The number of deliveries in one transaction."""

BUSY_SECONDS = 10.0
"""Seconds that a call waits for a lock of another process."""


class SQLiteMailboxes:
    """`mail.core.task.exchange.MailboxStore` on an SQLite file.

    It has a connection and a thread of its own, so that waiting for a lock doesn't block the event loop.

    Args:
        exchange: the name of the exchange; a file may have several.
    """

    def __init__(self, path: str | Path, exchange: str = "") -> None:
        self.path = str(path)
        self._exchange = exchange
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="exchange-sqlite")

    async def open(self) -> None:
        """Open the file, and create the tables if they are missing. Raises ConfigurationError."""
        try:
            await self._run(self._open)
        except (OSError, StoreUnavailable) as error:
            await self.close()
            raise ConfigurationError(f"{self.path} can't be used as a database: {error}") from error
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the file."""
        await self._run(self._close)
        self._thread.shutdown(wait=False)

    # ------------------------------------------------------------------------------------------ mailboxes

    async def register(self, owner: str) -> bool:
        return await self._run(self._register, owner)

    async def unregister(self, owner: str) -> MailboxContents | None:
        return await self._run(self._unregister, owner)

    async def contents(self, owner: str) -> MailboxContents | None:
        return await self._run(self._contents, owner)

    async def has(self, owner: str) -> bool:
        return await self._run(self._box, owner) is not None

    async def owners(self) -> list[str]:
        return await self._run(
            self._texts, "SELECT owner FROM exchange_boxes WHERE exchange = ? ORDER BY id", self._exchange
        )

    # ----------------------------------------------------------------------------------------------- mail

    async def send(self, sender: str, recipient: str | None, mail_id: str, mail: str) -> bool:
        return await self._run(self._send, sender, recipient, mail_id, mail)

    async def collect(self, owner: str | None) -> int | None:
        """Deliver the mail that exists now, in a transaction per batch."""
        last = await self._run(self._last_sent, owner)
        if last is None:
            return None
        routed, is_more = 0, True
        while is_more:
            is_more, arrived = await self._run(self._collect_some, owner, last)
            routed += arrived
        return routed

    async def receive(self, owner: str, sender: str | None) -> list[str]:
        return await self._run(self._receive, owner, sender)

    async def pop(self, owner: str, sender: str) -> str | None:
        return await self._run(self._pop, owner, sender)

    async def remove(self, owner: str, sender: str, mail_id: str) -> bool:
        return await self._run(self._remove, owner, sender, mail_id)

    # ------------------------------------------------------------------------------------- in the thread

    async def _run[**P, R](self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._thread, lambda: function(*args, **kwargs)
            )
        except sqlite3.Error as error:
            raise StoreUnavailable(f"{self.path}: {error}") from error

    def _open(self) -> None:
        if self.path != IN_MEMORY:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            Path(self.path).touch(mode=0o600)
        self._sql = sqlite3.connect(self.path, isolation_level=None, timeout=BUSY_SECONDS)
        self._use_wal()
        self._sql.execute("PRAGMA synchronous = normal")
        with self._transaction():
            (is_there,) = self._row(
                "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'exchange_schema'"
            ) or (0,)
            if not is_there:
                for statement in SCHEMA:
                    self._sql.execute(statement)
            (version,) = self._row("SELECT version FROM exchange_schema") or (None,)
        if version != SCHEMA_VERSION:
            raise ConfigurationError(
                f"{self.path} has an exchange of schema version {version}, this program needs {SCHEMA_VERSION}; "
                "use another database file or another version of this program"
            )

    def _use_wal(self) -> None:
        """Turn on WAL mode. SQLite itself doesn't wait for locks here."""
        until = time.monotonic() + BUSY_SECONDS
        while True:
            try:
                self._sql.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
            time.sleep(0.01)

    def _close(self) -> None:
        if hasattr(self, "_sql"):
            self._sql.close()

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        self._sql.execute(f"BEGIN {kind}")
        try:
            yield
            self._sql.execute("COMMIT")
        except BaseException:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise

    def _row(self, statement: str, *values: Any) -> tuple[Any, ...] | None:
        rows = self._sql.execute(statement, values).fetchall()
        return rows[0] if rows else None

    def _texts(self, statement: str, *values: Any) -> list[str]:
        return [text for (text,) in self._sql.execute(statement, values)]

    def _box(self, owner: str) -> int | None:
        row = self._row(
            "SELECT id FROM exchange_boxes WHERE exchange = ? AND owner = ?", self._exchange, owner
        )
        return None if row is None else int(row[0])

    def _register(self, owner: str) -> bool:
        inserted = self._sql.execute(
            "INSERT INTO exchange_boxes (exchange, owner) VALUES (?, ?) ON CONFLICT DO NOTHING",
            (self._exchange, owner),
        )
        return inserted.rowcount > 0

    def _unregister(self, owner: str) -> MailboxContents | None:
        with self._transaction():
            contents, box = self._read_contents(owner), self._box(owner)
            self._sql.execute("DELETE FROM exchange_boxes WHERE id = ?", (box,))
            self._sql.execute("DELETE FROM exchange_outbox WHERE box = ?", (box,))
            self._sql.execute("DELETE FROM exchange_inbox WHERE box = ?", (box,))
        return contents

    def _contents(self, owner: str) -> MailboxContents | None:
        with self._transaction("DEFERRED"):
            return self._read_contents(owner)

    def _read_contents(self, owner: str) -> MailboxContents | None:
        box = self._box(owner)
        if box is None:
            return None
        outbox = self._texts(
            "SELECT exchange_mail.mail FROM exchange_outbox JOIN exchange_mail ON id = exchange_outbox.mail "
            "WHERE box = ? ORDER BY exchange_outbox.mail",
            box,
        )
        return outbox, self._receive(owner, None)

    def _send(self, sender: str, recipient: str | None, mail_id: str, mail: str) -> bool:
        with self._transaction():
            box = self._box(sender)
            if box is None:
                return False
            written = self._sql.execute(
                "INSERT INTO exchange_mail (mail_id, mail) VALUES (?, ?)", (mail_id, mail)
            )
            self._sql.execute(
                "INSERT INTO exchange_outbox (mail, exchange, box, sender, recipient) VALUES (?, ?, ?, ?, ?)",
                (written.lastrowid, self._exchange, box, sender, recipient),
            )
        return True

    def _last_sent(self, owner: str | None) -> int | None:
        """Return the newest mail in the outboxes, 0 if there is none; None if the owner has no mailbox."""
        if owner is not None and self._box(owner) is None:
            return None
        where, value = self._outboxes(owner)
        row = self._row(f"SELECT max(mail) FROM exchange_outbox WHERE {where}", value)  # noqa: S608
        return (row[0] if row else None) or 0

    def _outboxes(self, owner: str | None) -> tuple[str, int | str | None]:
        """Return the condition for the mail of one owner or of all, and its value."""
        return ("exchange = ?", self._exchange) if owner is None else ("box = ?", self._box(owner))

    def _collect_some(self, owner: str | None, last: int) -> tuple[bool, int]:
        """Deliver one batch; return whether there may be more, and the number of mails delivered completely."""
        arrived, left = 0, BATCH
        with self._transaction():
            where, value = self._outboxes(owner)
            found = self._sql.execute(
                "SELECT mail, sender, recipient, reached FROM exchange_outbox "  # noqa: S608
                f"WHERE {where} AND mail <= ? ORDER BY mail LIMIT ?",
                (value, last, BATCH),
            ).fetchall()
            for mail, sender, recipient, reached in found:
                if recipient is not None:
                    made = self._deliver(mail, sender, recipient)
                else:
                    made = self._deliver_to_all(mail, sender, reached, left)
                left -= max(1, made)
                if left <= 0 and recipient is None:  # there may be more recipients
                    break
                self._sql.execute("DELETE FROM exchange_outbox WHERE mail = ?", (mail,))
                arrived += made + reached > 0
                if left <= 0:
                    break
        return left <= 0, arrived

    def _deliver(self, mail: int, sender: str, recipient: str) -> int:
        inserted = self._sql.execute(
            "INSERT INTO exchange_inbox (box, sender, mail_id, mail) "
            "SELECT box.id, ?, mail_id, mail.id FROM exchange_boxes AS box JOIN exchange_mail AS mail ON mail.id = ? "
            "WHERE exchange = ? AND owner = ?",
            (sender, mail, self._exchange, recipient),
        )
        return inserted.rowcount

    def _deliver_to_all(self, mail: int, sender: str, reached: int, most: int) -> int:
        """Deliver a broadcast to the next mailboxes, and store the progress; return the number of mailboxes."""
        boxes = self._sql.execute(
            "SELECT id FROM exchange_boxes INDEXED BY exchange_boxes_of_all "
            "WHERE exchange = ? AND id > ? AND owner <> ? ORDER BY id LIMIT ?",
            (self._exchange, reached, sender, most),
        ).fetchall()
        self._sql.executemany(
            "INSERT INTO exchange_inbox (box, sender, mail_id, mail) SELECT ?, ?, mail_id, id FROM exchange_mail "
            "WHERE id = ?",
            [(box, sender, mail) for (box,) in boxes],
        )
        if boxes:
            self._sql.execute("UPDATE exchange_outbox SET reached = ? WHERE mail = ?", (boxes[-1][0], mail))
        return len(boxes)

    def _receive(self, owner: str, sender: str | None) -> list[str]:
        box = self._box(owner)
        texts = (
            "SELECT exchange_mail.mail FROM exchange_inbox JOIN exchange_mail "
            "ON exchange_mail.id = exchange_inbox.mail WHERE box = ?"
        )
        if sender is not None:
            return self._texts(f"{texts} AND sender = ? ORDER BY exchange_inbox.id", box, sender)
        return self._texts(f"{texts} ORDER BY sender, exchange_inbox.id", box)

    def _pop(self, owner: str, sender: str) -> str | None:
        with self._transaction():
            row = self._row(
                "SELECT exchange_inbox.id, exchange_mail.mail FROM exchange_inbox JOIN exchange_mail "
                "ON exchange_mail.id = exchange_inbox.mail WHERE box = ? AND sender = ? "
                "ORDER BY exchange_inbox.id LIMIT 1",
                self._box(owner),
                sender,
            )
            if row is None:
                return None
            self._sql.execute("DELETE FROM exchange_inbox WHERE id = ?", row[:1])
        return str(row[1])

    def _remove(self, owner: str, sender: str, mail_id: str) -> bool:
        deleted = self._sql.execute(
            "DELETE FROM exchange_inbox WHERE box = ? AND mail_id = ? AND sender = ?",
            (self._box(owner), mail_id, sender),
        )
        return deleted.rowcount > 0
