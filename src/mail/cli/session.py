"""The state that the commands of one run share: the client, the output, the tasks seen so far, and their statuses."""

import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mail.cli.output import Output, one_line
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.cli.connection import CommandClient
    from mail.client.messaging import MessageOptions

VARIABLE = re.compile(r"\$(\w+|\{\w+\})")
"""A secret given by the name of an environment variable, in a shell's notation."""

TOOL_RESULT = '{"breakpoint_tool_call_result": "your answer"}'


class UsageError(MAILError):
    """The command line is not valid."""


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


def status_after(kinds: Iterable[str]) -> Status | None:
    """Return a task's status after the last answer among events of these kinds; None without an answer.

    A pause is an answer after calls of breakpoint tools (SPEC, section 5).
    """
    status, calls = None, False
    for kind in kinds:
        match kind:
            case "breakpoint_tool_call":
                calls = True
            case "task_error":
                status, calls = Status.FAILED, False
            case "task_complete":
                status, calls = Status.PAUSED if calls else Status.COMPLETED, False
    return status


def waits_for_approval(answer: str | None) -> bool:
    """Return whether the answer of a paused task lists a call that waits for approval."""
    try:
        calls = json.loads(answer or "")
    except ValueError:
        return False
    return isinstance(calls, list) and any(
        isinstance(call, dict) and call.get("needs_approval") is True for call in calls
    )


class Session:
    """One run of `mail`: a single command, or the commands of `mail client`.

    Attributes:
        is_prompt: whether the commands are those of `mail client`, not one of `mail …`.
        tasks: the ids of the tasks seen so far, the latest last.
        agents: the agents seen so far; an agent of another swarm is `agent@swarm`.
        statuses: the last known status of each task that was written to or watched.
        is_over: whether the user wants to leave.
    """

    def __init__(self, client: "CommandClient", output: Output, *, is_prompt: bool = True) -> None:
        self.client = client
        self.output = output
        self.is_prompt = is_prompt
        self.tasks: dict[str, None] = {}
        self.agents: set[str] = set()
        self.statuses: dict[str, str] = {}
        self.is_over = False

    def require_task(self) -> str:
        """Return the last task. Raises UsageError if there is none."""
        if not self.tasks:
            raise UsageError("name a task; tasks lists them")
        return next(reversed(self.tasks))

    def add_task(self, task_id: str) -> None:
        """Remember a task as the last one."""
        self.tasks.pop(task_id, None)
        self.tasks[task_id] = None

    @contextmanager
    def sending(self, options: "MessageOptions") -> Iterator["MessageOptions"]:
        """Choose the id of a new task, and remember the task of the message that the block sends.

        It is remembered even without an answer, because the task keeps running, unless the message was refused or not
        sent. With an idempotency key the server chooses the id: the same one each time.
        """
        from mail.client.errors import BadAnswer, InvalidRequest, QuestionOpen, ServerUnreachable

        if options.task_id is None and options.resume_from is None and options.idempotency_key is None:
            options = replace(options, task_id=str(uuid4()))
        elif options.task_id is None and options.idempotency_key is None and self.is_prompt and self.tasks:
            options = replace(options, task_id=self.require_task())
        before = dict(self.tasks)
        if options.task_id is not None:
            self.add_task(options.task_id)
        try:
            yield options
        except QuestionOpen as error:
            raise UsageError(_how_to_answer(options.task_id or "", error.pending_tool_calls)) from error
        except (BadAnswer, InvalidRequest, ServerUnreachable):
            self.tasks = before
            raise

    def set_status(self, task_id: str | None, status: str | None) -> None:
        """Remember the status of a task, if both are known."""
        if task_id is not None and status is not None:
            self.statuses[task_id] = status

    def learn(self, kind: str, data: Mapping[str, Any]) -> None:
        """Remember the task and the agents of an event."""
        if task_id := data.get("task_id"):
            self.add_task(task_id)
        message = (data.get("extra_data") or {}).get("full_message")
        if message is None:
            return
        payload = message["message"]
        recipients = payload.get("recipients") or [payload["recipient"]]
        addresses = [payload["sender"], *recipients]
        self.agents |= {each["address"] for each in addresses if each["address_type"] == "agent"}

    def show_warnings(self, warnings: str) -> None:
        """Print what the server has ignored of a message."""
        if warnings and not self.output.as_json:
            self.output.text(f"warning: {warnings}")

    def show_status(
        self, task_id: str | None, status: str | None, *, waits_for_approval: bool = False
    ) -> None:
        """Print which task an answer belongs to, and what to do if it is paused at calls."""
        if task_id is None or self.output.as_json:
            return
        if self.is_prompt:
            failed = " has failed" if status == Status.FAILED else ""
            self.output.text(f"task {task_id}{failed}", style="dim")
        if status == Status.PAUSED and waits_for_approval:
            words = "task-approve" if self.is_prompt else "mail task approve"
            self.output.text(
                f"The task waits for approval. Decide with\n  {words} {shlex.quote(task_id)}\n"
                f"  {words.replace('approve', 'reject')} {shlex.quote(task_id)} --reason 'why not'"
            )
        elif status == Status.PAUSED:
            line = answer_line(task_id)
            command = line if self.is_prompt else client_command(self.client.base_url, line)
            self.output.text(f"The task waits for the results of these calls. Answer with\n  {command}")


def _how_to_answer(task_id: str, calls: Sequence[Mapping[str, Any]]) -> str:
    """Return what a paused task asks, and the two commands that continue it."""
    asked = "; ".join(
        f"{call['name']} {one_line(json.dumps(call['arguments'], ensure_ascii=False))}" for call in calls
    )
    return (
        f"task {task_id} waits for an answer to: {asked}\nAnswer with\n  {answer_line(task_id)}\n"
        "or add --drop-question to send this message and drop the question"
    )


def answer_line(task_id: str) -> str:
    """Return the command of the prompt that sends a paused task the result of its call."""
    resume = ("--resume-from", "breakpoint_tool_call", "--kwargs", TOOL_RESULT)
    return shlex.join(["message-stream", "", "--task-id", task_id, *resume])


def client_command(url: str, *lines: str) -> str:
    """Return a `mail client` command line that runs commands of the prompt."""
    return shlex.join([program(), "client", url, *(word for line in lines for word in ("-c", line))])


def program() -> str:
    """Return how the user can call `mail`: by its name if it is on PATH, else by the path that started this process."""
    called, found = Path(sys.argv[0]), shutil.which("mail")
    if called.stem != "mail" or (found and Path(found).absolute() == called.absolute()):
        return "mail"
    start = Path(os.environ.get("PWD") or Path.cwd())  # scripts/dev.py changes the current folder
    return str(called.relative_to(start) if called.is_relative_to(start) else called)


def reveal(secret: str | None) -> str | None:
    """Return a secret; `$NAME` stands for an environment variable. Raises UsageError if that is not set."""
    if secret is None or VARIABLE.fullmatch(secret) is None:
        return secret
    name = secret.strip("${}")
    value = os.environ.get(name)
    if not value:
        raise UsageError(f"the environment variable {name} is not set")
    return value
