"""Completion in shells: the script for one, and what only a server knows, which are tasks and agents."""

import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem, get_completion_class

from mail.cli.program import SERVER_VARIABLE
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.client import MAILClient

TIMEOUT = 1.0
"""Seconds to wait for the server, as somebody waits at the keyboard."""

NEWEST = 50
"""The newest tasks are completed."""

START_FILES = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/config.fish"}
"""What each shell reads at its start, below the home folder; PowerShell is asked for it."""

SHELLS = (*START_FILES, "powershell")

COMPINIT = "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }; "
"""Starts the completion of zsh, which is off by default."""


def items(names: dict[str, str], incomplete: str) -> list[CompletionItem]:
    """Return the names that begin with a text, with their explanations."""
    return [CompletionItem(name, help=text) for name, text in names.items() if name.startswith(incomplete)]


async def newest_tasks(client: "MAILClient") -> dict[str, str]:
    """Return the caller's newest tasks, with their titles."""
    tasks = await client.get_tasks(limit=NEWEST, summary=True)
    return {task_id: str(task.get("title") or task.get("status") or "") for task_id, task in tasks.items()}


async def entrypoints(client: "MAILClient") -> dict[str, str]:
    """Return the agents that users may write to."""
    swarm = await client.get_swarm()
    return {agent["name"]: "" for agent in swarm["agents"] if agent["enable_entrypoint"]}


def ask_server(
    context: click.Context, ask: Callable[["MAILClient"], Awaitable[dict[str, str]]], incomplete: str
) -> list[CompletionItem]:
    """Return what the server of the command line knows and begins with a text; nothing without a server."""
    import asyncio

    from mail.cli.connection import connect

    given = context.params
    server = given.get("url") or given.get("server") or os.environ.get(SERVER_VARIABLE)

    async def found() -> dict[str, str]:
        async with asyncio.timeout(TIMEOUT), connect(server, given.get("api_key"), timeout=TIMEOUT) as client:
            return await ask(client)

    try:
        return items(asyncio.run(found()), incomplete)
    except Exception:  # noqa: BLE001 - a shell that completes a word has no room for errors
        return []


def script(command: click.Command, shell: str) -> str:
    """Return the script that lets a shell complete the words of `mail`."""
    found = get_completion_class(shell)
    assert found is not None, shell
    return found(command, {}, "mail", "_MAIL_COMPLETE").source()


def install(command: click.Command, shell: str) -> str:
    """Write a shell's script, and let the shell read it at its start; return what to do next. Raises MAILError."""
    file = Path.home() / ".config" / "mail" / f"completion.{'ps1' if shell == 'powershell' else shell}"
    try:
        start = Path.home() / START_FILES[shell] if shell in START_FILES else _profile()
        line = f"{COMPINIT if shell == 'zsh' else ''}. '{file}'"
        for folder in (file.parent, start.parent):
            folder.mkdir(parents=True, exist_ok=True)
        file.write_text(script(command, shell), encoding="utf-8")
        with start.open("a+", encoding="utf-8") as opened:
            opened.seek(0)
            if line not in opened.read():
                opened.write(f"\n{line}\n")
    except (OSError, UnicodeDecodeError, subprocess.CalledProcessError) as error:
        raise MAILError(f"completion can't be installed: {error}") from error
    return f"{start} loads {file}. Open a new terminal to complete words with Tab."


def _profile() -> Path:
    """Return the file that PowerShell reads at its start."""
    program = "powershell" if sys.platform == "win32" else "pwsh"
    ask = [program, "-NoProfile", "-Command", "$PROFILE"]
    return Path(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip())  # noqa: S603 - fixed


def named_shell(name: str) -> str:
    """Return the shell of a name, by default the user's. Raises click.UsageError if it can't complete words."""
    name = name or ("powershell" if sys.platform == "win32" else Path(os.environ.get("SHELL", "")).name)
    shell = "powershell" if name == "pwsh" else name
    if shell not in SHELLS:
        raise click.UsageError(
            f"{name or 'your shell'} is none of {', '.join(SHELLS)}; name one of them after the flag"
        )
    return shell
