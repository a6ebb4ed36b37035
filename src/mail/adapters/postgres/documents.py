"""Tokens, settings and other swarms in PostgreSQL."""

from dataclasses import asdict

from pydantic_core import from_json, to_json

from mail.adapters.postgres.pool import Postgres
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.core.task.ports import KeyRecord, TemplateRecord, TokenRecord
from mail.core.task.webhooks import WebhookRecord, in_order

HAD_TOKENS = "had_tokens"
"""A setting that stays when the last token goes."""


class PostgresRecords:
    """`mail.core.task.ports.ServerRecords` on a `Postgres` whose tables are there. Each method is one statement.

    What is set twice at the same time is what was set last.
    """

    def __init__(self, postgres: Postgres) -> None:
        self._sql = postgres

    async def claim_key(self, caller: str, key: str, record: KeyRecord, *, now: float) -> KeyRecord:
        """A row that somebody else has put there meanwhile is not seen by the statement that met it: so it asks again."""
        await self._sql.fetch("DELETE FROM mail.idempotency_keys WHERE until <= %s", (now,))
        while True:
            rows = await self._sql.fetch(
                "WITH new AS (INSERT INTO mail.idempotency_keys (caller, key, digest, task_id, until)"
                " VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING digest, task_id, until)"
                " SELECT * FROM new UNION ALL"
                " SELECT digest, task_id, until FROM mail.idempotency_keys WHERE caller = %s AND key = %s",
                (caller, key, record.digest, record.task_id, record.until, caller, key),
            )
            if rows:
                return KeyRecord(*rows[0])

    async def forget_key(self, caller: str, key: str, task_id: str) -> None:
        await self._sql.fetch(
            "DELETE FROM mail.idempotency_keys WHERE caller = %s AND key = %s AND task_id = %s",
            (caller, key, task_id),
        )

    async def add_token(self, record: TokenRecord) -> None:
        await self._sql.fetch(
            "INSERT INTO mail.tokens (digest, role, id, created) VALUES (%s, %s, %s, %s) ON CONFLICT (digest)"
            " DO UPDATE SET role = excluded.role, id = excluded.id, created = excluded.created",
            (record.digest, record.role, record.id, record.created),
        )

    async def find_token(self, digest: str) -> TokenRecord | None:
        rows = await self._sql.fetch(
            "SELECT digest, role, id, created FROM mail.tokens WHERE digest = %s", (digest,)
        )
        return TokenRecord(*rows[0]) if rows else None

    async def has_tokens(self) -> bool:
        ((is_so,),) = await self._sql.fetch(
            "SELECT EXISTS (SELECT FROM mail.tokens) OR EXISTS (SELECT FROM mail.settings WHERE name = %s)",
            (HAD_TOKENS,),
        )
        return bool(is_so)

    async def tokens(self) -> list[TokenRecord]:
        rows = await self._sql.fetch(
            "SELECT digest, role, id, created FROM mail.tokens ORDER BY created, digest"
        )
        return [TokenRecord(*row) for row in rows]

    async def remove_token(self, digest: str) -> bool:
        removed = await self._sql.fetch(
            "WITH removed AS (DELETE FROM mail.tokens WHERE digest = %s RETURNING digest)"
            " INSERT INTO mail.settings (name, value) SELECT %s, '' FROM removed"
            " ON CONFLICT (name) DO UPDATE SET value = '' RETURNING name",
            (digest, HAD_TOKENS),
        )
        return bool(removed)

    async def health(self) -> str | None:
        return await self._setting("health")

    async def set_health(self, status: str) -> None:
        await self._set("health", status)

    async def template(self) -> TemplateRecord | None:
        text = await self._setting("template")
        return None if text is None else TemplateRecord(**from_json(text))

    async def set_template(self, record: TemplateRecord) -> None:
        await self._set("template", to_json(asdict(record)).decode())

    async def peers(self) -> list[PeerRecord]:
        rows = await self._sql.fetch("SELECT record FROM mail.peers ORDER BY name")
        return [PeerRecord.model_validate_json(text) for (text,) in rows]

    async def peer(self, name: str) -> PeerRecord | None:
        rows = await self._sql.fetch("SELECT record FROM mail.peers WHERE name = %s", (name,))
        return PeerRecord.model_validate_json(rows[0][0]) if rows else None

    async def set_peer(self, record: PeerRecord) -> None:
        await self._sql.fetch(
            "INSERT INTO mail.peers (name, record) VALUES (%s, %s)"
            " ON CONFLICT (name) DO UPDATE SET record = excluded.record",
            (record.name, record.model_dump_json()),
        )

    async def delete_peer(self, name: str) -> bool:
        return bool(await self._sql.fetch("DELETE FROM mail.peers WHERE name = %s RETURNING name", (name,)))

    async def peers_health(self) -> dict[str, PeerHealth]:
        rows = await self._sql.fetch("SELECT name, health FROM mail.peers WHERE health IS NOT NULL")
        return {name: PeerHealth.model_validate_json(text) for name, text in rows}

    async def set_peer_health(self, name: str, health: PeerHealth) -> None:
        await self._sql.fetch(
            "UPDATE mail.peers SET health = %s WHERE name = %s", (health.model_dump_json(), name)
        )

    async def webhooks(self, caller: str) -> list[WebhookRecord]:
        rows = await self._sql.fetch("SELECT record FROM mail.webhooks WHERE caller = %s", (caller,))
        return in_order(WebhookRecord.model_validate_json(text) for (text,) in rows)

    async def set_webhook(self, caller: str, record: WebhookRecord, *, limit: int) -> bool:
        """Two that are added at the same moment may both find room."""
        rows = await self._sql.fetch(
            "INSERT INTO mail.webhooks (caller, id, record) SELECT %(caller)s, %(id)s, %(record)s"
            " WHERE (SELECT count(*) FROM mail.webhooks WHERE caller = %(caller)s AND id <> %(id)s) < %(limit)s"
            " ON CONFLICT (caller, id) DO UPDATE SET record = excluded.record RETURNING id",
            {"caller": caller, "id": record.id, "record": record.model_dump_json(), "limit": limit},
        )
        return bool(rows)

    async def delete_webhook(self, caller: str, webhook_id: str) -> bool:
        return bool(
            await self._sql.fetch(
                "DELETE FROM mail.webhooks WHERE caller = %s AND id = %s RETURNING id", (caller, webhook_id)
            )
        )

    async def _setting(self, name: str) -> str | None:
        rows = await self._sql.fetch("SELECT value FROM mail.settings WHERE name = %s", (name,))
        return str(rows[0][0]) if rows else None

    async def _set(self, name: str, value: str) -> None:
        await self._sql.fetch(
            "INSERT INTO mail.settings (name, value) VALUES (%s, %s)"
            " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
            (name, value),
        )
