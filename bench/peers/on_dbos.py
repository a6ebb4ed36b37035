"""DBOS on SQLite, its default, or on PostgreSQL: `python on_dbos.py <URL of the database>`.

A step is a turn: its output is persisted before the workflow continues
(https://docs.dbos.dev/python/tutorials/workflow-tutorial, https://docs.dbos.dev/python/tutorials/step-tutorial).
"""

import asyncio
import sqlite3
import sys

if sqlite3.sqlite_version_info < (3, 42):  # DBOS calls unixepoch('subsec')
    import pysqlite3

    sys.modules["sqlite3"] = pysqlite3

from dbos import DBOS, DBOSConfig
from workload import TEXT, serve


@DBOS.step()
async def supervisor(_message: str) -> str:
    """Take a turn."""
    return TEXT


@DBOS.step()
async def worker(_message: str) -> str:
    """Take a turn."""
    return TEXT


@DBOS.workflow()
async def conversation(turns: int) -> str:
    """Let the agents take turns."""
    message = TEXT
    for turn in range(turns):
        message = await (worker if turn % 2 else supervisor)(message)
    return message


class Dbos:
    """Workflows in this process."""

    async def run(self, turns: int) -> None:
        """Run a new workflow."""
        assert await conversation(turns) == TEXT


def main(database: str) -> None:
    """Serve until stdin ends."""
    config: DBOSConfig = {
        "name": "bench",
        "system_database_url": database,
        "run_admin_server": False,
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()
    try:
        asyncio.run(serve(Dbos()))
    finally:
        DBOS.destroy()


if __name__ == "__main__":
    main(sys.argv[1])
