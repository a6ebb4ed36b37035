"""The memory of the commands of one run: tasks, their statuses, agents, and what the open task asks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mail.cli.views.questions import Question


@dataclass(slots=True)
class Memory:
    """The tasks and questions that commands refer to.

    Attributes:
        tasks: the ids of the tasks seen so far, the latest last.
        agents: the agents seen so far; an agent of another swarm is `agent@swarm`.
        statuses: the last known status of each task that was written to or watched.
        open_task: the task that plain text continues; None if the next text begins one.
        questions: what the open task asks.
        results: the answers to its questions that wait for those to the others, by call.
        waiting_for: the task whose answer the running command waits for.
        files: the ids and names of files that go with the next text.
        steps: what agents did for the last answer, a line per step.
        is_unfolded: whether the prompt shows them.
    """

    tasks: dict[str, None] = field(default_factory=dict)
    agents: set[str] = field(default_factory=set)
    statuses: dict[str, str] = field(default_factory=dict)
    open_task: str | None = None
    questions: tuple[Question, ...] = ()
    results: dict[str, str] = field(default_factory=dict)
    waiting_for: str | None = None
    files: dict[str, str] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    is_unfolded: bool = False

    def add_task(self, task_id: str) -> None:
        """Remember a task as the last one."""
        self.tasks.pop(task_id, None)
        self.tasks[task_id] = None

    def open(self, task_id: str | None, questions: Sequence[Question] = ()) -> None:
        """Let plain text continue this task, or answer what it asks: approvals first, as results end the wait.

        What reviewers decide is left out.
        """
        own = [question for question in questions if not question.reviewers]
        ordered = sorted(own, key=lambda question: not question.needs_approval)
        self.open_task, self.questions, self.results = task_id, tuple(ordered), {}

    def set_status(self, task_id: str | None, status: str | None) -> None:
        """Remember the status of a task that nobody waits for any more, if both are known."""
        self.waiting_for = None
        if task_id is not None and status is not None:
            self.statuses[task_id] = status

    def learn(self, data: Mapping[str, Any]) -> None:
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
