"""`mail db-init`, `mail db-import`, `mail db-reindex`, `mail backup` and `mail restore`."""

import sys
import time
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import click

from mail.cli.options import as_json, load_storage, on_database, run
from mail.cli.output import Output, counted, one_line
from mail.cli.token import token_storage
from mail.errors import ConfigurationError


@click.command()
@on_database
@as_json
def db_init(output: Output, **storage: Any) -> None:
    """Create the missing tables of the configured database. Safe to repeat."""
    from mail.bootstrap.backends import database_of

    target = load_storage(**storage)
    tables = run(database_of(target).create_tables())

    def show() -> None:
        width = max(map(len, tables))
        for table in tables:
            output.text(f"{table:<{width}} OK")
        output.text(f"{target.shown} is ready")

    output.result({"database": target.shown, "tables": tables}, show)


@click.command()
@click.option(
    "--from",
    "source",
    metavar="URL",
    help="The PostgreSQL database of MAIL 1.3.6. [default: the database that the tasks are imported into]",
)
@click.option("--dry-run", is_flag=True, help="Check every task, and import none.")
@on_database
@as_json
def db_import(source: str | None, dry_run: bool, output: Output, **storage: Any) -> int:
    """Import the tasks of MAIL 1.3.6: histories, events and answers. Safe to repeat; its tables stay unchanged."""
    from mail.bootstrap.imports import Outcome, import_tasks
    from mail.config import load_config
    from mail.swarms_json import load_swarm

    server = load_config(storage["config"]).server
    target = token_storage(**storage)
    origin = target if source is None else server.with_overrides(database=source).storage
    if origin.engine != "postgres":
        raise ConfigurationError(
            f"{origin.shown} can't have the tables of MAIL 1.3.6; name its PostgreSQL database: "
            "mail db-import --from postgresql://user@host/database"
        )
    own = storage["swarm_name"] or server.swarm.name

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
    return int(bool(failures))


@click.command()
@on_database
@as_json
def db_reindex(output: Output, **storage: Any) -> None:
    """Make the index again that tasks are searched by, also while a server runs. Searches find less meanwhile."""
    from mail.bootstrap.backends import database_of

    target = load_storage(**storage)
    count = run(database_of(target).rebuild_index())
    answer = {"database": target.shown, "tasks": count}
    output.result(answer, lambda: output.text(f"indexed {counted(count, 'task')} of {target.shown}"))


@click.command()
@click.argument("file", type=click.Path(path_type=Path), required=False)
@on_database
@as_json
def backup(file: Path | None, output: Output, **storage: Any) -> None:
    """Copy the configured SQLite file into FILE, also while a server runs on it.

    FILE must not exist. By default its name has the date and the time. It has everything: tasks, tokens, webhooks and
    other swarms.
    """
    from mail.bootstrap.backends import database_of

    source = load_storage(**storage)
    target = file or Path(f"mail-backup-{time.strftime('%Y%m%d-%H%M%S')}.db")
    database_of(source).back_up(target)
    size = target.stat().st_size
    answer = {"database": source.shown, "backup": str(target), "bytes": size}
    output.result(answer, lambda: output.text(f"copied {source.shown} to {target}, {size / 1024**2:.1f} MiB"))


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@on_database
@as_json
def restore(file: Path, output: Output, **storage: Any) -> None:
    """Replace the configured SQLite file by the backup FILE, while no server runs on it.

    The present file is kept under another name. Tasks that were running when the backup was made resume with the next
    start.
    """
    from mail.bootstrap.backends import database_of

    target = load_storage(**storage)
    replaced = database_of(target).restore(file)

    def show() -> None:
        kept = f"; the file of before is {replaced}" if replaced else ""
        output.text(f"restored {target.shown} from {file}{kept}")

    answer = {"database": target.shown, "backup": str(file), "replaced": replaced and str(replaced)}
    output.result(answer, show)
