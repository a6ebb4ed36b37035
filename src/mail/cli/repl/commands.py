"""Every command of the interactive client."""

from collections.abc import Mapping
from typing import Any

from mail.cli.repl import handlers as asking
from mail.cli.repl.arguments import (
    Argument,
    Command,
    Completes,
    Namespace,
    UsageError,
    flag,
    json_list,
    json_object,
    json_or_text,
    json_text,
    positional,
    texts,
)
from mail.cli.repl.session import Session
from mail.cli.status import Status
from mail.cli.views.usage import By

RESUME_POINTS = ("user_response", "breakpoint_tool_call")

_TASK = flag("--task-id", help="the task to go on with, or a new one's id", completes=Completes.TASK)

_CONDITIONS: tuple[Argument, ...] = (
    flag("--idempotency-key", help="within a day, what is sent under this text again is accepted once"),
    flag("--generation", help="only if the task is still at this generation", type=int),
)

_MESSAGE: tuple[Argument, ...] = (
    positional("body", "the text; quote it where it has quotes, backslashes or flags", nargs="+"),
    flag("--entrypoint", help="the agent to write to", completes=Completes.AGENT),
    flag("--subject", help="its subject"),
    flag("--msg-type", help="what it is", choices=("request", "response", "broadcast", "interrupt")),
    _TASK,
    flag("--resume-from", help="from where to go on with a task that has stopped", choices=RESUME_POINTS),
    flag(
        "--kwargs",
        help="a JSON object with max_steps, timeout, budget, breakpoint_tool_call_result",
        type=json_object,
    ),
    flag("--webhook", help="a URL to send the end of the task to, or a JSON object", type=json_or_text),
    *_CONDITIONS,
)

_OF_TASK = flag("--task", help="only what is in this task", completes=Completes.TASK)

_ACK_WITHIN = flag("--ack-within", help="the seconds after which what waits is overdue", type=float)

_WHICH_TASK = positional("task_id", "the task; by default the last one", Completes.TASK, nargs="?")


_OF_CALLER = flag("--caller", help="only those of this caller's tasks (admin)")

_WHICH_LETTERS: tuple[Argument, ...] = (
    positional("task_id", "the task", Completes.TASK, nargs="?"),
    positional("seq", "one of its dead letters; by default all", type=int, nargs="?"),
    flag("--all", help="all that dead-letters lists", action="store_true"),
    _OF_CALLER,
)


async def _help(session: Session, given: Namespace) -> None:
    if given.command is not None:
        session.output.text(find(given.command).usage().rstrip())
        return
    width = max(len(_title(command)) for command in COMMANDS)
    for command in COMMANDS:
        session.output.text(f"{_title(command):<{width}}  {command.summary}")
    session.output.text("\nhelp COMMAND tells what a command takes. Ctrl+C stops what runs, Ctrl+D leaves.")


async def _exit(session: Session, given: Namespace) -> None:
    session.is_over = True


def _title(command: Command) -> str:
    return ", ".join((command.name, *command.also))


