"""The commands of the prompt: those of the nouns, and those about the prompt itself."""

from collections.abc import Coroutine, Iterable, Mapping
from enum import Enum, auto
from typing import Any, cast

import click
from click.shell_completion import CompletionItem

from mail.cli import (
    approvals,
    audit,
    callbacks,
    callers,
    conversation,
    dead_letters,
    drafts,
    inbox,
    messages,
    schedules,
    swarms,
    tasks,
    threads,
    usage,
    webhooks,
)
from mail.cli.command import Command, Namespace, positional
from mail.cli.output import Output, one_line
from mail.cli.session import Session, UsageError, reveal
from mail.cli.values import Reference, Secret
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
                    session.memory.add_task(task_id)
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
        name = given.command.removeprefix("/")
        slash = "" if name in PROMPT.words and not session.slash else "/"
        begin([f"{slash}{name}", "--help"], session)
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
    key = given.key or (session.ask_key and reveal(session.ask_key()))
    if not key:
        raise UsageError("login: the key is missing")
    caller = await session.client.login(key)
    session.memory.tasks.clear()
    session.output.result(caller, lambda: show_caller(caller, session.output))


async def _logout(session: Session, given: Namespace) -> None:
    session.client.api_key = None
    session.memory.tasks.clear()
    session.output.result({"status": "logged out"}, lambda: session.output.text("logged out"))


def _title(command: Command, slash: str) -> str:
    before = "/" if command.needs_slash else slash
    return ", ".join(before + name for name in (command.name, *command.also))


class _CommandName(Reference):
    """The name of a command."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return [CompletionItem(name) for name in sorted(PROMPT.words) if name.startswith(incomplete)]


_PROMPT = (
    Command(
        name="help",
        also=("?",),
        summary="List the commands, or show the arguments of one.",
        handler=_help,
        arguments=(positional("command", "The command.", required=False, type=_CommandName()),),
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
                type=Secret(),
            ),
        ),
    ),
    Command(name="logout", summary="Log out.", handler=_logout),
)

SECTIONS: dict[str, tuple[Command, ...]] = {
    "Talk to the swarm": conversation.COMMANDS,
    "Follow its work": (*tasks.COMMANDS, *threads.COMMANDS, *usage.COMMANDS),
    "Mail with people and agents": inbox.COMMANDS,
    "Send messages with all options": messages.COMMANDS,
    "The server and its swarms": swarms.COMMANDS,
    "Drafts of the swarm": drafts.COMMANDS,
    "Dead letters and webhooks": (*dead_letters.COMMANDS, *webhooks.COMMANDS),
    "Audit": audit.COMMANDS,
    "Approvals": approvals.COMMANDS,
    "Schedules": schedules.COMMANDS,
    "Calls of actions": callbacks.COMMANDS,
    "Callers": callers.COMMANDS,
    "This prompt": _PROMPT,
}
"""The commands as `help` groups them."""

COMMANDS = tuple(command for commands in SECTIONS.values() for command in commands)


class Prompt(click.Group):
    """The commands of the prompt, some of which exist only after a slash.

    Attributes:
        words: the names that are commands without a slash.
    """

    def __init__(self, rows: Iterable[Command]) -> None:
        named = {name: row for row in rows for name in (row.name, *row.also)}
        super().__init__(
            commands={**named},
            add_help_option=False,
            context_settings={"show_default": True, "help_option_names": ["-h", "--help"]},
        )
        self.words = {name: row for name, row in named.items() if not row.needs_slash}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, which was written with a slash or without."""
        if cmd_name.startswith("/"):
            return self.commands.get(cmd_name[1:])
        return self.words.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that words begin with. Raises UsageError."""
        name = args[0]
        if self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            raise UsageError(f"there is no command {name!r}; {self._hint(name)}")
        return super().resolve_command(ctx, args)

    def _hint(self, name: str) -> str:
        from difflib import get_close_matches

        slash = "/" if name.startswith("/") else ""
        if close := get_close_matches(name.removeprefix("/"), self.commands if slash else self.words, n=1):
            return f"did you mean {slash}{close[0]}?"
        return f'{slash}help lists them; to send text, type: {slash}message "…"'

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with a text."""
        slash = "/" if incomplete.startswith("/") else ""
        known = {slash + name: row.help for name, row in (self.commands if slash else self.words).items()}
        return [
            CompletionItem(name, help=text) for name, text in known.items() if name.startswith(incomplete)
        ]


PROMPT = Prompt(COMMANDS)

Work = Coroutine[Any, Any, int | None]


def begin(words: list[str], session: Session) -> Work | None:
    """Return what performs a line's command; None if the line asks for help, which is printed. Raises UsageError."""
    try:
        with PROMPT.make_context("", words, obj=session) as context:
            return cast("Work", PROMPT.invoke(context))
    except click.exceptions.Exit:
        return None
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else words[0]
        slash = "/" if path.startswith("/") else ""
        problem = error.format_message().rstrip(".")
        raise UsageError(f"{path}: {problem}; see {slash}help {path.removeprefix('/')}") from None


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

        return bool(get_close_matches(begun.split()[0], PROMPT.words, n=1, cutoff=CLOSE))


def text_of(typed: str) -> str:
    """Return the text for the swarm that a line is."""
    text = typed.strip().replace("\\\n", "\n")
    return text[1:] if text.startswith("//") else text
