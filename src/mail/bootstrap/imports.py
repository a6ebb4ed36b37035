"""Importing the tasks of MAIL 1.3.6 into the configured database."""

from collections.abc import AsyncIterator, Callable
from enum import StrEnum

from pydantic import ValidationError

from mail.bootstrap.backends import explain_missing_package, open_backend
from mail.config import StorageConfig
from mail.core.decisions.imports import OldTask, import_task
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.protocol.error_text import explain
from mail.core.protocol.values import value
from mail.errors import BadRequest, VersionConflict


class Outcome(StrEnum):
    """What became of a task."""

    IMPORTED = "imported"
    UNCHANGED = "unchanged"
    FAILED = "failed"


@value
class Import:
    """The import of one task of a caller (`role:id`), and the reason if it failed."""

    task_id: str
    caller: str
    swarm: str
    outcome: Outcome
    reason: str = ""


async def import_tasks(
    source: StorageConfig,
    target: StorageConfig,
    swarm: str,
    entrypoint_of: Callable[[str], str],
    *,
    dry_run: bool = False,
) -> AsyncIterator[Import]:
    """Import the tasks of a database of MAIL 1.3.6, one after the other; those that are there already stay as they are.

    Args:
        swarm: the swarm of the server on the target.
        entrypoint_of: returns the entrypoint of a swarm; empty if it is not known.
        dry_run: whether to store nothing.
    """
    with explain_missing_package(source):
        from mail.adapters.postgres.imports import read_old_tasks

    with read_old_tasks(source.database) as rows:
        backend = open_backend(target, swarm, SYSTEM_CLOCK)
        try:
            for row in rows:
                outcome, reason = Outcome.IMPORTED, ""
                try:
                    old = OldTask.model_validate(row)
                    change = import_task(old, entrypoint_of(old.swarm_name), SYSTEM_CLOCK)
                    if await backend.store.load(change.key) is not None:
                        outcome = Outcome.UNCHANGED
                    elif not dry_run:
                        await backend.store.commit(change)
                except VersionConflict:  # somebody else has imported it meanwhile
                    outcome = Outcome.UNCHANGED
                except (ValidationError, BadRequest) as error:
                    outcome = Outcome.FAILED
                    reason = error.detail if isinstance(error, BadRequest) else explain(error)
                yield Import(
                    row["task_id"],
                    f"{row['caller_role']}:{row['caller_id']}",
                    row["swarm_name"],
                    outcome,
                    reason,
                )
        finally:
            await backend.close()
