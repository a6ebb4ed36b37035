"""The command about usage: `mail usage`."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import click

from mail.cli.command import Command, Namespace, option, switch
from mail.cli.output import Output
from mail.cli.session import Session
from mail.cli.values import Task
from mail.errors import ConfigurationError

_AGO = re.compile(r"(\d{1,4})([mhdw])")
_COUNTS = {
    "calls": "calls",
    "tokens in": "input_tokens",
    "cached": "cached_tokens",
    "cache writes": "cache_write_tokens",
    "tokens out": "output_tokens",
}
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class By(StrEnum):
    """The groupings of usage."""

    AGENT = "agent"
    MODEL = "model"
    CALLER = "caller"
    DAY = "day"
    VERSION = "version"
    TASK = "task"


async def usage(session: Session, given: Namespace) -> None:
    """Print the usage of tasks. Raises ConfigurationError for an invalid time."""
    by, now = By(given.by), datetime.now(UTC)
    answer = await session.client.get_usage(
        task_id=given.task_id,
        caller=given.caller,
        since=read_time(given.since, "--since", now),
        until=read_time(given.until, "--until", now),
        version=given.swarm_version,
        per_task=by is By.TASK,
    )
    if given.csv:
        write_csv(answer, by, session.output)
        return
    session.output.result(answer, lambda: show_usage(answer, by, session.output))


def read_time(text: str | None, flag: str, now: datetime) -> str | None:
    """Return the time that is `7d`, `12h`, `30m` or `2w` before `now`; a time in ISO 8601 is returned unchanged.

    Raises ConfigurationError for any other text.
    """
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        return (now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).isoformat()
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{flag}: {text!r} is not a time; write how long ago (30m, 12h, 7d, 2w), or a date or time in ISO 8601, "
            "such as 2026-01-31 or 2026-01-31T08:00:00Z"
        ) from None
    return text


def show_usage(answer: Mapping[str, Any], by: By, output: Output) -> None:
    """Print a line per agent (or model, …), the most expensive first or by day, and a line for the total."""
    total = answer["total"]
    lines = sorted(_lines(answer, by), key=lambda line: line[0])
    if by is not By.DAY:
        lines.sort(key=lambda line: (-line[1]["cost"], -line[1]["input_tokens"] - line[1]["output_tokens"]))
    if not lines and output.is_terminal:
        output.text(f"{_count(answer['tasks'], 'task')}, and no calls of models")
        return
    headings = (by.value, *_COUNTS, "hit rate", "USD", "unpriced")
    output.table(headings, [_cells(name, usage) for name, usage in (*lines, ("all", total))])
    if output.is_terminal:
        unpriced = total["unpriced_calls"]
        missing = f"; {_count(unpriced, 'call')} of models without a known price not included"
        output.text(f"{_count(answer['tasks'], 'task')}{missing if unpriced else ''}", style="dim")


def write_csv(answer: Mapping[str, Any], by: By, output: Output) -> None:
    """Write usage as CSV (RFC 4180), with a line for each agent (or model, …), and costs in US dollars.

    Programs for tables would take a name that begins with `=` for a formula, so it gets a quotation mark in front.
    """
    import csv  # late, as `mail --help` has no use for these
    from dataclasses import fields

    from mail.core.task.costs import Usage

    counts = [field.name for field in fields(Usage)]
    writer = csv.writer(output.stream)
    writer.writerow((by.value, *counts))
    for name, usage in _lines(answer, by):
        safe = f"'{name}" if name.startswith(("=", "+", "-", "@", "\t", "\r")) else name
        writer.writerow((safe, *(f"{usage[each]:.15g}" for each in counts)))


def _lines(answer: Mapping[str, Any], by: By) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if by is By.TASK:
        return [(each["task_id"], each["usage"]) for each in answer["per_task"]]
    return list(answer[f"{by.value}s"].items())


def _cells(name: str, usage: Mapping[str, Any]) -> tuple[str, ...]:
    counts = [str(usage[count]) for count in _COUNTS.values()]
    hit_rate = usage["cached_tokens"] / (usage["input_tokens"] or 1)
    return (name, *counts, f"{hit_rate:.0%}", f"{usage['cost']:.4f}", str(usage["unpriced_calls"]))


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


COMMANDS = (
    Command(
        shell_name="usage",
        summary="Show the tokens and the cost of your tasks.",
        details="Admins see those of all tasks.",
        handler=usage,
        arguments=(
            option(
                "--by",
                help="Group by this.",
                type=click.Choice([by.value for by in By]),
                default=By.AGENT.value,
            ),
            option("--task-id", metavar="TASK", help="Only this task.", type=Task()),
            option("--caller", metavar="ROLE:ID", help="Only tasks of this caller. For admins."),
            option(
                "--since",
                metavar="TIME",
                help="Only tasks that began at this time or later: a date, or 7d, 12h, 30m.",
            ),
            option("--until", metavar="TIME", help="Only tasks that began before this time."),
            option(
                "--swarm-version",
                metavar="DIGEST",
                help="Only tasks whose last run began with this version of the swarm (`mail swarm versions`).",
            ),
            switch("--csv", help="Print CSV with all counts, as the page saves it."),
        ),
    ),
)
