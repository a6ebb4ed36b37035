"""What the commands of one run share."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mail.cli.output import Output
from mail.cli.repl.arguments import UsageError

if TYPE_CHECKING:
    from mail.cli.connecting import CommandClient

VARIABLE = re.compile(r"\$(\w+|\{\w+\})")
"""A secret that is named, as a shell names it."""


class Session:
    """The server, who one is to it, and what was seen of it.

    Attributes:
        tasks: the ids of tasks that were seen, the last one last.
        agents: those that were seen; one of another swarm is `agent@swarm`.
        is_over: whether somebody has said so.
    """

    def __init__(self, client: "CommandClient", output: Output) -> None:
        self.client = client
        self.output = output
        self.tasks: dict[str, None] = {}
        self.agents: set[str] = set()
        self.is_over = False

    @property
    def last_task(self) -> str | None:
        """The task that was seen last."""
        return next(reversed(self.tasks), None)

    def meet_task(self, task_id: str) -> None:
        """Remember a task as the last one."""
        self.tasks.pop(task_id, None)
        self.tasks[task_id] = None

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
