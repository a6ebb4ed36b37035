"""What the commands do: ask the server, and print what it says."""

import asyncio
from collections.abc import Mapping
from typing import Any

from mail.cli.output import one_line
from mail.cli.repl.arguments import Namespace, UsageError
from mail.cli.repl.session import Session, reveal
from mail.cli.status import Status, status_after
from mail.cli.views.timeline import printer, read_line
from mail.cli.watching import answering_line, show_answer, show_stream, stopwatch_for
from mail.errors import MAILError

_OWN_FLAGS = frozenset(
    {"message", "entrypoint", "show_events", "subject", "msg_type", "task_id", "resume_from", "webhook"}
    | {"idempotency_key", "generation"}
)

KNOWN_TASKS = 20
"""How many of the newest tasks can be completed at once."""

GREETING_SECONDS = 5.0
"""How long the first look at the server may take."""

# ---------------------------------------------------------------------------------------------- the server


async def look_around(session: Session) -> None:
    """Say which server this is and who one is to it, and remember the newest tasks."""
    base = session.client.base_url
    session.output.text(f"MAIL client at {base}; help lists the commands, Ctrl+D leaves.")
    try:
        async with asyncio.timeout(GREETING_SECONDS):
            await ping(session, Namespace())
            if session.client.api_key:
                await whoami(session, Namespace())
                for task_id in reversed(await session.client.get_tasks(limit=KNOWN_TASKS)):
                    session.meet_task(task_id)
    except TimeoutError:
        raise MAILError(f"{base} doesn't answer; it may do so later") from None


async def ping(session: Session, given: Namespace) -> None:
    """`GET /`."""
    root = await session.client.ping()
    swarm = root.get("swarm") or {}
    if isinstance(swarm, dict) and "entrypoint" in swarm:
        session.agents.add(swarm["entrypoint"])
        swarm = f"swarm {swarm['name']} {swarm['version']}"
    shown = f"{root.get('name')} (protocol {root.get('protocol_version')}) is {root.get('status')}: {swarm}"
    session.output.result(root, lambda: session.output.text(one_line(shown)))


async def health(session: Session, given: Namespace) -> None:
    """`GET /health`."""
    answer = await session.client.get_health()
    shown = f"{answer.get('swarm_name')} is {answer.get('status')}"
    session.output.result(answer, None if given.verbose else lambda: session.output.text(one_line(shown)))


async def update_health(session: Session, given: Namespace) -> None:
    """`POST /health`."""
    session.output.result(await session.client.update_health(" ".join(given.status)))


async def whoami(session: Session, given: Namespace) -> None:
    """`GET /whoami`."""
    answer = await session.client.get_whoami()
    shown = f"{answer.get('id')} ({answer.get('role')})"
    session.output.result(answer, lambda: session.output.text(one_line(shown)))


async def status(session: Session, given: Namespace) -> None:
    """`GET /status`."""
    session.output.result(await session.client.get_status())


async def login(session: Session, given: Namespace) -> None:
    """Show another key from now on, if the server takes it."""
    before = session.client.api_key
    session.client.api_key = reveal(given.key)
    try:
        await whoami(session, given)
    except BaseException:
        session.client.api_key = before
        raise
    _forget(session)


async def logout(session: Session, given: Namespace) -> None:
    """Show no key from now on."""
    session.client.api_key = None
    _forget(session)
    session.output.result({"status": "logged out"}, lambda: session.output.text("logged out"))


def _forget(session: Session) -> None:
    """The next one has tasks of their own."""
    session.tasks.clear()


# ------------------------------------------------------------------------------------------------ messages


async def message(session: Session, given: Namespace) -> None:
    """`POST /message`. The events are always asked for, as only they tell how the task stands."""
    with session.writing(given) as task_id:
        answer = await session.client.post_message(
            " ".join(given.body), given.entrypoint, True, **_message_settings(given, task_id)
        )
    task_id, events, status = _learn(session, task_id, answer)
    shown = {
        "response": answer["response"],
        "task_id": task_id,
        "status": status,
        "events": events if given.show_events else None,
    }
    if session.output.as_json:
        session.output.result(shown)
        return
    if given.show_events and events:
        first = events[0]["id"]
        stopwatch = await stopwatch_for(session.client, str(task_id), first, session.output)
        show_line = printer(session.output.stream)
        for event in events:
            show_line(read_line(event["event"], event["data"], stopwatch.read(event["data"])))
        session.output.text("")
    session.output.text(answer["response"])
    _show_end(session, task_id, status)


