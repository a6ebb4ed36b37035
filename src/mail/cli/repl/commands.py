"""The commands of the prompt: those of the nouns, and those about the prompt itself."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from mail.cli import conversation, dead_letters, messages, swarms, tasks, threads, usage, webhooks
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
    try:
        async with asyncio.timeout(GREETING_SECONDS):
            swarm = swarms.describe_swarm(session, await client.ping())
            session.output.text(one_line(f"{swarm} at {client.base_url}"))
            if client.api_key:
                caller = await client.get_whoami()
                session.output.text(one_line(f"You are {caller.get('id')} ({caller.get('role')})."))
                for task_id in reversed(await client.get_tasks(limit=KNOWN_TASKS, summary=True)):
                    session.add_task(task_id)
            elif session.slash:  # nobody can chat without a key
                await client.get_whoami()
    except TimeoutError:
        raise MAILError(f"{client.base_url} doesn't answer; try again later") from None
    session.output.text(
        f"Write a message to the swarm; it remembers the conversation. {session.slash}help lists the commands, "
        "Ctrl+D leaves."
    )


def show_caller(answer: Mapping[str, Any], output: Output) -> None:
    """Print the caller's id and role."""
    output.text(one_line(f"{answer.get('id')} ({answer.get('role')})"))


async def _help(session: Session, given: Namespace) -> None:
    if given.command is not None:
        found = find(given.command.removeprefix("/"), with_slash=True)
        session.output.text(found.usage(_slash(found, session.slash)).rstrip())
        return
    width = max(len(_title(command, session.slash)) for command in COMMANDS)
    for section, commands in SECTIONS.items():
        session.output.text(f"{section}:", style="bold")
        for command in commands:
            session.output.text(f"  {_title(command, session.slash):<{width}}  {command.summary}")
    end = f"\n{session.slash}help COMMAND shows its arguments. Ctrl+C stops a running command, Ctrl+D leaves."
    session.output.text(f"\n{HELP_ON_TEXT[session.slash]}{end}" if session.is_chat else end)


HELP_ON_TEXT = {
    "/": "Every other line is a message to the swarm; begin with // if it starts with a slash.",
    "": "A line that begins with none of these words is a message to the swarm; /COMMAND works, too.",
}
"""What is no command, by what stands before commands."""


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


def _title(command: Command, slash: str) -> str:
    before = _slash(command, slash)
    return ", ".join(before + name for name in (command.name, *command.also))


def _slash(command: Command, slash: str) -> str:
    """Return what stands before a command's name."""
    return "/" if command.needs_slash else slash


_PROMPT = (
    Command(
        name="help",
        also=("?",),
        summary="List the commands, or show the arguments of one.",
        handler=_help,
        arguments=(positional("command", "The command.", required=False, completes=Completes.COMMAND),),
    ),
    Command(name="exit", also=("quit",), summary="Leave the prompt.", handler=_exit),
    Command(
        name="whoami",
        summary="Show your id and role on the server.",
        operation="get_whoami",
        view=show_caller,
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
)

SECTIONS: dict[str, tuple[Command, ...]] = {
    "Talk to the swarm": conversation.COMMANDS,
    "Follow its work": (*tasks.COMMANDS, *threads.COMMANDS, *usage.COMMANDS),
    "Send messages with all options": messages.COMMANDS,
    "The server and its swarms": swarms.COMMANDS,
    "Dead letters and webhooks": (*dead_letters.COMMANDS, *webhooks.COMMANDS),
    "This prompt": _PROMPT,
}
"""The commands as `help` groups them."""

COMMANDS = tuple(command for commands in SECTIONS.values() for command in commands)

_BY_NAME = {name: command for command in COMMANDS for name in (command.name, *command.also)}


CLOSE = 0.85
"""How much a first word must resemble a command to be taken for a misspelt one."""


class Grammar(Enum):
    """Which lines are commands. In each, `/name` is one."""

    COMMANDS = auto()
    """All."""
    MIXED = auto()
    """Those whose first word is, or resembles, the name of a command; the others are text for the swarm."""
    CHAT = auto()
    """Those that begin with one slash; the others are text for the swarm, without the first of two slashes."""

    def is_command(self, typed: str) -> bool:
        """Return whether a line is a command."""
        begun = typed.lstrip()
        if self is Grammar.COMMANDS or not begun:
            return True
        if begun.startswith("/"):
            return not begun.startswith("//")
        if self is Grammar.CHAT:
            return False
        from difflib import get_close_matches

        return bool(get_close_matches(begun.split()[0], names(), n=1, cutoff=CLOSE))


def text_of(typed: str) -> str:
    """Return the text for the swarm that a line is."""
    text = typed.strip().replace("\\\n", "\n")
    return text[1:] if text.startswith("//") else text


def names() -> list[str]:
    """Return the names of all commands that need no slash, sorted."""
    return sorted(name for name, command in _BY_NAME.items() if not command.needs_slash)


def find(name: str, *, with_slash: bool = False) -> Command:
    """Return the command of this name, which was written with a slash or without. Raises UsageError."""
    known = {each: command for each, command in _BY_NAME.items() if with_slash or not command.needs_slash}
    if name in known:
        return known[name]
    from difflib import get_close_matches

    close = get_close_matches(name, known, n=1)
    slash = "/" if with_slash else ""
    hint = (
        f"did you mean {slash}{close[0]}?"
        if close
        else f'{slash}help lists them; to send text, type: {slash}message "…"'
    )
    raise UsageError(f"there is no command {slash + name!r}; {hint}")


def parse(words: list[str]) -> tuple[Command, Namespace]:
    """Return the command of a line, and its arguments. Raises UsageError, HelpRequested."""
    name = words[0].removeprefix("/")
    command = find(name, with_slash=name != words[0])
    return command, command.parse(words[1:], "/" if name != words[0] else "")
