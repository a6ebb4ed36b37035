"""Views of tasks."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from mail.cli.output import Output, counted, one_line, price
from mail.cli.views.events import (
    LineReader,
    Stopwatch,
    printer,
    read_data,
    read_event_line,
    read_tree,
    show_tree,
)
from mail.cli.views.live import SHORT, Durations, duration, time_of_day
from mail.cli.views.questions import Question
from mail.errors import MAILError


class RecordedEvent(BaseModel):
    """An event; `data` is a JSON object as text."""

    event: str
    data: str
    id: str | None = None


class TaskView(BaseModel):
    """The fields of a task that are shown. Lists, and servers of other makes, may leave out those with a default."""

    task_id: str
    start_time: str
    is_running: bool
    completed: bool = False
    events: list[RecordedEvent] = []
    items: list[dict[str, Any]] = []
    task_message_queue: list[Any] = []
    status: str | None = None
    title: str | None = None
    entrypoint: str | None = None
    generation: int | None = None
    steps: int | None = None
    max_steps: int | None = None
    pending_tool_calls: list[Question] = []
    waiting_for: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] | None = None
    timers: list[dict[str, Any]] | None = None
    working: list[dict[str, Any]] | None = None
    dead_letters: list[int] = []
    usage: dict[str, Any] = {}
    excerpt: list[str] = []

    @property
    def state(self) -> str:
        """The status; without one, running or completed."""
        return self.status or ("running" if self.is_running else "completed")

    def questions(self) -> tuple[Question, ...]:
        """Return the task's undecided questions."""
        return tuple(call for call in self.pending_tool_calls if not call.decision)

    def timeline(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the kind and data of each event. Raises MAILError."""
        for event in self.events:
            yield event.event, read_data(event.data)


def read_task(task: Mapping[str, Any]) -> TaskView:
    """Validate a task as the server returns it. Raises MAILError if it isn't one."""
    try:
        return TaskView.model_validate(task)
    except ValidationError as error:
        raise MAILError("the server's answer is not a task") from error


def show_tasks(tasks: Iterable[Mapping[str, Any]], output: Output) -> None:
    """Print a line per task."""
    views = [*map(read_task, tasks)]
    rows = [
        (
            output.id(view.task_id),
            view.state,
            output.time(view.start_time),
            price(total) if (total := view.usage.get("total")) and total["calls"] else "",
            view.title or "",
        )
        for view in views
    ]
    excerpts = [view.excerpt for view in views]
    headings = ("task", "status", "started", "cost", "title")
    output.table(headings, rows, none="no tasks", excerpts=excerpts if any(excerpts) else ())


def show_task(view: TaskView, output: Output, *, events: bool = False) -> None:
    """Print a task's facts, and its items as a tree, or its events one by one."""
    for name, value in _facts(view, output):
        output.text(f"{name:<10}  {one_line(value)}")
    output.text("")
    if view.items and not events:
        show_tree(read_tree(view.items), output)
    else:
        show_lines(view, output)


def show_lines(view: TaskView, output: Output, *, first: int = 1) -> None:
    """Print a line for each item of a task from an event on, or for each event if the server has no items."""
    reader, show = LineReader(view.start_time), printer(output)
    lines = [line for item in view.items if item["seq"] >= first for line in reader.read(item)]
    for line in lines or [read_event_line(*event) for event in view.timeline()]:
        show(line)


def _facts(view: TaskView, output: Output) -> Iterator[tuple[str, str]]:
    yield "task", view.task_id
    yield "status", view.state
    yield "started", output.time(view.start_time)
    if view.entrypoint is not None:
        yield "entrypoint", view.entrypoint
    if view.steps is not None:
        yield "steps", f"{view.steps} of {view.max_steps}, in generation {view.generation}"
    if view.events and view.events[0].id not in (None, "1"):
        yield "events", f"from {view.events[0].id} on; what was before has been deleted, as it was old"
    if view.task_message_queue:
        yield "mail", counted(len(view.task_message_queue), "waiting message")
    if view.dead_letters:
        them = "it" if len(view.dead_letters) == 1 else "them"
        number = counted(len(view.dead_letters), "message")
        yield "dead", f"{number} could not be processed; mail dead-letter list shows {them}"
    total = view.usage.get("total", {})
    if total.get("calls"):
        tokens = f"{total['input_tokens']} tokens in, {total['output_tokens']} out"
        yield "usage", f"{counted(total['calls'], 'model call')}, {tokens}, {price(total)}"
    for awaited in view.waiting_for:
        yield "waits for", _awaited(awaited, output)
    for later in view.calls or ():
        heard = output.time(later.get("heard") or "")
        progress = f": {one_line(later['progress'])}, at {heard}" if later.get("progress") else ""
        times = f"since {output.time(later['since'])}, due by {output.time(later['due'])}"
        yield "waits for", f"{later['name']} of {later['agent']} {times}{progress} (call {later['id']})"
    for timer in view.timers or ():
        what = f"a reminder of {timer['agent']}" if timer.get("agent") else "a message"
        yield (
            "waits for",
            f"{what}, at {output.time(timer['due'])}: {one_line(timer['text'])} (timer {timer['id']})",
        )
    for worker in view.working or ():
        work = ", ".join(map(_work, worker.get("on") or ()))
        since = f" since {time_of_day(worker['since'])}" if worker["since"] else ""
        yield "working", f"{worker['agent']}{since}{': ' if work else ''}{work}"
    for question in () if view.state == "cancelled" else view.questions():
        yield "approval" if question.needs_approval else "question", f"{question} (call {question.call_id})"
    for call in view.pending_tool_calls:
        if call.decision:
            yield "decided", f"{call.decision} {call.name} (call {call.call_id})"
    stopwatch, durations, seconds = Stopwatch(), Durations(), 0.0
    for item in view.items:
        if item["kind"] == "note":  # such as a link to the task, which is given later
            continue
        seconds = max(seconds, stopwatch.at(item["time"]), stopwatch.at(item.get("last") or item["time"]))
        durations.read(item)
    if seconds >= SHORT and not view.is_running:
        yield "lasted", " · ".join(filter(None, (duration(seconds), durations.line())))


def _awaited(given: Mapping[str, Any], output: Output) -> str:
    """Return in words what a task waits for from another swarm: an answer, or a delivery."""
    until = f", until {output.time(given['until'])}" if given.get("until") else ""
    problem = f"; the last attempt failed: {given['problem']}" if given.get("problem") else ""
    return f"{given.get('agent') or f'swarm {given["swarm"]}'}{until}{problem}"


def _work(given: Mapping[str, Any]) -> str:
    """Return in words a model or an action that an agent waits for; with `until`, what its parked turn waits for."""
    if given.get("until"):
        return f"waits for {given['name']} until {time_of_day(given['until'])}"
    return f"{given['name']} since {time_of_day(given['since'])}"