def _learn(
    session: Session, task_id: str | None, answer: Mapping[str, Any]
) -> tuple[str | None, list[dict[str, Any]], Status | None]:
    """The task of an answer, its events, and how it has left the task."""
    events = answer.get("events") or []
    if task_id is None and events:
        task_id = events[-1]["data"].get("task_id")
    for event in events:
        session.learn(event["event"], event["data"])
    status = status_after(event["event"] for event in events)
    session.note(task_id, status)
    return task_id, events, status


async def message_stream(session: Session, given: Namespace) -> None:
    """`POST /message` with `stream`."""
    with session.writing(given) as task_id:
        stream = await session.client.post_message_stream(
            " ".join(given.body), given.entrypoint, **_message_settings(given, task_id)
        )
    shown = await show_stream(session.client, stream, session.output, learn=session.learn)
    if shown.answer is None:
        raise MAILError(f"the stream of task {stream.task_id} ended without an answer")
    session.note(stream.task_id, shown.status)
    show_answer(shown.answer, session.output)
    if not session.output.as_json:
        _show_end(session, stream.task_id, shown.status)


async def message_interswarm(session: Session, given: Namespace) -> None:
    """`POST /interswarm/message`."""
    with session.writing(given) as task_id:
        answer = await session.client.send_interswarm_message(
            given.body,
            given.targets,
            reveal(given.token),
            subject=given.subject,
            msg_type=given.msg_type,
            task_id=task_id,
            routing_info=given.routing_info,
            idempotency_key=given.idempotency_key,
            generation=given.generation,
        )
    task_id, events, status = _learn(session, task_id, answer)
    session.output.result(
        {"response": answer["response"], "task_id": task_id, "status": status, "events": events}
    )


def _message_settings(given: Namespace, task_id: str | None) -> dict[str, Any]:
    """What both kinds of message are sent with. Raises UsageError."""
    further: dict[str, Any] = given.kwargs or {}
    if twice := sorted(_OWN_FLAGS & further.keys()):
        raise UsageError(f"--kwargs can't hold {', '.join(twice)}: there are flags for that")
    return {
        "subject": given.subject,
        "msg_type": given.msg_type or "request",
        "task_id": task_id,
        "resume_from": given.resume_from,
        "webhook": given.webhook,
        "idempotency_key": given.idempotency_key,
        "generation": given.generation,
        **further,
    }


def _show_end(session: Session, task_id: str | None, status: Status | None) -> None:
    """Say which task that was, and how to go on where it waits for somebody."""
    if task_id is None:
        return
    failed = " has failed" if status is Status.FAILED else ""
    session.output.text(f"task {task_id}{failed}", style="dim")
    if status is Status.PAUSED:
        session.output.text(
            f"It waits for the results of these calls. Go on with\n  {answering_line(task_id)}"
        )


# --------------------------------------------------------------------------------------------------- tasks


async def tasks(session: Session, given: Namespace) -> None:
    """`GET /tasks`."""
    from mail.cli.views.tasks import show_tasks

    records = await session.client.get_tasks(limit=given.limit, status=given.status)
    for task_id in reversed(records):
        session.meet_task(task_id)
    session.output.result(records, lambda: show_tasks(records.values(), session.output))


async def task(session: Session, given: Namespace) -> None:
    """`GET /task`."""
    from mail.cli.views.tasks import read_task, show_task

    record = await session.client.get_task(_which_task(session, given), at=given.at)
    view = read_task(record)
    for kind, data in view.timeline():
        session.learn(kind, data)
    session.meet_task(view.task_id)
    session.output.result(record, lambda: show_task(view, session.output, events=given.events))


async def cancel(session: Session, given: Namespace) -> None:
    """`POST /task/cancel`."""
    from mail.cli.views.tasks import show_cancelled

    answer = await session.client.cancel_task(_which_task(session, given), given.reason)
    session.output.result(answer, lambda: show_cancelled(answer, session.output))


async def fork(session: Session, given: Namespace) -> None:
    """`POST /task/fork`."""
    from mail.cli.views.tasks import show_forked

    answer = await session.client.fork_task(_which_task(session, given), given.at, run=given.run)
    session.meet_task(answer["task_id"])
    session.output.result(answer, lambda: show_forked(answer, session.output))


async def watch(session: Session, given: Namespace) -> None:
    """`GET /task/stream`."""
    stream = await session.client.watch_task(_which_task(session, given), after=given.after)
    shown = await show_stream(session.client, stream, session.output, learn=session.learn)
    session.note(stream.task_id, shown.status)
    show_answer(shown.answer, session.output)
    if not session.output.as_json:
        _show_end(session, stream.task_id, shown.status)


async def usage(session: Session, given: Namespace) -> None:
    """`GET /usage`."""
    from mail.cli.views.usage import By, ask_usage, show_usage

    by = By(given.by)
    answer = await ask_usage(
        session.client,
        by,
        task_id=given.task_id,
        caller=given.caller,
        since=given.since,
        until=given.until,
    )
    session.output.result(answer, lambda: show_usage(answer, by, session.output))


