"""The session that the commands of one run share: the client, the output, the names of tasks, and hints."""

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mail.cli.memory import Memory
from mail.cli.output import UUID, Output
from mail.cli.program import SERVER_VARIABLE, configured_server, program
from mail.cli.views.questions import MARK, Question, questions_of
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.cli.connection import CommandClient
    from mail.client.messaging import MessageOptions

NOT_FOUND = 404

LAST_TASK = frozenset({"last", "-"})
"""Names of the caller's last task."""

UUID_PREFIX = re.compile(r"[0-9a-f]{4,8}|[0-9a-f]{8}-[0-9a-f-]*")

RECENT = 50
"""The newest tasks of a caller: the last one is that of them which has changed last."""

SHORTEST_PREFIX = 4
"""Characters of an id that name its task; fewer are too easily a mistake."""

SHORTEST_APPROVAL = 12
"""Characters of an id that name its approval: its time to the millisecond, so that none that comes later fits."""

MANY_MATCHES = 10
"""Ids that an error lists, if several begin with the same characters."""

VARIABLE = re.compile(r"\$(\w+|\{\w+\})")
"""A secret given by the name of an environment variable, in a shell's notation."""


class UsageError(MAILError):
    """The command line is not valid."""


class TaskAsks(UsageError):
    """The task waits for an answer, which a message is not.

    Attributes:
        questions: what it asks.
    """

    def __init__(self, detail: str, questions: Sequence[Question]) -> None:
        super().__init__(detail)
        self.questions = questions


class Status(StrEnum):
    """The states of a task: `mail.core.task.task.TaskStatus`, without its imports."""

    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


EXIT_CODES = {Status.FAILED: 3, Status.CANCELLED: 3, Status.PAUSED: 4}
"""The exit codes for tasks that were not completed, the most important first."""


def exit_code(statuses: Collection[str]) -> int:
    """Return the exit code for tasks with these statuses; 0 if all of them were completed."""
    return next((code for status, code in EXIT_CODES.items() if status in statuses), 0)


