"""Talking to a swarm: `mail send`, `mail reply`, and plain text at the prompt."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import time
from typing import TYPE_CHECKING, Any

from mail.cli.command import Command, Namespace, joined, option, positional, switch
from mail.cli.output import counted, price
from mail.cli.repl.words import split
from mail.cli.session import NOT_FOUND, Session, Status, TaskAsks, UsageError, how_to_reply
from mail.cli.values import PATH, Agent, Duration, Task
from mail.cli.views.questions import Question
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.cli.views.events import Shown
    from mail.client import EventStream
    from mail.client.messaging import MessageOptions

DECISIONS = {
    **dict.fromkeys(("approve", "a", "yes", "y"), "approve"),
    **dict.fromkeys(("reject", "r", "no", "n"), "reject"),
    **dict.fromkeys(("edit", "e"), "edit"),
}
"""What a person types about a call that needs approval."""


async def say(session: Session, text: str) -> None:
    """Send a text to the open task, or to a new one; if that asks something, the text is the answer."""
    from mail.client.messaging import MessageOptions

    if session.memory.questions:
        await reply(session, text)
        return
    try:
        files = list(session.memory.files)
        await send(session, text, MessageOptions(task_id=session.memory.open_task, files=files))
    except TaskAsks:
        if session.memory.open_task is None:
            raise
        if not session.output.as_json:
            session.output.text("Not sent: the task waits for an answer.")
        await open_task(session, session.memory.open_task)


async def open_task(session: Session, task_id: str, *, is_new_allowed: bool = False) -> None:
    """Let plain text continue a task, or begin it if it may be new, and print what it asks."""
    from mail.cli.views.tasks import read_task
    from mail.client.errors import BadAnswer

    task_id = await session.find_task(task_id, may_be_new=is_new_allowed)
    try:
        view = read_task(await session.client.get_task(task_id))
    except BadAnswer as refusal:
        if refusal.status != NOT_FOUND or not is_new_allowed:
            raise
        session.memory.open(task_id)
        return
    session.memory.add_task(view.task_id)
    questions = view.questions()
    session.memory.open(view.task_id, questions)
    if session.output.as_json:
        return
    task = f"task {session.output.id(view.task_id)} is {view.state}: {view.title or ''}"
    session.output.text(task.rstrip(": "), style="dim")
    show_questions(session, questions)


def show_questions(session: Session, questions: Sequence[Question]) -> None:
    """Print what the open task asks, and how to answer: in a chat, what to type."""
    for question in questions:
        session.output.text(str(question), style="bold")
    if questions:
        how = session.next_step(session.memory.open_task or "", questions)
        session.output.text(how, style="dim" if session.is_chat else "")


async def reply(session: Session, text: str) -> None:
    """Answer the first question of the open task; all results are sent together. Raises UsageError."""
    from mail.client.messaging import MessageOptions

    question, *others = session.memory.questions
    if question.needs_approval:
        decided = read_decision(question, text)
        _show_edit(session, question, decided.get("arguments", question.arguments))
        options = MessageOptions(task_id=session.memory.open_task, approvals=[decided])
        await send(session, "", options)
        return
    session.memory.results[question.call_id] = text
    if others:
        session.memory.questions = tuple(others)
        if not session.output.as_json:
            show_questions(session, others)
        return
    await _resume(session, _results(session.memory.results))


def _results(results: Mapping[str, str]) -> dict[str, Any]:
    given = [{"call_id": call_id, "content": text} for call_id, text in results.items()]
    return {"breakpoint_tool_call_result": given}


async def _resume(session: Session, settings: dict[str, Any]) -> None:
    from mail.client.messaging import MessageOptions

    options = MessageOptions(
        task_id=session.memory.open_task, resume_from="breakpoint_tool_call", settings=settings
    )
    await send(session, "", options)


def read_decision(question: Question, text: str) -> dict[str, Any]:
    """Return the decision on a call that a text tells. Raises UsageError."""
    word, _, rest = text.strip().partition(" ")
    decision = DECISIONS.get(word.lower().rstrip(","))
    if decision is None or (decision == "approve" and rest):
        raise UsageError(f"{question}. {how_to_reply([question])}")
    decided: dict[str, Any] = {"decision": decision, "call_id": question.call_id}
    if question.digest is not None:
        decided["arguments_sha256"] = question.digest
    if decision == "edit":
        decided["arguments"] = {**question.arguments, **read_arguments(rest, question)}
    elif rest:
        decided["reason"] = rest.strip()
    return decided


def _show_edit(session: Session, question: Question, arguments: Mapping[str, Any]) -> None:
    """Print what an edit changes of a call's arguments, as a diff."""
    for name in () if session.output.as_json else dict.fromkeys([*question.arguments, *arguments]):
        for sign, style, given in (("-", "red", question.arguments), ("+", "green", arguments)):
            if question.arguments.get(name) != arguments.get(name) and name in given:
                value = json.dumps(given[name], ensure_ascii=False)
                session.output.text(f"{sign} {name}: {value}", style=style)


