"""`mail register`: open swarm:// links with the client."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from mail.cli.options import as_json
from mail.cli.output import Output
from mail.errors import MAILError

DESKTOP_FILE = "mail-swarm.desktop"

SCHEME = "swarm"
MIME_TYPE = f"x-scheme-handler/{SCHEME}"

_NEEDS_QUOTES = re.compile(r"[^\w@+=:,./-]")
_ESCAPED = re.compile(r'(["`$\\])')


@click.command()
@click.option(
    "--steps", type=click.Choice(("macos", "windows")), help="Only print the steps for this platform."
)
@as_json
def register(steps: str | None, output: Output) -> None:
    """Make `mail client` open swarm:// links.

    Registers the client on Linux; prints the steps for macOS and Windows.
    """
    command = client_command()
    here = {"darwin": "macos", "win32": "windows"}.get(sys.platform)

    def show_steps(platform: str, text: str) -> None:
        output.result({"registered": False, "platform": platform, "steps": text}, lambda: output.write(text))

    match steps or here:
        case "macos":
            show_steps("macos", macos_steps(command))
        case "windows":
            show_steps("windows", windows_steps(command))
        case _:
            file = _register_on_linux(command)
            text = f"swarm:// links open with mail client ({file})"
            output.result({"registered": True, "file": str(file)}, lambda: output.write(text))


def client_command() -> list[str]:
    """Return the command that runs `mail client` outside any shell or virtual environment."""
    script = Path(sys.executable).with_name("mail")
    if script.is_file():
        return [str(script), "client"]
    return [sys.executable, "-m", "mail.cli", "client"]


def _register_on_linux(command: Sequence[str]) -> Path:
    """Write the desktop file and make it the handler; return the file. Raises MAILError."""
    folder = _data_home() / "applications"
    file = folder / DESKTOP_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(desktop_entry(command), encoding="utf-8")
    except OSError as error:
        raise MAILError(f"{file} can't be written: {error.strerror}") from error
    if shutil.which("xdg-mime") is None:
        raise MAILError(f"{file} is written, but xdg-mime is missing; install xdg-utils and retry")
    _run("xdg-mime", "default", DESKTOP_FILE, MIME_TYPE)
    if shutil.which("update-desktop-database") is not None:
        _run("update-desktop-database", str(folder))
    return file


def _data_home() -> Path:
    """Return the user's data folder; relative paths are ignored (XDG Base Directory Specification)."""
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    return named if named.is_absolute() else Path.home() / ".local" / "share"


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    if done.returncode:
        raise MAILError(f"{' '.join(command)}: exit code {done.returncode} {done.stderr.strip()}")


def desktop_entry(command: Sequence[str]) -> str:
    """Return a desktop file that runs the command with a link, in a terminal."""
    words = " ".join(_quote(word) for word in command)
    return f"""\
[Desktop Entry]
Type=Application
Name=MAIL client
Comment=Talk to a swarm of agents
Exec={words} %u
Terminal=true
NoDisplay=true
MimeType={MIME_TYPE};
"""


def _quote(word: str) -> str:
    """Return a word for an Exec line: quoted, then escaped like a value (Desktop Entry Specification, Exec key)."""
    word = word.replace("%", "%%")
    if _NEEDS_QUOTES.search(word):
        word = '"' + _ESCAPED.sub(r"\\\1", word) + '"'
    return word.replace("\\", "\\\\")


def macos_steps(command: Sequence[str]) -> str:
    """Return the steps that make an application for macOS to open links with."""
    words = shlex.join(command)
    script = words.replace("\\", "\\\\").replace('"', '\\"')
    return f"""\
macOS opens links with applications only. To make one:

1. Save this as swarm.applescript:

   on open location link
     tell application "Terminal"
       activate
       do script "{script} " & quoted form of link
     end tell
   end open location

2. osacompile -o "$HOME/Applications/MAIL.app" swarm.applescript

3. Add this to the outer <dict> of ~/Applications/MAIL.app/Contents/Info.plist:

   <key>CFBundleIdentifier</key>
   <string>org.mail.client</string>
   <key>CFBundleURLTypes</key>
   <array>
     <dict>
       <key>CFBundleURLName</key>
       <string>MAIL swarm</string>
       <key>CFBundleURLSchemes</key>
       <array>
         <string>{SCHEME}</string>
       </array>
     </dict>
   </array>

4. open "$HOME/Applications/MAIL.app"     so that macOS reads it"""


def windows_steps(command: Sequence[str]) -> str:
    """Return the steps that add the client to the registry."""
    words = " ".join(f'"{word}"' for word in (*command, "%1")).replace("'", "''")
    key = f"HKLM:\\Software\\Classes\\{SCHEME}"
    return f"""\
Windows finds the handlers of links in its registry. In a PowerShell that runs as administrator
(or as yourself, with HKCU: instead of HKLM:, for your account only):

New-Item -Force -Path '{key}\\shell\\open\\command' | Out-Null
Set-ItemProperty -Path '{key}' -Name '(Default)' -Value 'URL:MAIL swarm'
Set-ItemProperty -Path '{key}' -Name 'URL Protocol' -Value ''
Set-ItemProperty -Path '{key}\\shell\\open\\command' -Name '(Default)' -Value '{words}'"""
