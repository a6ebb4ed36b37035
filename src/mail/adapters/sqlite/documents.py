"""Tokens, settings and other swarms in the embedded database."""

from dataclasses import asdict

from pydantic_core import from_json, to_json

from mail.adapters.sqlite.database import SQLiteDatabase
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.core.task.ports import KeyRecord, TemplateRecord, TokenRecord
from mail.core.task.webhooks import WebhookRecord, in_order

HAD_TOKENS = "had_tokens"
"""A setting that stays when the last token goes."""


class SQLiteRecords:
    """`mail.core.task.ports.ServerRecords` on a `SQLiteDatabase`."""

    def __init__(self, database: SQLiteDatabase) -> None:
        self._sql = database.connection

    async def claim_key(self, caller: str, key: str, record: KeyRecord, *, now: float) -> KeyRecord:
        self._sql.execute("DELETE FROM idempotency_keys WHERE until <= ?", (now,))
        self._sql.execute(
            "INSERT OR IGNORE INTO idempotency_keys (caller, key, digest, task_id, until) VALUES (?, ?, ?, ?, ?)",
            (caller, key, record.digest, record.task_id, record.until),
        )
        known = self._sql.execute(
            "SELECT digest, task_id, until FROM idempotency_keys WHERE caller = ? AND key = ?", (caller, key)
        ).fetchone()
        return KeyRecord(*known)

    async def forget_key(self, caller: str, key: str, task_id: str) -> None:
        self._sql.execute(
            "DELETE FROM idempotency_keys WHERE caller = ? AND key = ? AND task_id = ?",
            (caller, key, task_id),
        )

    async def add_token(self, record: TokenRecord) -> None:
        self._sql.execute(
            "INSERT OR REPLACE INTO tokens (digest, role, id, created) VALUES (?, ?, ?, ?)",
            (record.digest, record.role, record.id, record.created),
        )

    async def find_token(self, digest: str) -> TokenRecord | None:
        row = self._sql.execute(
            "SELECT digest, role, id, created FROM tokens WHERE digest = ?", (digest,)
        ).fetchone()
        return None if row is None else TokenRecord(*row)

    async def has_tokens(self) -> bool:
        row = self._sql.execute("SELECT 1 FROM tokens LIMIT 1").fetchone()
        return row is not None or self._setting(HAD_TOKENS) is not None

    async def tokens(self) -> list[TokenRecord]:
        rows = self._sql.execute(
            "SELECT digest, role, id, created FROM tokens ORDER BY created, digest"
        ).fetchall()
        return [TokenRecord(*row) for row in rows]

    async def remove_token(self, digest: str) -> bool:
        was_there = await self.find_token(digest) is not None
        if was_there:
            self._set(HAD_TOKENS, "")
            self._sql.execute("DELETE FROM tokens WHERE digest = ?", (digest,))
        return was_there

    async def health(self) -> str | None:
        return self._setting("health")

    async def set_health(self, status: str) -> None:
        self._set("health", status)

    async def template(self) -> TemplateRecord | None:
        text = self._setting("template")
        return None if text is None else TemplateRecord(**from_json(text))

    async def set_template(self, record: TemplateRecord) -> None:
        self._set("template", to_json(asdict(record)).decode())

    async def peers(self) -> list[PeerRecord]:
        rows = self._sql.execute("SELECT record FROM peers ORDER BY name").fetchall()
        return [PeerRecord.model_validate_json(text) for (text,) in rows]

    async def peer(self, name: str) -> PeerRecord | None:
        row = self._sql.execute("SELECT record FROM peers WHERE name = ?", (name,)).fetchone()
        return None if row is None else PeerRecord.model_validate_json(row[0])

    async def set_peer(self, record: PeerRecord) -> None:
        self._sql.execute(
            "INSERT INTO peers (name, record) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET record = excluded.record",
            (record.name, record.model_dump_json()),
        )

    async def delete_peer(self, name: str) -> bool:
        return self._sql.execute("DELETE FROM peers WHERE name = ?", (name,)).rowcount > 0

    async def peers_health(self) -> dict[str, PeerHealth]:
        rows = self._sql.execute("SELECT name, health FROM peers WHERE health IS NOT NULL").fetchall()
        return {name: PeerHealth.model_validate_json(text) for name, text in rows}

    async def set_peer_health(self, name: str, health: PeerHealth) -> None:
        self._sql.execute("UPDATE peers SET health = ? WHERE name = ?", (health.model_dump_json(), name))

    async def webhooks(self, caller: str) -> list[WebhookRecord]:
        rows = self._sql.execute("SELECT record FROM webhooks WHERE caller = ?", (caller,)).fetchall()
        return in_order(WebhookRecord.model_validate_json(text) for (text,) in rows)

    async def set_webhook(self, caller: str, record: WebhookRecord, *, limit: int) -> bool:
        done = self._sql.execute(
            "INSERT INTO webhooks (caller, id, record) SELECT :caller, :id, :record"
            " WHERE (SELECT count(*) FROM webhooks WHERE caller = :caller AND id <> :id) < :limit"
            " ON CONFLICT (caller, id) DO UPDATE SET record = excluded.record",
            {"caller": caller, "id": record.id, "record": record.model_dump_json(), "limit": limit},
        )
        return done.rowcount > 0

    async def delete_webhook(self, caller: str, webhook_id: str) -> bool:
        done = self._sql.execute("DELETE FROM webhooks WHERE caller = ? AND id = ?", (caller, webhook_id))
        return done.rowcount > 0

    def _setting(self, name: str) -> str | None:
        row = self._sql.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _set(self, name: str, value: str) -> None:
        self._sql.execute("INSERT OR REPLACE INTO settings (name, value) VALUES (?, ?)", (name, value))
