"""Text of an agent that calls no tool: whom it is for. A pure function.

| the agent has read | its text is |
| --- | --- |
| a request or an interrupt of an agent | the answer to that agent |
| a person's message | the task's answer, if it may complete the task; the answer to the person who asked it directly |
| a response, results of actions, an error | that of the last agent that waits, else the task's, if it gives that |
| a broadcast of an agent | a remark, unless nothing else would happen: then as above |

Text is a remark, too, as long as the agent waits for answers that can still come, or has other mail to read; and, if it
would be the task's answer, as long as other agents wait for answers.
"""

from mail.core.protocol.mail_tools import MAILTool, SendResponse, TaskComplete
from mail.core.protocol.message import MAILMessage
from mail.core.task.draft import Draft
from mail.core.task.interswarm import OpenRequest
from mail.core.task.mailboxes import agent_of
from mail.core.task.swarm import AgentCore
from mail.errors import ToolCallFault

TEXT_ALONE = "text alone reaches nobody; write to an agent or call task_complete"
"""The error for text if every turn must call a tool."""


def interpret(
    text: str, draft: Draft, name: str, agent: AgentCore, read: MAILMessage, *, can_wait: bool
) -> MAILTool | None:
    """Return the tool call that the text of agent `name` stands for, after it has `read` a message; None for a remark.

    `can_wait` is whether anything else will happen in the task. Raises ToolCallFault if somebody waits for an answer
    that the agent can't give.
    """
    sender, kind = read.sender, read.msg_type
    is_person = sender.is_person
    is_agent = sender.address_type == "agent"
    if is_agent and kind in ("request", "interrupt"):
        return _response(sender.address, read.message.subject, text)
    if is_agent and kind == "broadcast" and can_wait:
        return None
    if can_wait and any(request.sender == name for request in draft.requests):
        return None
    if not is_person and draft.has_mail_for(name):
        return None
    asked = _last_request(draft, name, sender.address if is_person else None)
    if asked is not None and not (is_person and agent.can_complete_tasks and asked.sender):
        return _response(agent_of(asked.sender) or "user", asked.subject, text)
    if not (is_person or name == draft.swarm.closing_agent(draft.before.entrypoint)):
        if name == draft.before.entrypoint:
            raise ToolCallFault(TEXT_ALONE)
        return None
    if not agent.can_complete_tasks or TaskComplete.tool_name in agent.exclude_tools:
        if is_person and kind == "broadcast":
            return None
        raise ToolCallFault(TEXT_ALONE)
    if can_wait and any(request.sender and request.recipient != name for request in draft.requests):
        return None
    return TaskComplete(finish_message=text)


def _last_request(draft: Draft, name: str, person: str | None) -> OpenRequest | None:
    """Return the last open request to the agent; of this person or the owner, if a `person` has just written to it."""
    mine = (request for request in reversed(draft.requests) if request.recipient == name)
    return next((each for each in mine if person is None or each.sender in ("", person)), None)


def _response(target: str, asked: str, text: str) -> SendResponse:
    """Return the answer to the request with the subject `asked`; the agent may have read other mail since."""
    return SendResponse(target=target, subject=f"Re: {asked}" if asked else "Answer", body=text)