class Session:
    """One run of `mail`: a single command, or the commands of `mail client`.

    Attributes:
        is_prompt: whether the commands are those of `mail client`, not one of `mail …`.
        memory: the tasks and questions of the run.
        ask_key: asks the user for a key. With it the prompt is interactive: Ctrl+C stops the running command, and
            only the next one leaves.
        is_chat: whether plain text is sent to the swarm, and the help says so.
        slash: what stands before commands in hints.
        is_over: whether the user wants to leave.
    """

    def __init__(self, client: "CommandClient", output: Output, *, is_prompt: bool = True) -> None:
        self.client = client
        self.output = output
        self.is_prompt = is_prompt
        self.memory = Memory()
        self.ask_key: Callable[[], str] | None = None
        self.is_chat = False
        self.slash = ""
        self.is_over = False

    @property
    def streamed(self) -> dict[str, Any]:
        """The options of a stream that is shown: what only a terminal shows is asked for only there."""
        return {"live": self.output.is_terminal, "deltas": self.output.is_terminal, "items": True}

    def require_task(self) -> str:
        """Return the last task. Raises UsageError if there is none."""
        if not self.memory.tasks:
            raise UsageError(f"name a task; {self.slash}tasks lists them")
        return next(reversed(self.memory.tasks))

    async def find_task(self, name: str, *, may_be_new: bool = False) -> str:
        """Return the id of the task that a name stands for: its id, the beginning of it, or `last` or `-`.

        The last task is the one that was used last at the prompt, or has changed last. A name that `may_be_new`,
        of a task that the command begins, stands for an existing one only if that has a generated id (a UUID), which
        nobody types. A name that fits no task is returned as it is. Raises UsageError if several ids begin with it.
        """
        from mail.client.errors import BadAnswer

        is_whole = name in self.memory.tasks or UUID.fullmatch(name)
        if is_whole or (may_be_new and name not in LAST_TASK and not UUID_PREFIX.fullmatch(name)):
            return name
        try:
            return str((await self.client.get_task(name, summary=True))["task_id"])
        except BadAnswer as refusal:
            if refusal.status != NOT_FOUND:
                raise
        if name in LAST_TASK:
            return self.require_task() if self.memory.tasks else await self._last_task()
        if len(name) < SHORTEST_PREFIX:
            return name
        found = [each for each in await self.client.get_tasks(summary=True) if each.startswith(name)]
        if may_be_new:
            found = [each for each in found if UUID.fullmatch(each)]
        return _only(found, name, "tasks")

    async def find_approval(self, name: str) -> str:
        """Return the id of the approval that a name stands for: its id, its short form, or a beginning with the time.

        A name that fits none is returned as it is. Raises UsageError if it fits several.
        """
        begin, mark, _ = name.partition(".")
        if len(begin) < SHORTEST_APPROVAL or (mark and len(begin) > SHORTEST_APPROVAL):
            return name
        waiting = (str(each["id"]) for each in await self.client.get_approvals())
        found = [each for each in waiting if name == short_approval(each) or each.startswith(name)]
        return _only(found, name, "approvals")

    async def _last_task(self) -> str:
        tasks = await self.client.get_tasks(limit=RECENT, summary=True)
        if not tasks:
            raise UsageError("you have no task yet")
        return max(tasks, key=lambda task_id: str(tasks[task_id]["updated"]))

    @contextmanager
    def sending(self, options: "MessageOptions") -> Iterator["MessageOptions"]:
        """Choose the id of a new task, and remember the task of the message that the block sends.

        It is remembered even without an answer, because the task keeps running, unless the message was refused or not
        sent. With an idempotency key the server chooses the id: the same one each time.
        """
        from mail.client.errors import BadAnswer, InvalidRequest, QuestionOpen, ServerUnreachable

        if options.task_id is None and options.resume_from is None and options.idempotency_key is None:
            options = replace(options, task_id=str(uuid4()))
        elif (
            options.task_id is None
            and options.idempotency_key is None
            and self.is_prompt
            and self.memory.tasks
        ):
            options = replace(options, task_id=self.require_task())
        before = replace(self.memory, tasks=dict(self.memory.tasks), waiting_for=None)
        if options.task_id is not None:
            self.memory.add_task(options.task_id)
            self.memory.open(options.task_id)
            self.memory.waiting_for = options.task_id
        try:
            yield options
        except QuestionOpen as error:
            questions = questions_of(error.pending_tool_calls)
            raise TaskAsks(self._how_to_answer(options.task_id or "", questions), questions) from error
        except (BadAnswer, InvalidRequest, ServerUnreachable):
            self.memory = before
            raise

    def show_warnings(self, warnings: str) -> None:
        """Print what the server has ignored of a message."""
        if warnings and not self.output.as_json:
            self.output.text(f"warning: {warnings}")

    def show_status(
        self, task_id: str | None, status: str | None, *, questions: Sequence[Question] = ()
    ) -> None:
        """Print which task an answer belongs to, and, if it is paused, what it asks and how to answer."""
        if task_id is None or self.output.as_json:
            return
        if self.is_prompt:
            failed = " has failed" if status == Status.FAILED else ""
            self.output.text(f"task {self.output.id(task_id)}{failed}", style="dim")
        if status == Status.PAUSED:
            self.memory.open(task_id, questions)
            for question in questions:
                self.output.text(str(question), style="bold")
            self.output.text(self.next_step(task_id, questions))

    def next_step(self, task_id: str, questions: Sequence[Question]) -> str:
        """Return how to resume a paused task."""
        own = [question for question in questions if not question.reviewers]
        if questions and not own:
            return f"See\n  {self.shell_command('approvals list')}"
        if self.is_chat:
            return how_to_reply(own)
        name = shlex.quote(task_id)
        waiting = [question for question in own if question.needs_approval]
        if waiting:
            which = () if len(waiting) == 1 else ("--call", shlex.quote(waiting[0].call_id))
            if waiting[0].digest is not None:
                which = (*which, "--shown", waiting[0].digest[:MARK])
            approve, reject = (self._command(f"task-{do}", name, *which) for do in ("approve", "reject"))
            return f"Decide with\n  {approve}\n  {reject} --reason 'why not'"
        answer = self._command("reply", name, *['"your answer"'] * max(1, len(own)))
        return f"Answer with\n  {answer}"

    def task_command(self, task_id: str) -> str:
        """Return the command that shows a task, which is the last one at the prompt."""
        return (
            f"{self.slash}task" if self.is_prompt else self.shell_command("task show", shlex.quote(task_id))
        )

    def watch_command(self, task_id: str) -> str:
        """Return the command that watches a task."""
        return self._command("task-watch", shlex.quote(task_id))

    def stopped(self) -> str:
        """Return what to say after Ctrl+C: the task keeps running, and how to come back to it."""
        if self.memory.waiting_for is None:
            return "stopped"
        task_id = self.output.id(self.memory.waiting_for)
        here = f"{self.watch_command(task_id)}, or in a shell: " if self.is_prompt else ""
        watch = self.shell_command("task watch", shlex.quote(task_id))
        return f"stopped; task {task_id} keeps running. Come back with {here}{watch}"

    def _how_to_answer(self, task_id: str, questions: Sequence[Question]) -> str:
        """Return what a paused task asks, and the two commands that resume it."""
        asked = "; ".join(map(str, questions))
        return (
            f"task {task_id} waits for an answer: {asked}\n{self.next_step(task_id, questions)}\n"
            "or add --drop-question to send this message and drop the question"
        )

    def _command(self, name: str, *words: str) -> str:
        """Return a command line: of the prompt, or of a shell."""
        if self.is_prompt:
            slash = "/" if name == "reply" else self.slash
            return " ".join((f"{slash}{name}", *words))
        return self.shell_command(name.replace("task-", "task "), *words)

    def shell_command(self, name: str, *words: str) -> str:
        """Return a command line of a shell that reaches this session's server; quote the words."""
        url = self.client.base_url.rstrip("/")
        is_found = url == (os.environ.get(SERVER_VARIABLE) or configured_server()).rstrip("/")
        server = () if is_found else ("--server", shlex.quote(url))
        return " ".join((program(), name, *words, *server))