async def dead_letters(session: Session, given: Namespace) -> None:
    """`GET /dead-letters`."""
    from mail.cli.views.dead_letters import show_letters

    letters = await session.client.get_dead_letters(
        task_id=given.task, caller=given.caller, limit=given.limit
    )
    session.output.result(letters, lambda: show_letters(letters, session.output))


async def redrive(session: Session, given: Namespace) -> None:
    """`POST /dead-letters/redrive`."""
    from mail.cli.views.dead_letters import show_redriven

    answer = await session.client.redrive_dead_letters(
        _letters_task(given), given.seq, caller=given.caller, all=given.all
    )
    session.output.result(answer, lambda: show_redriven(answer, session.output))


async def discard(session: Session, given: Namespace) -> None:
    """`POST /dead-letters/discard`."""
    from mail.cli.views.dead_letters import show_discarded

    answer = await session.client.discard_dead_letters(
        _letters_task(given), given.seq, caller=given.caller, all=given.all
    )
    session.output.result(answer, lambda: show_discarded(answer, session.output))


def _letters_task(given: Namespace) -> str | None:
    task_id: str | None = given.task_id
    if (task_id is None) is not given.all:
        raise UsageError("name a task, or give --all; dead-letters lists them")
    return task_id


def _which_task(session: Session, given: Namespace) -> str:
    task_id = given.task_id or session.last_task
    if task_id is None:
        raise UsageError("which task? tasks lists them")
    return str(task_id)


# ------------------------------------------------------------------------------------------------- threads


async def threads(session: Session, given: Namespace) -> None:
    """`GET /threads`."""
    from mail.cli.views.threads import show_threads

    answer = await session.client.get_threads(
        task_id=given.task,
        bead=given.bead,
        pending=given.pending,
        overdue=given.overdue,
        ack_within=given.ack_within,
        limit=given.limit,
        cursor=given.cursor,
    )
    session.output.result(answer, lambda: show_threads(answer, session.output))


async def thread(session: Session, given: Namespace) -> None:
    """`GET /threads/{thread_id}`; or an answer to who waits in it."""
    from mail.cli.thread_replies import answer_appeal, show_reply
    from mail.cli.views.threads import show_thread

    if given.reply is not None:
        answer = await answer_appeal(session.client, given.thread_id, given.reply, task_id=given.task)
        session.meet_task(answer.task_id)
        session.note(answer.task_id, answer.status)
        session.output.result(answer.record, lambda: show_reply(answer, session.output))
        return
    record = await session.client.get_thread(given.thread_id, task_id=given.task, ack_within=given.ack_within)
    session.output.result(record, lambda: show_thread(record, session.output))


# -------------------------------------------------------------------------------------------------- swarms


async def swarms(session: Session, given: Namespace) -> None:
    """`GET /swarms`."""
    session.output.result(await session.client.get_swarms())


async def webhooks(session: Session, given: Namespace) -> None:
    """`GET /webhooks`."""
    from mail.cli.views.tasks import show_webhooks

    answer = await session.client.get_webhooks(given.task)
    session.output.result(answer, lambda: show_webhooks(answer["webhooks"], session.output))


async def register_webhook(session: Session, given: Namespace) -> None:
    """`POST /webhooks`."""
    answer = await session.client.register_webhook(given.url, given.secret_ref, given.event)
    session.output.result(answer, lambda: session.output.text(answer["id"]))


async def delete_webhook(session: Session, given: Namespace) -> None:
    """`DELETE /webhooks/{id}`."""
    session.output.result(await session.client.delete_webhook(given.webhook_id))


async def register_swarm(session: Session, given: Namespace) -> None:
    """`POST /swarms`."""
    answer = await session.client.register_swarm(
        given.name, given.base_url, reveal(given.auth_token), given.metadata, given.volatile
    )
    session.output.result(answer)


async def dump_swarm(session: Session, given: Namespace) -> None:
    """`GET /swarms/dump`."""
    session.output.result(await session.client.dump_swarm())


async def load_swarm(session: Session, given: Namespace) -> None:
    """`POST /swarms/load`."""
    session.output.result(await session.client.load_swarm_from_json(given.json))


# -------------------------------------------------------------------------------------------------- OpenAI


async def responses(session: Session, given: Namespace) -> None:
    """`POST /responses`."""
    session.output.result(
        await session.client.post_responses(
            {
                "input": given.input,
                "tools": given.tools,
                "instructions": given.instructions,
                "previous_response_id": given.previous_response_id,
                "tool_choice": given.tool_choice,
                "parallel_tool_calls": given.parallel_tool_calls,
                "kwargs": given.kwargs,
            }
        )
    )
