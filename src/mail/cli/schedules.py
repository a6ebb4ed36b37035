"""The commands about schedules: `mail schedule list`, `show`, `create`, `change`, `delete`, `run`."""

from collections.abc import Mapping
from typing import Any

import click

from mail.cli.command import Command, option, positional, says
from mail.cli.output import Output


def show_schedules(answer: list[Mapping[str, Any]], output: Output) -> None:
    """Print a line per schedule: when it runs next, and how its last run has ended."""
    rows = [
        (
            *(each[name] for name in ("name", "cron", "timezone", "caller")),
            each["next"] or "disabled",
            _last(each),
        )
        for each in answer
    ]
    output.table(("name", "cron", "timezone", "caller", "next", "last run"), rows, none="no schedules")


def _last(schedule: Mapping[str, Any]) -> str:
    state = schedule["runs"][0]["state"] if schedule["runs"] else ""
    failing = f", failed {schedule['failures']} times in a row" if schedule["is_failing"] else ""
    return f"{state}{failing}"


def show_schedule(answer: Mapping[str, Any], output: Output) -> None:
    """Print a schedule, and its last runs."""
    output.text(f"{answer['name']}: {answer['cron']} ({answer['timezone']}), as {answer['caller']}")
    output.text(f"  {answer['body']}")
    declared = ", declared in mail.toml" if answer["declared"] else ""
    output.text(f"  overlap {answer['overlap']}, missed {answer['missed']}{declared}")
    output.text(
        f"  next: {answer['next'] or 'never, it is disabled'}; failures in a row: {answer['failures']}"
    )
    output.table(
        ("time", "state", "task", "reason"),
        [(run["at"], run["state"], run["task_id"], run["reason"]) for run in answer["runs"]],
    )


def show_run(answer: Mapping[str, Any], output: Output) -> None:
    """Print the id of a run's task, or why it was refused."""
    output.text(answer["task_id"] if answer["state"] != "failed" else f"failed: {answer['reason']}")


_NAME = positional("name", "The name of the schedule.")
_CRON = "When it runs: minute, hour, day, month and weekday, such as '30 8 * * mon-fri'."
_OPTIONS = (
    option(
        "--timezone", help="The time zone of these, such as Europe/Berlin.  [default: UTC]", metavar="ZONE"
    ),
    option("--entrypoint", help="The agent to write to.", metavar="AGENT"),
    option("--subject", help="The subject of the message."),
    option(
        "--overlap",
        help="If the last run has not ended: skip this one, queue it, or cancel the last one.",
        type=click.Choice(["skip", "queue", "cancel"]),
    ),
    option(
        "--missed",
        help="Which times the server makes up for after it was down: the last one (once), none (skip), or all.",
        type=click.Choice(["once", "skip", "all"]),
    ),
    option("--enabled/--disabled", help="Whether it runs by itself.", default=None),
)

COMMANDS = (
    Command(
        name="schedules",
        shell_name="schedule list",
        summary="List your schedules; for admins, those of all callers.",
        operation="get_schedules",
        view=show_schedules,
    ),
    Command(
        name="schedule",
        shell_name="schedule show",
        summary="Show a schedule with its last runs.",
        operation="get_schedule",
        view=show_schedule,
        arguments=(_NAME,),
    ),
    Command(
        shell_name="schedule create",
        summary="Have the server post a message at certain times.",
        details="The tasks are yours, and their ids are its name and the time, such as morning@2026-03-29T06:30Z.",
        operation="create_schedule",
        view=show_schedule,
        arguments=(
            positional("name", "Its name, which is part of the ids of its tasks."),
            positional("cron", _CRON),
            positional("body", "The message."),
            *_OPTIONS,
            option(
                "--caller", help="The owner of the tasks, such as user:ann, if it is not you. For admins."
            ),
        ),
    ),
    Command(
        shell_name="schedule change",
        summary="Change, disable or enable a schedule.",
        operation="change_schedule",
        view=show_schedule,
        arguments=(_NAME, option("--cron", help=_CRON), option("--body", help="The message."), *_OPTIONS),
    ),
    Command(
        shell_name="schedule delete",
        summary="Delete a schedule. The tasks of its runs stay.",
        operation="delete_schedule",
        view=says("schedule {name} is deleted"),
        arguments=(_NAME,),
    ),
    Command(
        shell_name="schedule run",
        summary="Begin a run of a schedule now. Prints the id of its task.",
        operation="run_schedule",
        view=show_run,
        arguments=(_NAME,),
    ),
)