def _only(found: Sequence[str], name: str, what: str) -> str:
    """Return the only id that a name stands for, or the name if there is none. Raises UsageError for several."""
    if len(found) > 1:
        shown = "".join(f"\n  {each}" for each in found[:MANY_MATCHES])
        more = f"\n  and {len(found) - MANY_MATCHES} more" if len(found) > MANY_MATCHES else ""
        raise UsageError(f"{len(found)} {what} begin with {name!r}; type more of the id:{shown}{more}")
    return found[0] if found else name


def short_approval(approval_id: str) -> str:
    """Return the short form of the id of an approval: when its task paused, and which of its calls it is."""
    begin, mark, number = approval_id.partition(".")
    return f"{begin[:SHORTEST_APPROVAL]}{mark}{number}"


def how_to_reply(questions: Sequence[Question]) -> str:
    """Return what to type at the prompt of a chat to answer the first of these questions: approvals come first."""
    if any(question.needs_approval for question in questions):
        return "Type approve, reject REASON, or edit NAME=VALUE … to run it with other arguments."
    return "Type your answer."


def reveal(secret: str | None) -> str | None:
    """Return a secret; `$NAME` stands for an environment variable. Raises UsageError if that is not set."""
    if secret is None or VARIABLE.fullmatch(secret) is None:
        return secret
    name = secret.strip("${}")
    value = os.environ.get(name)
    if not value:
        raise UsageError(f"the environment variable {name} is not set")
    return value
