"""Tasks as people read them, of what the server tells about them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from mail.cli.output import Output, one_line
from mail.cli.views.timeline import Stopwatch, printer, read_data, read_line
from mail.cli.views.tree import read_tree, show_tree
from mail.errors import MAILError


class RecordedEvent(BaseModel):
    """An event; `data` is a JSON object as text."""

    event: str
    data: str


class PendingCall(BaseModel):
    """A breakpoint tool call that waits for its result."""

    call_id: str
    name: str
    arguments: dict[str, Any] = {}


class TaskView(BaseModel):
    """What is shown of a task's record. Other servers don't tell what has a default here."""

    task_id: str
    start_time: str
    is_running: bool
    completed: bool = False
    events: list[RecordedEvent]
    task_message_queue: list[Any] = []
    status: str | None = None
    title: str | None = None
    entrypoint: str | None = None
    generation: int | None = None
    steps: int | None = None
    max_steps: int | None = None
    pending_tool_calls: list[PendingCall] = []
    dead_letters: list[int] = []
    usage: dict[str, Any] = {}

    @property
    def state(self) -> str:
        """The status, or what can be told without it."""
        return self.status or ("running" if self.is_running else "completed")

    def timeline(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The kind and data of each event. Raises MAILError."""
        for event in self.events:
            yield event.event, read_data(event.data)


def read_task(record: Mapping[str, Any]) -> TaskView:
    """Read a record. Raises MAILError for what is none."""
    try:
        return TaskView.model_validate(record)
    except ValidationError as error:
        raise MAILError("what the server answers is no record of a task") from error


def show_tasks(records: Iterable[Mapping[str, Any]], output: Output) -> None:
    """Print a line per task."""
    views = [read_task(record) for record in records]
    if not views and output.is_terminal:
        output.text("no tasks")
        return
    rows = ((view.task_id, view.state, _started(view, output), view.title or "") for view in views)
    output.table(("task", "status", "started", "title"), rows)


def _started(view: TaskView, output: Output) -> str:
    return view.start_time[5:16].replace("T", " ") if output.is_terminal else view.start_time


def show_task(view: TaskView, output: Output, *, events: bool = False) -> None:
    """Print what is known of a task, and what has happened in it: as a tree, or event by event."""
    for name, value in _facts(view):
        output.text(f"{name:<10}  {one_line(value)}")
    output.text("")
    if not events:
        show_tree(read_tree(view.timeline()), output)
        return
    stopwatch, show = Stopwatch(), printer(output.stream)
    for kind, data in view.timeline():
        show(read_line(kind, data, stopwatch.read(data)))


def _facts(view: TaskView) -> Iterator[tuple[str, str]]:
    yield "task", view.task_id
    yield "status", view.state
    yield "started", view.start_time
    if view.entrypoint is not None:
        yield "entrypoint", view.entrypoint
    if view.steps is not None:
        yield "steps", f"{view.steps} of {view.max_steps}, in generation {view.generation}"
    if view.task_message_queue:
        yield "mail", f"{len(view.task_message_queue)} messages wait"
    if view.dead_letters:
        yield "dead", f"{len(view.dead_letters)} messages could not be processed; mail dead-letter lists them"
    total = view.usage.get("total", {})
    if total.get("calls"):
        tokens = f"{total['input_tokens']} tokens in, {total['output_tokens']} out"
        yield "usage", f"{total['calls']} calls of models, {tokens}, {total['cost']:.4f} USD"
    for call in view.pending_tool_calls:
        yield "waits for", f"{call.name} {json.dumps(call.arguments, ensure_ascii=False)}: {call.call_id}"


def show_cancelled(answer: Mapping[str, Any], output: Output) -> None:
    """Say that a task is cancelled, and what of it still has to end."""
    left = [f"{agent}'s turn still runs, and will be discarded" for agent in answer["running_agents"]]
    left += [f"swarm {swarm} has not taken the word yet" for swarm in answer["waiting_swarms"]]
    output.text(one_line(f"task {answer['task_id']} is cancelled{'; ' if left else ''}{'; '.join(left)}"))


def show_webhooks(webhooks: Iterable[Mapping[str, Any]], output: Output) -> None:
    """Print a line per webhook; of a task's, how far it is."""
    rows = [(hook["id"], _progress(hook), ", ".join(hook["events"]), hook["url"]) for hook in webhooks]
    if not rows and output.is_terminal:
        output.text("no webhooks")
        return
    output.table(("id", "state", "events", "url"), rows)


def _progress(hook: Mapping[str, Any]) -> str:
    if "delivered_to" not in hook:
        return "registered"
    if hook["waits_to"] is None:
        return f"nothing waits after {hook['delivered_to']}"
    again = f", {hook['failures']} failures, next try {hook['next_try'] or 'now'}" if hook["failures"] else ""
    return f"waits to {hook['waits_to']}{again}"


def show_forked(answer: Mapping[str, Any], output: Output) -> None:
    """Say which task was made of which, and how it stands."""
    mail = f"; waiting mail: {answer['waiting']}" if answer["waiting"] else ""
    made = f"task {answer['task_id']} is a fork of {answer['forked_from']} at {answer['at']}"
    output.text(one_line(f"{made}: {answer['status']}{mail}"))
