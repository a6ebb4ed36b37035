"""The commands of the prompt: those of the nouns, and those about the prompt itself."""

from collections.abc import Mapping
from typing import Any

from mail.cli import dead_letters, messages, swarms, tasks, threads, usage, webhooks
from mail.cli.command import Command, Completes, Namespace, positional
from mail.cli.output import Output, one_line
from mail.cli.session import Session, UsageError
from mail.errors import MAILError

GREETING_SECONDS = 5.0
"""The time limit of the greeting's requests."""

KNOWN_TASKS = 20
"""How many of the newest tasks can be completed from the start."""


async def greet(session: Session) -> None:
    """Print which server this is and who the user is to it, and remember the newest tasks."""
    import asyncio

    client = session.client
    session.output.text(f"MAIL client at {client.base_url}; help lists the commands, Ctrl+D leaves.")
    try:
        async with asyncio.timeout(GREETING_SECONDS):
            await swarms.show_server(session, Namespace())
            if client.api_key:
                show_caller(await client.get_whoami(), session.output)
                for task_id in reversed(await client.get_tasks(limit=KNOWN_TASKS, summary=True)):
                    session.add_task(task_id)
    except TimeoutError:
        raise MAILError(f"{client.base_url} doesn't answer; try again later") from None


def show_caller(answer: Mapping[str, Any], output: Output) -> None:
    """Print the caller's id and role."""
    output.text(one_line(f"{answer.get('id')} ({answer.get('role')})"))


async def _help(session: Session, given: Namespace) -> None:
    if given.command is not None:
        session.output.text(find(given.command).usage().rstrip())
        return
    width = max(len(_title(command)) for command in COMMANDS)
    for command in COMMANDS:
        session.output.text(f"{_title(command):<{width}}  {command.summary}")
    session.output.text("\nhelp COMMAND shows its arguments. Ctrl+C stops a running command, Ctrl+D leaves.")


async def _exit(session: Session, given: Namespace) -> None:
    session.is_over = True


async def _login(session: Session, given: Namespace) -> None:
    caller = await session.client.login(given.key)
    session.tasks.clear()
    session.output.result(caller, lambda: show_caller(caller, session.output))


async def _logout(session: Session, given: Namespace) -> None:
    session.client.api_key = None
    session.tasks.clear()
    session.output.result({"status": "logged out"}, lambda: session.output.text("logged out"))


def _title(command: Command) -> str:
    return ", ".join((command.name, *command.also))


COMMANDS: tuple[Command, ...] = (
    Command(
        name="help",
        also=("?",),
        summary="List the commands, or show the arguments of one.",
        handler=_help,
        arguments=(positional("command", "The command.", required=False, completes=Completes.COMMAND),),
    ),
    Command(name="exit", also=("quit",), summary="Leave.", handler=_exit),
    Command(
        name="whoami", summary="Show who you are to the server.", operation="get_whoami", view=show_caller
    ),
    Command(
        name="login",
        summary="Log in with another key.",
        handler=_login,
        arguments=(
            positional(
                "key",
                "The API key, or $VARIABLE; without it you are asked for it.",
                required=False,
                completes=Completes.SECRET,
            ),
        ),
        asks="key",
    ),
    Command(name="logout", summary="Log out.", handler=_logout),
    *swarms.COMMANDS,
    *messages.COMMANDS,
    *tasks.COMMANDS,
    *usage.COMMANDS,
    *dead_letters.COMMANDS,
    *threads.COMMANDS,
    *webhooks.COMMANDS,
)

_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.also)}


def names() -> list[str]:
    """Return the names of all commands, sorted."""
    return sorted(_BY_NAME)


def find(name: str) -> Command:
    """Return the command of this name. Raises UsageError."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    from difflib import get_close_matches

    close = get_close_matches(name, _BY_NAME, n=1)
    hint = f"did you mean {close[0]}?" if close else 'help lists them, and a text is sent by: message "…"'
    raise UsageError(f"there is no command {name!r}; {hint}")


def parse(words: list[str]) -> tuple[Command, Namespace]:
    """Return the command of a line, and its arguments. Raises UsageError, HelpRequested."""
    command = find(words[0])
    return command, command.parse(words[1:])
