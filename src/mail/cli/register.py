"""`mail register`: a click on a swarm:// link opens the client."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mail.cli.options import AsJson
from mail.cli.output import Output
from mail.cli.registering import MIME_TYPE, desktop_entry, macos_steps, windows_steps
from mail.errors import MAILError

DESKTOP_FILE = "mail-swarm.desktop"


class Platform(StrEnum):
    """Where there are only steps to print."""

    MACOS = "macos"
    WINDOWS = "windows"


def register(
    steps: Annotated[
        Platform | None, typer.Option(help="Print the steps for this platform, and do nothing.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Let the operating system open swarm:// links with `mail client`.

    On Linux this does it; on macOS and Windows it prints the steps.
    """
    command = client_command()
    here = {"darwin": Platform.MACOS, "win32": Platform.WINDOWS}.get(sys.platform)
    output = Output(sys.stdout, as_json)

    def show_steps(platform: Platform, text: str) -> None:
        output.result({"registered": False, "platform": platform, "steps": text}, lambda: output.write(text))

    match steps or here:
        case Platform.MACOS:
            show_steps(Platform.MACOS, macos_steps(command))
        case Platform.WINDOWS:
            show_steps(Platform.WINDOWS, windows_steps(command))
        case None:
            file = _register_on_linux(command)
            told = f"swarm:// links open with mail client ({file})"
            output.result({"registered": True, "file": str(file)}, lambda: output.write(told))


def client_command() -> list[str]:
    """What runs `mail client` outside of any shell or virtual environment."""
    script = Path(sys.executable).with_name("mail")
    if script.is_file():
        return [str(script), "client"]
    return [sys.executable, "-m", "mail.cli", "client"]


def _register_on_linux(command: Sequence[str]) -> Path:
    """Returns the desktop file. Raises MAILError where the desktop can't be told."""
    folder = _data_home() / "applications"
    file = folder / DESKTOP_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(desktop_entry(command), encoding="utf-8")
    except OSError as error:
        raise MAILError(f"{file} can't be written: {error.strerror}") from error
    if shutil.which("xdg-mime") is None:
        raise MAILError(f"{file} is written, but xdg-mime is missing; install xdg-utils and run this again")
    _run("xdg-mime", "default", DESKTOP_FILE, MIME_TYPE)
    if shutil.which("update-desktop-database") is not None:
        _run("update-desktop-database", str(folder))
    return file


def _data_home() -> Path:
    """Where the desktop keeps a person's data; relative paths don't count (XDG Base Directory Specification)."""
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    return named if named.is_absolute() else Path.home() / ".local" / "share"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if done.returncode:
        raise MAILError(f"{' '.join(command)}: exit code {done.returncode} {done.stderr.strip()}")
