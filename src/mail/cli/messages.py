"""The commands of the prompt that send messages: to the swarm, to other swarms, and as OpenAI's Responses API."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import click

from mail.cli.command import Command, Namespace, joined, option, positional, switch
from mail.cli.session import Session, UsageError
from mail.cli.values import JSON, Agent, Agents, Secret, Task, json_list, json_object, json_or_text
from mail.cli.views.events import show_stream
from mail.cli.views.questions import questions_of
from mail.cli.views.tasks import read_task, show_lines
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.client.messaging import MessageOptions

KINDS = ("request", "response", "broadcast", "interrupt")
RESUME_POINTS = ("user_response", "breakpoint_tool_call")

TASK = option("--task-id", help="The task to continue, or the id of a new one.", type=Task(may_be_new=True))
SUBJECT = option("--subject", help="The subject.")
DROP_QUESTION = switch(
    "--drop-question", help="Send it even if the task waits for an answer, and drop its question."
)
CONDITIONS = (
    option(
        "--idempotency-key",
        help="A key of your choice. Repeating the command with it within a day sends the message only once.",
    ),
    option("--generation", help="Send it only if the task is still at this generation.", type=int),
)
MESSAGE: tuple[click.Parameter, ...] = (
    positional(
        "body",
        "The text; quote it if it contains quotes, backslashes or flags.",
        metavar="TEXT...",
        nargs=-1,
        required=True,
        callback=joined,
    ),
    option("--entrypoint", help="The agent to write to.", type=Agent()),
    SUBJECT,
    option("--msg-type", help="The kind of message.", type=click.Choice(KINDS), default="request"),
    TASK,
    option(
        "--resume-from", help="Where to resume a task that has stopped.", type=click.Choice(RESUME_POINTS)
    ),
    option(
        "--kwargs",
        "settings",
        help="A JSON object with max_steps, timeout, budget, breakpoint_tool_call_result.",
        type=JSON(json_object),
    ),
    option(
        "--webhook", help="A URL to notify when the task ends, or a JSON object.", type=JSON(json_or_text)
    ),
    DROP_QUESTION,
    option(
        "--output-schema", help="The JSON Schema that the answer must fit, or @file.", type=JSON(json_object)
    ),
    *CONDITIONS,
)


async def message(session: Session, given: Namespace) -> None:
    """Send a message and print the answer. Requests the events as well: only they tell the task's status."""
    with session.sending(_options(given)) as options:
        answer = await session.client.post(given.body, options)
    events = answer.get("events") or []
    shown = _learn(session, options.task_id, answer)
    if session.output.as_json:
        warnings = {"warnings": answer["warnings"]} if answer.get("warnings") else {}
        session.output.result({**shown, "events": events if given.show_events else None, **warnings})
        return
    if given.show_events and events:
        task = await session.client.get_task(str(shown["task_id"]), items=True)
        show_lines(read_task(task), session.output, first=int(events[0]["id"] or 1))
        session.output.text("")
    questions = questions_of(answer.get("pending_tool_calls") or ())
    if not questions or not session.output.is_terminal:
        session.output.answer(answer["response"])
    session.show_warnings("; ".join(answer.get("warnings") or ()))
    session.show_status(shown["task_id"], shown["status"], questions=questions)


async def message_stream(session: Session, given: Namespace) -> None:
    """Send a message, and print events as they happen."""
    with session.sending(_options(given)) as options:
        stream = await session.client.post_stream(given.body, replace(options, **session.streamed))
    session.show_warnings(stream.warnings)
    shown = await show_stream(session.client, stream, session.output, learn=session.memory.learn)
    if shown.answer is None:
        raise MAILError(f"the stream of task {stream.task_id} ended without an answer")
    session.memory.set_status(stream.task_id, shown.status)
    session.show_status(stream.task_id, shown.status, questions=shown.questions)


async def message_interswarm(session: Session, given: Namespace) -> None:
    """Send a message to agents of other swarms and print the answer."""
    with session.sending(_options(given)) as options:
        answer = await session.client.post_interswarm(
            given.body, given.targets, given.token, options, routing_info=given.routing_info
        )
    session.output.result(_learn(session, options.task_id, answer))


def _options(given: Namespace) -> "MessageOptions":
    """Return the options of a message. Raises UsageError if --kwargs repeats one of them."""
    from mail.client.messaging import MessageOptions

    settings = getattr(given, "settings", None) or {}
    names = {each.name for each in fields(MessageOptions)} - {"settings", "approvals"}
    if twice := sorted({"message", "show_events", *names} & settings.keys()):
        raise UsageError(f"--kwargs can't contain {', '.join(twice)}; use the flags")
    options = {name: value for name, value in vars(given).items() if name in names}
    return MessageOptions(**options, settings=settings)


def _learn(session: Session, task_id: str | None, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Remember the events of an answer; return it with its task and the task's status."""
    from mail.client.stream import status_of

    events = answer.get("events") or []
    if task_id is None and events:
        task_id = events[-1]["data"].get("task_id")
    for event in events:
        session.memory.learn(event["data"])
    end: Mapping[str, Any] = events[-1] if events else {"event": "", "data": {}}
    status = answer.get("status") or status_of(end["event"], end["data"])  # of other swarms, only events come
    session.memory.set_status(task_id, status)
    return {"response": answer["response"], "task_id": task_id, "status": status, "events": events}


COMMANDS = (
    Command(
        name="message",
        summary="Send a message and wait for the answer.",
        handler=message,
        arguments=(*MESSAGE, switch("--show-events", help="Show the task's events, too.")),
    ),
    Command(
        name="message-stream",
        summary="Send a message and show events as they happen.",
        handler=message_stream,
        arguments=MESSAGE,
    ),
    Command(
        name="message-interswarm",
        summary="Send a message to agents of other swarms and wait for the answer.",
        handler=message_interswarm,
        arguments=(
            positional("body", "The text."),
            positional("targets", "An agent@swarm, or a JSON list of them.", type=Agents()),
            positional(
                "token",
                "The API key of the caller to send it for, or $VARIABLE. [default: yours]",
                required=False,
                type=Secret(),
            ),
            SUBJECT,
            option("--msg-type", help="The kind of message.", type=click.Choice(("request", "broadcast"))),
            TASK,
            option(
                "--routing-info",
                help="A JSON object for the servers that forward the message.",
                type=JSON(json_object),
            ),
            DROP_QUESTION,
            *CONDITIONS,
        ),
    ),
    Command(
        name="responses",
        summary="Call the swarm through OpenAI's Responses API (the server runs with --debug).",
        operation="post_responses",
        arguments=(
            positional("input", "A text, a JSON list, or @file.", type=JSON(json_or_text)),
            positional("tools", "A JSON list, or @file.", required=False, type=JSON(json_list), default="[]"),
            option("--instructions", help="Instructions for the model."),
            option("--previous-response-id", help="The response to continue from."),
            option("--tool-choice", help="auto, none, required, or a JSON object.", type=JSON(json_or_text)),
            switch("--parallel-tool-calls", help="Allow several tool calls at a time.", default=None),
            option("--kwargs", help="A JSON object with further fields.", type=JSON(json_object)),
        ),
    ),
)
