"""The command about the audit: `mail audit`."""

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from mail.cli.command import Command, Namespace, option, switch
from mail.cli.output import Output
from mail.cli.session import Session
from mail.cli.usage import read_time
from mail.cli.values import Integer

LIMIT = 100


async def audit(session: Session, given: Namespace) -> None:
    """Print entries of the audit. Raises ConfigurationError for an invalid time."""
    now, output = datetime.now(UTC), session.output
    entries = await session.client.get_audit(
        caller=given.caller,
        act=given.act,
        since=read_time(given.since, "--since", now),
        until=read_time(given.until, "--until", now),
        limit=given.limit or (None if given.lines else LIMIT),
    )
    if given.lines:
        for entry in entries:
            output.write(json.dumps(entry))
        return
    output.result(entries, lambda: show_audit(entries, output))


def show_audit(entries: Iterable[Mapping[str, Any]], output: Output) -> None:
    """Print a line per entry."""
    columns = ("by", "act", "on", "owner", "address", "outcome", "reason")
    rows = [(output.time(each["time"]), *(each[column] or "" for column in columns)) for each in entries]
    headings = ("time", "by", "act", "on", "whose", "from", "outcome", "reason")
    output.table(headings, rows, none="no entries")


COMMANDS = (
    Command(
        shell_name="audit",
        summary="Show who did what with rights.",
        details="The newest entries first. For admins.",
        handler=audit,
        arguments=(
            option("--caller", metavar="ROLE:ID", help="Only what this caller did."),
            option("--act", help="Only this act, such as 'create token'."),
            option("--since", metavar="TIME", help="Only from this time on: a date, or 7d, 12h, 30m."),
            option("--until", metavar="TIME", help="Only before this time."),
            option(
                "--limit",
                type=Integer(min=1),
                help=f"The number of entries, at most. [default: {LIMIT}; all with --lines]",
            ),
            switch("--lines", help="Print JSON lines, an entry on each, to export them."),
        ),
    ),
)
