"""Answering the agent that waits for the owner of its task in a thread."""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from mail.cli.output import Output, one_line
from mail.cli.status import Status, status_after
from mail.cli.views.threads import ThreadView, read_view
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.client import MAILClient


class AppealView(BaseModel):
    """What is needed of a request to the task's owner."""

    routing_info: dict[str, Any] | None = None

    @property
    def thread_id(self) -> str:
        """The thread that it is in, if it says."""
        return str((self.routing_info or {}).get("thread_id", ""))


class CallView(BaseModel):
    """What is needed of a call that waits for its result."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    asks: AppealView | None = None


class WaitingView(BaseModel):
    """What is needed of a task."""

    pending_tool_calls: list[CallView] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Reply:
    """What has come of an answer: the task's next one, and how that has left it; `asked` is what it waits for now."""

    task_id: str
    response: str
    status: Status | None
    asked: tuple[CallView, ...]

    @property
    def record(self) -> dict[str, Any]:
        """As JSON."""
        return {"task_id": self.task_id, "response": self.response, "status": self.status}


async def answer_appeal(
    client: "MAILClient", thread_id: str, text: str, *, task_id: str | None = None
) -> Reply:
    """Answer the agent that waits for the owner in a thread, or in a task with that id, and wait for what comes of it.

    Raises MAILError where no task of the thread waits for its owner, or several do.
    """
    view = read_view(ThreadView, await client.get_thread(thread_id, task_id=task_id))
    waiting = {
        each: calls
        for each in view.summary.task_ids
        if (calls := [call for call in await _calls(client, each) if _is_in(call, thread_id, each)])
    }
    if not waiting:
        raise _nobody_waits(thread_id)
    if len(waiting) > 1:
        raise MAILError(
            f"several tasks wait for an answer in thread {thread_id!r}: {', '.join(waiting)}; choose with --task"
        )
    [(chosen, calls)] = waiting.items()
    return await _answer(client, thread_id, chosen, calls, text)


async def _answer(
    client: "MAILClient", thread_id: str, task_id: str, calls: list[CallView], text: str
) -> Reply:
    """Give the text as the result of the calls: unlike a message, it changes nothing once nobody waits for it."""
    from mail.client.errors import BadAnswer

    results = [{"call_id": call.call_id, "content": text} for call in calls[:1]]
    try:
        answer = await client.post_message(
            "",
            show_events=True,
            task_id=task_id,
            resume_from="breakpoint_tool_call",
            breakpoint_tool_call_result=results,
        )
    except BadAnswer as error:
        if calls[0] in await _calls(client, task_id):
            raise
        raise _nobody_waits(thread_id) from error
    status = status_after(event["event"] for event in answer["events"] or ())
    asked = await _calls(client, task_id) if status is Status.PAUSED else ()
    return Reply(task_id, answer["response"], status, tuple(asked))


def show_reply(reply: Reply, output: Output) -> None:
    """Print the task's answer; where it has another question, that, and how to answer."""
    if not reply.asked:
        output.text(reply.response)
    for call in reply.asked:
        for line in _lines(call, reply.task_id):
            output.text(line)


def _lines(call: CallView, task_id: str) -> Iterator[str]:
    if call.asks is None or "question" not in call.arguments:
        yield f"waits       {call.name} {one_line(json.dumps(call.arguments, ensure_ascii=False))}"
        return
    thread_id = call.asks.thread_id or task_id
    yield f"thread      {thread_id}"
    yield f"question    {one_line(call.arguments['question'])}"
    yield "Answer with"
    yield f"  {shlex.join(['mail', 'thread', thread_id, '--task', task_id])} --reply TEXT"


async def _calls(client: "MAILClient", task_id: str) -> list[CallView]:
    record: Mapping[str, Any] = await client.get_task(task_id)
    return read_view(WaitingView, record).pending_tool_calls


def _is_in(call: CallView, thread_id: str, task_id: str) -> bool:
    return call.asks is not None and thread_id in (call.asks.thread_id, task_id)


def _nobody_waits(thread_id: str) -> MAILError:
    return MAILError(f"nobody waits for an answer of yours in thread {thread_id!r}")
