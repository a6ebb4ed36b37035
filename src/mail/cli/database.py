"""`mail db-init` and `mail db-import`."""

import sys
from collections import Counter
from functools import cache
from typing import Annotated

import typer

from mail.cli.options import AsJson, ConfigPath, Database, SwarmOfDatabase, load_storage
from mail.cli.output import Output, counted, one_line
from mail.cli.token import run, token_storage
from mail.errors import ConfigurationError


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


def db_import(
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="URL",
            help="The PostgreSQL database of MAIL 1.3.6. [default: the database that the tasks are imported into]",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every task, and import none.")] = False,
    config: ConfigPath = None,
    database: Database = None,
    swarm_name: SwarmOfDatabase = None,
    as_json: AsJson = False,
) -> None:
    """Import the tasks of MAIL 1.3.6: histories, events and answers. Safe to repeat; its tables stay unchanged."""
    from mail.bootstrap.imports import Outcome, import_tasks
    from mail.config import load_config
    from mail.swarms_json import load_swarm

    server = load_config(config).server
    target = token_storage(config, database, swarm_name)
    origin = target if source is None else server.with_overrides(database=source).storage
    if origin.engine != "postgres":
        raise ConfigurationError(
            f"{origin.shown} can't have the tables of MAIL 1.3.6; name its PostgreSQL database: "
            "mail db-import --from postgresql://user@host/database"
        )
    own = swarm_name or server.swarm.name

    @cache
    def entrypoint_of(swarm: str) -> str:
        try:
            return load_swarm(swarm, server.swarm.source).entrypoint
        except ConfigurationError:  # a swarm of another server, or one that Python defines
            return ""

    failures: list[dict[str, str]] = []
    outcomes: Counter[Outcome] = Counter()
    swarms: Counter[str] = Counter()

    async def import_all() -> None:
        async for each in import_tasks(origin, target, own, entrypoint_of, dry_run=dry_run):
            outcomes[each.outcome] += 1
            if each.outcome is not Outcome.FAILED:
                swarms[each.swarm] += 1
                continue
            caller = f"{each.caller}@{each.swarm}"
            failures.append({"task_id": each.task_id, "caller": caller, "reason": each.reason})
            problem = f"task {each.task_id!r} of {caller} can't be imported: {each.reason}"
            print(f"mail: {one_line(problem)}", file=sys.stderr)  # noqa: T201

    run(import_all())
    output = Output(sys.stdout, as_json)

    def show() -> None:
        for swarm, count in swarms.items():
            if swarm != own:
                output.text(
                    f"{counted(count, 'task')} of swarm {swarm!r}, which only a server of that name shows"
                )
        done = "can be imported" if dry_run else "imported"
        counts = f"{outcomes[Outcome.UNCHANGED]} already there, {outcomes[Outcome.FAILED]} failed"
        output.text(f"{counted(outcomes[Outcome.IMPORTED], 'task')} {done}, {counts}")

    counts = {outcome.value: outcomes[outcome] for outcome in Outcome}
    output.result({**counts, "swarms": swarms, "failures": failures, "dry_run": dry_run}, show)
    if failures:
        raise typer.Exit(1)
