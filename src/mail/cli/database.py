"""`mail db-init`."""

import sys

from mail.cli.options import AsJson, ConfigPath, Database, SwarmOfDatabase, load_storage
from mail.cli.output import Output


def db_init(
    config: ConfigPath = None,
    database: Database = None,
    swarm_name: SwarmOfDatabase = None,
    as_json: AsJson = False,
) -> None:
    """Create the missing tables of the configured database. Safe to repeat."""
    import asyncio

    from mail.bootstrap.backends import create_tables

    storage = load_storage(config, database, swarm_name)
    output = Output(sys.stdout, as_json)
    tables = asyncio.run(create_tables(storage))

    def show() -> None:
        width = max(map(len, tables))
        for table in tables:
            output.text(f"{table:<{width}} OK")
        output.text(f"{storage.shown} is ready")

    output.result({"database": storage.shown, "tables": tables}, show)
