"""What travels between swarms over HTTP, in its JSON frame."""

from typing import Any, Literal

from pydantic import Field, model_validator

from mail.core.decisions.submit import Submission
from mail.core.protocol.address import parse_agent_address
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage, TaskId
from mail.http.schemas import Answered, Given


class PostInterswarm(Given):
    """A message of another swarm. All ten fields have to be there."""

    message: MAILInterswarmMessage

    @model_validator(mode="after")
    def _is_whole(self) -> "PostInterswarm":
        if self.message.auth_token is None:
            raise ValueError("message.auth_token must be text; it may be empty")
        if self.message.metadata is None:
            raise ValueError("message.metadata must be an object; it may be empty")
        return self


class Delivered(Answered):
    """The message is stored, and will be worked on."""

    swarm: str
    task_id: str
    status: Literal["success"]
    local_runner: str = Field(
        description="The principal under which the caller's tasks are kept; a contributor from now on."
    )


class PostInterswarmMessage(Given):
    """A person's message to agents of other swarms."""

    user_token: str | None = Field(
        default=None,
        description="Taken for the sake of older clients, and not read: the bearer says who writes.",
    )
    body: str = Field(min_length=1, description="The text.")
    targets: list[str] = Field(
        min_length=1,
        max_length=64,
        description="Who is to answer, as `agent@swarm`; a request has one target.",
    )
    subject: str | None = Field(default=None, description="The default is `New Message`.")
    msg_type: Literal["request", "broadcast"] | None = Field(
        default=None, description="The default is `request`."
    )
    task_id: TaskId | None = Field(default=None, description="A new task's id, or the task to go on with.")
    routing_info: dict[str, Any] | None = Field(default=None, description="Goes with the message as it is.")
    stream: bool | None = Field(default=None, description="Whether to answer with a stream of events.")
    ignore_stream_pings: bool | None = Field(
        default=None, description="Whether the stream does without `ping` events."
    )

    def submission(self, swarm: str) -> Submission:
        """The message as the runtime of `swarm` takes it; what was asked of the stream goes with it, for the others.

        A single target may be an agent of this very swarm: then it is a message to that agent.
        """
        hints = {"stream": self.stream, "ignore_stream_pings": self.ignore_stream_pings}
        routing_info = {
            **(self.routing_info or {}),
            **{name: value for name, value in hints.items() if value is not None},
        }
        given = {"subject": self.subject, "msg_type": self.msg_type, "task_id": self.task_id}
        name, where = parse_agent_address(self.targets[0])
        if len(self.targets) == 1 and where in (None, swarm):
            return Submission(
                body=self.body,
                entrypoint=name,
                **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
            )
        return Submission(
            body=self.body,
            targets=tuple(self.targets),
            routing_info=routing_info or None,
            **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
        )


class InterswarmAnswer(Answered):
    """What the other swarms have answered."""

    response: MAILMessage
    events: list[dict[str, Any]] | None