COMMANDS: tuple[Command, ...] = (
    Command(
        "help",
        "say what there is, or what a command takes",
        _help,
        (positional("command", "the command", Completes.COMMAND, nargs="?"),),
        ("?",),
    ),
    Command("exit", "leave", _exit, also=("quit",)),
    Command("ping", "ask the server who it is", asking.ping),
    Command(
        "health",
        "ask how the swarm is",
        asking.health,
        (flag("-v", "--verbose", help="all that the server says", action="store_true"),),
    ),
    Command(
        "health-update",
        "set how the swarm says it is (admin)",
        asking.update_health,
        (positional("status", "such as healthy or draining", nargs="+"),),
    ),
    Command("whoami", "ask who you are to the server", asking.whoami),
    Command("status", "ask whether the swarm is ready, and whether you have tasks", asking.status),
    Command(
        "login",
        "be somebody else from now on",
        asking.login,
        (
            positional(
                "key",
                "the API key, or $VARIABLE; asked for where it is left out",
                Completes.SECRET,
                nargs="?",
            ),
        ),
        asks="key",
    ),
    Command("logout", "be nobody", asking.logout),
    Command(
        "message",
        "send a message and wait for the answer",
        asking.message,
        (*_MESSAGE, flag("--show-events", help="show what has happened, too", action="store_true")),
    ),
    Command("message-stream", "send a message and watch what happens", asking.message_stream, _MESSAGE),
    Command(
        "message-interswarm",
        "send a message to agents of other swarms, and wait for the answer",
        asking.message_interswarm,
        (
            positional("body", "the text"),
            positional("targets", "a JSON list of agent@swarm, or one", Completes.AGENT, type=texts),
            positional(
                "token", "for whom: a key, or $VARIABLE; by default your own", Completes.SECRET, nargs="?"
            ),
            flag("--subject", help="its subject"),
            flag("--msg-type", help="what it is", choices=("request", "broadcast")),
            _TASK,
            flag("--routing-info", help="a JSON object for whoever passes it on", type=json_object),
            *_CONDITIONS,
        ),
    ),
    Command(
        "tasks",
        "list your tasks, the newest first",
        asking.tasks,
        (
            flag(
                "--status", help="only those in this state", choices=tuple(status.value for status in Status)
            ),
            flag("--limit", help="how many, at most (20)", type=int, default=20),
        ),
        ("tasks-get",),
    ),
    Command(
        "task",
        "show a task",
        asking.task,
        (
            _WHICH_TASK,
            flag("-e", "--events", help="event by event", action="store_true"),
            flag("--at", help="as it was once the event with this id had happened", type=int),
        ),
        ("task-get",),
    ),
    Command(
        "task-cancel",
        "cancel a task that runs or is paused",
        asking.cancel,
        (_WHICH_TASK, flag("--reason", help="why", default="")),
    ),
    Command(
        "task-fork",
        "make a new task that goes on from any moment of another one",
        asking.fork,
        (
            _WHICH_TASK,
            flag("--at", help="the moment: once the event with this id had happened (now)", type=int),
            flag("--run", help="let the fork of a running moment go on at once", action="store_true"),
        ),
    ),
    Command(
        "task-watch",
        "show a task's events as they happen",
        asking.watch,
        (_WHICH_TASK, flag("--after", help="only the events past the one with this id", type=int)),
    ),
    Command(
        "usage",
        "show what the language models behind your tasks were paid",
        asking.usage,
        (
            flag("--by", help="what to tell apart (agent)", choices=tuple(By), default=By.AGENT.value),
            flag("--task-id", help="only this task", completes=Completes.TASK),
            flag("--caller", help="only this caller's tasks, as role:id (admin)"),
            flag("--since", help="only tasks that began at this time or later: a date, or 7d, 12h, 30m"),
            flag("--until", help="only tasks that began before this time"),
        ),
    ),
    Command(
        "dead-letters",
        "list what could not be processed",
        asking.dead_letters,
        (
            _OF_TASK,
            _OF_CALLER,
            flag("--limit", help="how many, at most (100)", type=int, default=100),
        ),
    ),
    Command("redrive", "let dead letters be processed again", asking.redrive, _WHICH_LETTERS),
    Command("discard", "take dead letters off the list", asking.discard, _WHICH_LETTERS),
    Command(
        "threads",
        "list threads: mail by what it is about, and what is open in it",
        asking.threads,
        (
            flag("--pending", help="only where something has to be acknowledged", action="store_true"),
            flag("--overdue", help="only where that has waited for too long", action="store_true"),
            flag("--bead", help="only those about this bead"),
            _OF_TASK,
            _ACK_WITHIN,
            flag("--limit", help="in how many of the newest tasks, at most (20)", type=int, default=20),
            flag("--cursor", help="go on behind the page that has ended here"),
        ),
        ("inbox",),
    ),
    Command(
        "thread",
        "show a thread, or answer who waits in it",
        asking.thread,
        (
            positional("thread_id", "the thread: a bead or a task, as a rule", Completes.TASK),
            flag("--reply", help="the answer to the request for help that a paused task waits for"),
            _OF_TASK,
            _ACK_WITHIN,
        ),
    ),
    Command(
        "webhooks",
        "list your webhooks, or those of a task and how far each has come",
        asking.webhooks,
        (flag("--task", help="the task", completes=Completes.TASK),),
    ),
    Command(
        "webhook-register",
        "have the ends of your tasks sent to a URL",
        asking.register_webhook,
        (
            positional("url", "where they are posted to"),
            flag("--secret-ref", help="the server's secret to sign with, as ${WEBHOOK_SECRET_…}"),
            flag("--event", help="a kind of event, or * for all; may be repeated", action="append"),
        ),
    ),
    Command(
        "webhook-delete",
        "forget one of your webhooks",
        asking.delete_webhook,
        (positional("webhook_id", "its id, as webhooks shows it"),),
    ),
    Command("swarms-get", "list the public swarms that the server knows", asking.swarms),
    Command(
        "swarm-register",
        "let the server know another swarm (admin)",
        asking.register_swarm,
        (
            positional("name", "its name"),
            positional("base_url", "where it is"),
            flag("--auth-token", help="the key that it wants, or $VARIABLE", completes=Completes.SECRET),
            flag("--metadata", help="a JSON object to keep with it", type=json_object),
            flag("--volatile", help="only until the server is restarted", action="store_true"),
        ),
    ),
    Command("swarm-dump", "write the server's swarm to its log (admin)", asking.dump_swarm),
    Command(
        "swarm-load-from-json",
        "put another swarm in the place of the server's (admin)",
        asking.load_swarm,
        (positional("json", "an entry of swarms.json, or @file", type=json_text),),
    ),
    Command(
        "responses",
        "ask in the way of OpenAI's Responses API (the server runs with --debug)",
        asking.responses,
        (
            positional("input", "text, a JSON list, or @file", type=json_or_text),
            positional("tools", "a JSON list, or @file", type=json_list, nargs="?", default=[]),
            flag("--instructions", help="what the model is told first"),
            flag("--previous-response-id", help="the response to go on from"),
            flag("--tool-choice", help="auto, none, required, or a JSON object", type=json_or_text),
            flag("--parallel-tool-calls", help="several calls at once", action="store_true", default=None),
            flag("--kwargs", help="a JSON object with further fields", type=json_object),
        ),
    ),
)

_BY_NAME: Mapping[str, Command] = {
    name: command for command in COMMANDS for name in (command.name, *command.also)
}


def names() -> list[str]:
    """The names of all commands, in order."""
    return sorted(_BY_NAME)


def find(name: str) -> Command:
    """The command of this name. Raises UsageError."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    from difflib import get_close_matches

    close = get_close_matches(name, _BY_NAME, n=1)
    instead = f"did you mean {close[0]}?" if close else "help lists them"
    raise UsageError(f"there is no command {name!r}; {instead}")


def parse(words: list[str]) -> tuple[Command, Any]:
    """The command of a line, and what it was given. Raises UsageError, HelpWanted."""
    command = find(words[0])
    return command, command.parse(words[1:])
