"""What a member of the swarm answers, or writes to an agent that has written to it. Pure."""

from mail.core.decisions.receive import receive
from mail.core.protocol.address import create_agent_address
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILResponse
from mail.core.protocol.values import value
from mail.core.task.change import TaskChange
from mail.core.task.draft import Draft
from mail.core.task.members import member_address, peer_of_member
from mail.errors import Conflict, Subject


@value(kw_only=True)
class MemberMail:
    """Mail of a member.

    Attributes:
        id: a UUID; the same mail that comes twice is one message.
        agent: for whom it is.
        answers: the id of the request that it answers, if that is still open.
        sent: when it was sent, in ISO 8601.
    """

    id: str
    member: str
    agent: str
    answers: str
    subject: str
    body: str
    sent: str


def hear(draft: Draft, mail: MemberMail) -> TaskChange | None:
    """Deliver mail of a member; None if it has come before.

    It answers the request that it names. Other mail is for the agent while the task runs. Raises Conflict after that.
    """
    task, asked = draft.before, (mail.answers, member_address(mail.member))
    is_awaited = any((each.request_id, each.recipient) == asked for each in task.requests)
    message = MAILInterswarmMessage(
        message_id=mail.id,
        source_swarm=peer_of_member(mail.member),
        target_swarm=draft.swarm.name,
        timestamp=mail.sent,
        task_owner=task.owner,
        task_contributors=tuple(dict.fromkeys((task.owner, *task.contributors))),
        msg_type="response",
        payload=MAILResponse(
            task_id=task.task_id,
            request_id=mail.answers,
            sender=create_agent_address(mail.member),
            recipient=create_agent_address(mail.agent),
            subject=mail.subject.strip(":") if mail.subject in Subject else mail.subject,
            body=mail.body,
        ),
    )
    change = receive(draft, message)
    if change is not None and not (is_awaited or task.is_running):
        raise Conflict("the task in which the agent has written has ended, and waits for no answer")
    return change
