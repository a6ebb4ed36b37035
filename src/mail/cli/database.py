"""`mail db-init`."""

import asyncio

import typer

from mail.cli.options import ConfigPath, Database, load_storage


def db_init(config: ConfigPath = None, database: Database = None) -> None:
    """Create the tables of the configured database, where they are missing. Safe to repeat."""
    from mail.bootstrap import create_tables

    storage = load_storage(config, database)
    for table in asyncio.run(create_tables(storage)):
        typer.echo(f"{table:<12} OK")
    typer.echo(f"{storage.database} is ready")
