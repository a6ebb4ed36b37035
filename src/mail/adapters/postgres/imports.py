"""The tables of MAIL 1.3.6, which are only read."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, LiteralString

from psycopg import IsolationLevel
from psycopg.rows import dict_row

from mail.adapters.postgres.pool import Postgres
from mail.adapters.postgres.schema import connected
from mail.core.protocol.error_text import hide_credentials
from mail.errors import ConfigurationError

OLD_TABLES = ("agent_histories", "tasks", "task_events", "task_responses")

logger = logging.getLogger(__name__)

_MISSING: LiteralString = (
    "SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass('public.' || name) IS NULL"
)

_TASKS: LiteralString = """
SELECT task_id, swarm_name, caller_role, caller_id, task_owner, task_contributors, remote_swarms,
    coalesce(is_running, false) AS is_running, coalesce(completed, false) AS completed,
    coalesce(start_time, began) AS start_time
FROM public.tasks FULL JOIN (
    SELECT task_id, swarm_name, caller_role, caller_id, min(created_at) AS began
    FROM public.agent_histories GROUP BY task_id, swarm_name, caller_role, caller_id
) AS remembered USING (task_id, swarm_name, caller_role, caller_id)
ORDER BY start_time
"""

# that table has no unique key, and an agent may have changed its format
_HISTORIES: LiteralString = """
SELECT agent_name, tool_format, history FROM (
    SELECT DISTINCT ON (agent_name) *, min(created_at) OVER (PARTITION BY agent_name) AS began
    FROM public.agent_histories WHERE (task_id, swarm_name, caller_role, caller_id)
        = (%(task_id)s, %(swarm_name)s, %(caller_role)s, %(caller_id)s)
    ORDER BY agent_name, updated_at DESC NULLS LAST, created_at DESC
) AS latest ORDER BY began
"""

_EVENTS: LiteralString = """
SELECT event_type, event_data, created_at FROM public.task_events
WHERE (task_id, swarm_name, caller_role, caller_id)
    = (%(task_id)s, %(swarm_name)s, %(caller_role)s, %(caller_id)s)
ORDER BY created_at, ctid
"""

_RESPONSE: LiteralString = """
SELECT response FROM public.task_responses WHERE (task_id, swarm_name, caller_role, caller_id)
    = (%(task_id)s, %(swarm_name)s, %(caller_role)s, %(caller_id)s)
"""


@contextmanager
def read_old_tasks(url: str) -> Iterator[Iterator[dict[str, Any]]]:
    """Open the tables; yield the fields of each task (`mail.core.decisions.imports.OldTask`), oldest first.

    Only one task is in memory at a time. Raises ConfigurationError if the tables are not there.
    """
    with connected(url) as connection:
        connection.read_only = True
        connection.isolation_level = IsolationLevel.REPEATABLE_READ
        missing = [name for (name,) in connection.execute(_MISSING, ([*OLD_TABLES],))]
        if missing:
            raise ConfigurationError(
                f"{hide_credentials(url)} has no tables of MAIL 1.3.6: {', '.join(missing)} missing in its schema "
                "public; name the database that has them with --from"
            )
        rows = connection.cursor(row_factory=dict_row)

        def tasks() -> Iterator[dict[str, Any]]:
            with connection.cursor("tasks_of_1_3_6", row_factory=dict_row) as found:
                for task in found.execute(_TASKS):
                    response = rows.execute(_RESPONSE, task).fetchone()
                    yield {
                        **task,
                        "histories": rows.execute(_HISTORIES, task).fetchall(),
                        "events": rows.execute(_EVENTS, task).fetchall(),
                        "response": response and response["response"],
                    }

        yield tasks()


async def announce_old_tasks(postgres: Postgres) -> None:
    """Log how to import the tasks of MAIL 1.3.6 if the database has its tables, and no task in ours yet."""
    ((is_new,),) = await postgres.fetch("SELECT NOT EXISTS (SELECT FROM mail.tasks)")
    if is_new and not await postgres.fetch(_MISSING, ([*OLD_TABLES],)):
        logger.warning(
            "%s has the tables of MAIL 1.3.6; mail db-import imports the tasks in them", postgres.name
        )
