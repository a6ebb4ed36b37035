"""The commands about files: `mail file upload`, `mail file get`."""

from pathlib import Path
from typing import Any

import click

from mail.cli.command import Command, Namespace, option, positional
from mail.cli.session import Session, UsageError
from mail.cli.values import PATH


async def upload(session: Session, path: Path, **options: str | None) -> dict[str, Any]:
    """Upload a file; return its reference. Raises UsageError for one that can't be read."""
    try:
        return await session.client.upload_file(path, **options)
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}") from None


async def _upload(session: Session, given: Namespace) -> None:
    stored = await upload(session, given.file, name=given.name, type=given.type)
    session.output.result(stored, lambda: session.output.text(stored["id"]))


async def _get(session: Session, given: Namespace) -> None:
    write_bytes(session, await session.client.get_file(given.file_id), given.path)


def write_bytes(session: Session, data: bytes, path: Path | None) -> None:
    """Write bytes to a file; without one, to the standard output."""
    if path is None:
        click.echo(data, nl=False)
        return
    path.write_bytes(data)
    session.output.result(
        {"file": str(path), "bytes": len(data)}, lambda: session.output.text(f"{len(data)} bytes in {path}")
    )


OUTPUT = option(
    "--output", "-o", "path", metavar="PATH", type=PATH, help="Where to write it. [default: standard output]"
)

COMMANDS = (
    Command(
        shell_name="file upload",
        summary="Upload a file for a message. Prints its id.",
        details="`mail send --file PATH` does this, too. A file without a message is deleted after a day.",
        handler=_upload,
        arguments=(
            positional("file", "The file.", metavar="PATH", type=PATH),
            option("--name", help="Its name, for people and models. [default: that of PATH]"),
            option("--type", help="Its media type. [default: what its name or its first bytes show]"),
        ),
    ),
    Command(
        shell_name="file get",
        summary="Fetch a file of one of your tasks.",
        handler=_get,
        arguments=(
            positional("file_id", "Its id, as messages have it.", metavar="ID"),
            OUTPUT,
        ),
    ),
)
