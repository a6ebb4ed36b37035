"""Forms: tools of a swarm with which agents write letters that a program words.

An agent fills a form in as it calls any tool; what comes of it is as if the agent had used a MAIL tool. So a form costs
no turn of its own, as an action does, and nothing happens where the turn is not committed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mail.core.protocol.mail_tools import MAILTool, SendRequest
from mail.core.protocol.message import MAILMessage


@dataclass(frozen=True, slots=True)
class FormResult:
    """A form that is filled in: what the agent does with it.

    Attributes:
        tool: the MAIL tool that the agent uses in effect.
        routing_info: goes with the message; a response answers a request that had the same, if one waits.
        settles: whether the message answers the recipient's request for good, so that it waits no longer for another
            answer; None for what is usual: responses do, requests don't.
    """

    tool: MAILTool
    routing_info: dict[str, Any] | None = None
    settles: bool | None = None


@dataclass(frozen=True, slots=True)
class UserQuestion(FormResult):
    """A letter to the task's owner, which pauses the task as a breakpoint does.

    The owner goes on with it as from any breakpoint, or by a message whose subject is one of `answer_subjects`,
    whatever the case and the white space. The answer that the agent gets has the first of them.
    """

    tool: SendRequest
    answer_subjects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FormContext:
    """Where a form is filled in.

    Attributes:
        agent: the name of the agent that does.
        timestamp: when, in ISO 8601.
        mail: what has been sent in the task so far, where the form's action `reads_mail`.
    """

    agent: str
    timestamp: str
    mail: Sequence[MAILMessage] = ()


Form = Callable[[dict[str, Any], FormContext], FormResult]
"""Takes the arguments of a call. Pure; what is wrong with the arguments it raises as ToolCallFault."""