def read_arguments(text: str, question: Question) -> dict[str, Any]:
    """Return the arguments that a text names: a JSON object, or words such as `amount=5`. Raises UsageError."""
    if text.lstrip().startswith("{"):
        try:
            return dict(json.loads(text))
        except ValueError as error:
            raise UsageError(f"not JSON: {error}") from None
    try:
        pairs = [word.partition("=") for word in split(text)]
    except ValueError:
        raise UsageError("close the quote") from None
    if not pairs or not all(name and equals for name, equals, _ in pairs):
        raise UsageError("name the arguments to change: edit amount=5, or a JSON object")
    return {name: _value(value, question.arguments.get(name)) for name, _, value in pairs}


def _value(text: str, current: Any) -> Any:
    """Return the value that a text stands for: a text if the current value is one, else JSON if it can be."""
    if isinstance(current, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


async def send(session: Session, text: str, options: "MessageOptions") -> None:
    """Send a message, and show the answer."""
    is_new = options.task_id is None
    with session.sending(options) as given:
        stream = await session.client.post_stream(text, replace(given, **session.streamed))
    session.memory.files.clear()
    session.show_warnings(stream.warnings)
    if is_new and session.output.is_terminal:
        session.output.text(f"task {session.output.id(stream.task_id)}", style="dim")
    await show_answer(session, stream)


async def show_answer(session: Session, stream: "EventStream") -> None:
    """Show what agents do, then the answer of a task or what it asks."""
    from mail.cli.views.conversation import conversation
    from mail.cli.views.events import follow

    view = conversation(session.output, is_quiet=not session.is_prompt)
    shown = await follow(stream, view, session.memory.learn)
    session.memory.waiting_for = None
    if shown.answer is None:
        raise MAILError(f"the stream of task {stream.task_id} ended without an answer")
    session.memory.set_status(stream.task_id, shown.status)
    session.memory.open(stream.task_id)
    if not session.output.as_json:
        keys = "Ctrl+O unfolds, " if session.ask_key is not None else ""
        session.memory.steps = view.fold(f"{keys}{session.task_command(stream.task_id)}")
        session.memory.is_unfolded = False
        await _show(session, stream.task_id, shown)
    result = {"response": shown.answer, "task_id": stream.task_id, "status": shown.status}
    session.output.result(result, lambda: None)


async def _show(session: Session, task_id: str, shown: "Shown") -> None:
    from mail.cli.views.tasks import read_task

    if shown.status is not Status.PAUSED:
        if shown.status is Status.FAILED:
            session.output.text(str(shown.answer), style="red")
        else:
            session.output.answer(str(shown.answer))
        return
    view = read_task(await session.client.get_task(task_id))
    session.memory.open(task_id, view.questions())
    show_questions(session, view.questions())


# ------------------------------------------------------------------------------------------------ commands


async def _send(session: Session, given: Namespace) -> None:
    from mail.cli.files import upload
    from mail.client.messaging import MessageOptions

    files = [(await upload(session, path))["id"] for path in given.file]
    not_before = given.at if given.delay is None else time() + given.delay
    options = MessageOptions(
        entrypoint=given.entrypoint, task_id=given.task_id, files=files, not_before=not_before
    )
    if not given.no_wait and not_before is None:
        await send(session, given.body, options)
        return
    with session.sending(options) as chosen:
        stream = await session.client.post_stream(given.body, chosen)
        await stream.aclose()
    session.memory.waiting_for = None
    accepted = {"task_id": stream.task_id, "status": Status.RUNNING}
    session.output.result(accepted, lambda: session.output.text(stream.task_id))


async def _reply(session: Session, given: Namespace) -> None:
    """Answer all questions of a task, or continue a task that asks nothing."""
    from mail.cli.views.tasks import read_task
    from mail.client.messaging import MessageOptions

    view = read_task(await session.client.get_task(given.task_id))
    session.memory.open(view.task_id, view.questions())
    questions = session.memory.questions
    decides = any(question.needs_approval for question in questions)
    if (view.questions() and not questions) or (decides and not session.is_chat):
        asked = "; ".join(map(str, view.questions()))
        raise UsageError(f"{asked}\n{session.next_step(view.task_id, view.questions())}")
    text = " ".join(given.body)
    if not questions:
        await send(session, text, MessageOptions(task_id=view.task_id))
    elif len(questions) == 1 or decides:
        await reply(session, text)
    elif len(given.body) == len(questions):
        answers = zip(questions, given.body, strict=True)
        await _resume(session, _results({question.call_id: answer for question, answer in answers}))
    else:
        asked = "\n".join(f"  {n}. {question}" for n, question in enumerate(questions, 1))
        raise UsageError(
            f"task {view.task_id} asks {len(questions)} questions; give one answer for each, in quotes\n{asked}"
        )


async def _attach(session: Session, given: Namespace) -> None:
    from mail.cli.files import upload

    for path in given.file:
        stored = await upload(session, path)
        session.memory.files[stored["id"]] = path.name
    names = ", ".join(session.memory.files.values())
    session.output.result(
        {"files": list(session.memory.files)},
        lambda: session.output.text(f"The next message has {names or 'no files'}."),
    )


async def _show_models(session: Session, given: Namespace) -> None:
    swarm = await session.client.get_swarm()
    rows = [(agent["name"], agent.get("model") or "") for agent in swarm["agents"]]
    session.output.result(dict(rows), lambda: session.output.table(("agent", "model"), rows))


async def _show_cost(session: Session, given: Namespace) -> None:
    if (task_id := session.memory.open_task) is None:
        raise UsageError("there is no conversation yet; send a message first")
    answer = await session.client.get_usage(task_id=task_id)
    total = answer["total"]
    tokens = f"{total['input_tokens']} tokens in, {total['output_tokens']} out"
    shown = f"{counted(total['calls'], 'model call')}, {tokens}, {price(total)}"
    session.output.result(total, lambda: session.output.text(shown))


async def _new(session: Session, given: Namespace) -> None:
    session.memory.open(None)
    session.output.result(
        {"task_id": None}, lambda: session.output.text("The next message starts a new task.")
    )


TASK = positional("task_id", "The task: its id, the beginning of it, or last.", metavar="TASK", type=Task())
TEXT = positional("body", "The text.", metavar="TEXT...", nargs=-1, required=True, callback=joined)

COMMANDS = (
    Command(name="new", needs_slash=True, summary="Start a new task with the next message.", handler=_new),
    Command(
        name="open",
        needs_slash=True,
        summary="Continue another task: the next message goes to it.",
        handler=lambda session, given: open_task(session, given.task_id),
        arguments=(TASK,),
    ),
    Command(
        name="attach",
        needs_slash=True,
        summary="Send files with the next message.",
        handler=_attach,
        arguments=(positional("file", "The files.", metavar="PATH...", nargs=-1, type=PATH),),
    ),
    Command(
        name="model",
        needs_slash=True,
        summary="Show the models of the agents.",
        handler=_show_models,
    ),
    Command(
        name="cost",
        needs_slash=True,
        summary="Show the tokens and the cost of this conversation.",
        handler=_show_cost,
    ),
    Command(
        needs_slash=True,
        shell_name="send",
        summary="Send a message to the swarm, and print the answer.",
        details="Exit codes: 3 the task has failed, 4 it is paused.",
        handler=_send,
        arguments=(
            TEXT,
            option(
                "--task-id", help="The task to continue, or the id of a new one.", type=Task(may_be_new=True)
            ),
            option("--to", "entrypoint", help="The agent to write to.", type=Agent()),
            option(
                "--file",
                metavar="PATH",
                multiple=True,
                type=PATH,
                help="A file that goes with the message; may be repeated.",
            ),
            option(
                "--in",
                "delay",
                metavar="DURATION",
                type=Duration(),
                help="Post it later, such as in 90s, 15m, 2h or 3d; as --no-wait.",
            ),
            option("--at", metavar="TIME", help="Post it at a time: ISO 8601 with its zone; as --no-wait."),
            switch("--no-wait", help="Print the task's id and exit; the task runs on the server."),
        ),
    ),
    Command(
        needs_slash=True,
        shell_name="reply",
        summary="Answer a task's questions, or continue a task.",
        details="Exit codes: 3 the task has failed, 4 it is paused again.",
        handler=_reply,
        arguments=(
            TASK,
            positional(
                "body",
                "The text; if the task asks several questions, the answer to each, in quotes.",
                metavar="TEXT...",
                nargs=-1,
                required=True,
            ),
        ),
    ),
)
