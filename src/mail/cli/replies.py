"""Replies to the agent whose request for help in a thread has paused a task."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mail.cli.output import Output, one_line
from mail.cli.session import Status, status_after
from mail.cli.views.tasks import PendingCall, read_task
from mail.cli.views.threads import ThreadView, read_view
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.client import MAILClient


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a reply has led to: the task's next answer and status, and the calls that it waits for now."""

    task_id: str
    response: str
    status: Status | None
    calls: tuple[PendingCall, ...]

    @property
    def as_json(self) -> dict[str, Any]:
        """The outcome for programs."""
        return {"task_id": self.task_id, "response": self.response, "status": self.status}


async def reply(client: "MAILClient", thread_id: str, text: str, *, task_id: str | None = None) -> Outcome:
    """Answer the request for help in a thread, or in the task with that id, and wait for the outcome.

    Raises MAILError if no task of the thread waits for an answer of the caller, or if several do.
    """
    view = read_view(ThreadView, await client.get_thread(thread_id, task_id=task_id))
    waiting = {
        each: calls
        for each in view.summary.task_ids
        if (calls := [call for call in await _calls(client, each) if asks_in(call, thread_id, each)])
    }
    if not waiting:
        raise _nothing_waits(thread_id)
    if len(waiting) > 1:
        raise MAILError(
            f"several tasks wait for an answer in thread {thread_id!r}: {', '.join(waiting)}; choose with --task"
        )
    [(chosen, calls)] = waiting.items()
    return await _answer(client, thread_id, chosen, calls[0], text)


async def _answer(
    client: "MAILClient", thread_id: str, task_id: str, call: PendingCall, text: str
) -> Outcome:
    """Send the text as the result of a call: unlike a message, it has no effect if no call waits any more."""
    from mail.client.errors import BadAnswer

    try:
        answer = await client.post_message(
            "",
            show_events=True,
            task_id=task_id,
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result=[{"call_id": call.call_id, "content": text}],
        )
    except BadAnswer as error:
        if call in await _calls(client, task_id):
            raise
        raise _nothing_waits(thread_id) from error
    status = status_after(event["event"] for event in answer["events"] or ())
    calls = await _calls(client, task_id) if status is Status.PAUSED else ()
    return Outcome(task_id, answer["response"], status, tuple(calls))


def show_reply(outcome: Outcome, output: Output) -> None:
    """Print the task's answer; if it has paused again, its next question and how to answer that."""
    if not outcome.calls:
        output.text(outcome.response)
    for call in outcome.calls:
        for line in _lines(call, outcome.task_id):
            output.text(line)


def _lines(call: PendingCall, task_id: str) -> Iterator[str]:
    if call.asks is None or "question" not in call.arguments:
        yield f"waits       {call.name} {one_line(json.dumps(call.arguments, ensure_ascii=False))}"
        return
    thread_id = call.asks.thread_id or task_id
    yield f"thread      {thread_id}"
    yield f"question    {one_line(call.arguments['question'])}"
    yield "Answer with"
    yield f"  {shlex.join(['mail', 'thread', thread_id, '--task', task_id])} --reply TEXT"


async def _calls(client: "MAILClient", task_id: str) -> list[PendingCall]:
    return read_task(await client.get_task(task_id)).pending_tool_calls


def asks_in(call: PendingCall, thread_id: str, task_id: str) -> bool:
    """Return whether a call is a question to the task's owner, in this thread or in the task of this id."""
    return call.asks is not None and thread_id in (call.asks.thread_id, task_id)


def _nothing_waits(thread_id: str) -> MAILError:
    return MAILError(f"no task waits for your answer in thread {thread_id!r}")
