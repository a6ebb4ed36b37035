"""What the commands of one run share."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from mail.cli.output import Output
from mail.cli.repl.arguments import Namespace, UsageError
from mail.cli.status import Status

if TYPE_CHECKING:
    from mail.cli.connecting import CommandClient

VARIABLE = re.compile(r"\$(\w+|\{\w+\})")
"""A secret that is named, as a shell names it."""


class Session:
    """The server, who one is to it, and what was seen of it.

    Attributes:
        tasks: the ids of tasks that were seen, the last one last.
        agents: those that were seen; one of another swarm is `agent@swarm`.
        statuses: how the last answers have left the tasks that were written to or watched.
        is_over: whether somebody has said so.
    """

    def __init__(self, client: "CommandClient", output: Output) -> None:
        self.client = client
        self.output = output
        self.tasks: dict[str, None] = {}
        self.agents: set[str] = set()
        self.statuses: dict[str, Status] = {}
        self.is_over = False

    @property
    def last_task(self) -> str | None:
        """The task that was seen last."""
        return next(reversed(self.tasks), None)

    def meet_task(self, task_id: str) -> None:
        """Remember a task as the last one."""
        self.tasks.pop(task_id, None)
        self.tasks[task_id] = None

    @contextmanager
    def writing(self, given: Namespace) -> Iterator[str | None]:
        """The task of a message that is sent meanwhile; a new one gets its id here.

        It is the last one before there is an answer, as it goes on when nobody waits for that. One whose message was
        refused, or not sent, is not remembered. Under an idempotency key the server gives the id: the same each time.
        """
        from mail.client.errors import BadAnswer, InvalidRequest, ServerUnreachable

        is_known = getattr(given, "resume_from", None) is not None or given.idempotency_key is not None
        task_id: str | None = given.task_id or (None if is_known else str(uuid4()))
        before = dict(self.tasks)
        if task_id is not None:
            self.meet_task(task_id)
        try:
            yield task_id
        except (BadAnswer, InvalidRequest, ServerUnreachable):
            self.tasks = before
            raise

    def note(self, task_id: str | None, status: Status | None) -> None:
        """Remember how an answer has left a task."""
        if task_id is not None and status is not None:
            self.statuses[task_id] = status

    def learn(self, kind: str, data: Mapping[str, Any]) -> None:
        """Remember whom and what an event is about."""
        if task_id := data.get("task_id"):
            self.meet_task(task_id)
        message = (data.get("extra_data") or {}).get("full_message")
        if message is None:
            return
        payload = message["message"]
        recipients = payload.get("recipients") or [payload["recipient"]]
        self._meet_agents([payload["sender"], *recipients])

    def _meet_agents(self, addresses: Iterable[Mapping[str, Any]]) -> None:
        self.agents |= {each["address"] for each in addresses if each["address_type"] == "agent"}


def reveal(secret: str | None) -> str | None:
    """The secret itself, where `$NAME` names the environment variable that holds it. Raises UsageError."""
    if secret is None or VARIABLE.fullmatch(secret) is None:
        return secret
    name = secret.strip("${}")
    value = os.environ.get(name)
    if not value:
        raise UsageError(f"the environment variable {name} is not set")
    return value
