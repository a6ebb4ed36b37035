"""Views of threads."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from mail.cli.output import Output, one_line
from mail.cli.views.events import Line, Node, show_tree
from mail.errors import MAILError


class ProgressView(BaseModel):
    """A worker's progress."""

    step: str
    status: str


class QuestionView(BaseModel):
    """A question of a worker."""

    question: str


class ThreadTaskView(BaseModel):
    """A task with messages in a thread, and the state of the thread's bead in it."""

    task_id: str
    status: str
    state: str
    title: str | None = None


class SummaryView(BaseModel):
    """The fields of a thread's summary that are shown. Older servers send no `tasks`."""

    thread_id: str
    task_ids: list[str]
    tasks: list[ThreadTaskView] = []
    bead_id: str
    title: str
    state: str
    worker: str
    session: str
    last_progress: ProgressView | None
    context_usage: int
    help_request: QuestionView | None
    commit_sha: str
    files: list[str]
    pending: list[str]
    overdue: list[str]
    messages: int
    updated_at: str

    @property
    def status(self) -> str:
        """The state of the bead; without one, the status of the newest task."""
        if self.bead_id:
            return self.state
        return self.tasks[0].status if self.tasks else ""

    @property
    def subject(self) -> str:
        """The title of the bead; without one, that of the newest task."""
        return self.title or (self.tasks[0].title or "" if self.tasks else "")

    @property
    def waits(self) -> str:
        """The numbers of messages that wait to be acknowledged, in words."""
        late = f", {len(self.overdue)} overdue" if self.overdue else ""
        return f"{len(self.pending)} pending{late}" if self.pending else ""


class MessageView(BaseModel):
    """The fields of a message that are shown."""

    id: str
    sender: str
    recipient: str
    subject: str
    body: str
    ack_required: bool = False
    acknowledged: bool = False
    closed: bool = False

    @property
    def was_dropped(self) -> bool:
        """Whether it was closed without the answer that it required."""
        return self.closed and self.ack_required and not self.acknowledged


class TurnView(BaseModel):
    """A message in a conversation."""

    message: MessageView
    level: int
    task_id: str


class ThreadView(BaseModel):
    """The fields of a thread that are shown."""

    summary: SummaryView
    conversation: list[TurnView]


class ThreadsView(BaseModel):
    """The fields of a page of threads that are shown."""

    threads: list[SummaryView]
    next_cursor: str | None


def show_threads(answer: Mapping[str, Any], output: Output) -> None:
    """Print a line per thread. Raises MAILError."""
    view = read_view(ThreadsView, answer)
    if not view.threads and output.is_terminal:
        output.text("no threads")
    else:
        rows = (_row(each, output) for each in view.threads)
        output.table(("thread", "state", "worker", "waits", "updated", "task", "title"), rows)
    if view.next_cursor and output.is_terminal:
        output.text(f"There are more threads: --cursor {view.next_cursor}", style="dim")


def show_thread(answer: Mapping[str, Any], output: Output, *, in_full: bool = False) -> None:
    """Print a thread's facts, and its conversation: as a tree with a line per message, or in full. Raises MAILError."""
    view = read_view(ThreadView, answer)
    for name, value in _facts(view.summary):
        output.text(f"{name:<10}  {one_line(value)}")
    output.text("")
    if not in_full:
        show_tree(_tree(view), output)
        return
    for turn in view.conversation:
        message, indent = turn.message, "  " * turn.level
        heading = one_line(
            f"{message.sender} → {message.recipient} {_marked(view, message)}{message.subject}"
        )
        output.text(f"{indent}{heading}", style="bold")
        for line in message.body.splitlines():
            output.text(f"{indent}  {line}".rstrip())
        output.text("")


def read_view[View: BaseModel](view: type[View], answer: Mapping[str, Any]) -> View:
    """Validate an answer about threads. Raises MAILError."""
    try:
        return view.model_validate(answer)
    except ValidationError as error:
        raise MAILError("the server's answer is not a thread") from error


def _row(view: SummaryView, output: Output) -> tuple[str, ...]:
    return (
        view.thread_id,
        view.status,
        view.worker,
        view.waits,
        output.time(view.updated_at),
        "" if view.task_ids[0] == view.thread_id else view.task_ids[0],
        view.subject,
    )


def _facts(view: SummaryView) -> Iterator[tuple[str, str]]:
    yield "thread", view.thread_id
    yield "tasks", ", ".join(view.task_ids)
    if view.bead_id:
        yield "bead", f"{view.bead_id} {view.title}"
        yield "state", view.state
        if len(view.tasks) > 1:
            yield "by task", ", ".join(f"{task.task_id} {task.state}" for task in view.tasks)
    if view.worker:
        yield "worker", f"{view.worker} ({view.session})" if view.session else view.worker
    if view.last_progress is not None:
        yield "progress", f"{view.last_progress.step}: {view.last_progress.status}"
    if view.context_usage:
        yield "context", f"{view.context_usage}%"
    if view.commit_sha:
        yield "commit", view.commit_sha
    if view.files:
        yield "files", ", ".join(view.files)
    if view.help_request is not None:
        yield "question", view.help_request.question
    if view.waits:
        yield "waits", view.waits


def _tree(view: ThreadView) -> list[Node]:
    """Build the tree of the conversation; messages that wait, or were closed, are marked."""
    roots: list[Node] = []
    above: list[Node] = []
    for turn in view.conversation:
        message = turn.message
        words = f"{_marked(view, message)}{message.subject} | {one_line(message.body)}"
        line = Line(0, "", one_line(message.sender), one_line(message.recipient), one_line(words))
        del above[turn.level :]
        parent = above[-1] if above else None
        node = Node(line, parent, depth=len(above))
        (roots if parent is None else parent.children).append(node)
        above.append(node)
    return roots


def _marked(view: ThreadView, message: MessageView) -> str:
    """Return the mark of a message that waits or was closed, with a blank."""
    if message.id in view.summary.pending:
        return "(overdue) " if message.id in view.summary.overdue else "(pending) "
    return "(closed) " if message.was_dropped else ""
