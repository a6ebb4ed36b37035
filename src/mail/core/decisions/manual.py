"""Manual mode: the caller decides which agent takes a turn, and who receives its response. Pure functions.

- Mail of a manual task waits in the mailboxes and wakes no agent.
- A step asks an agent for a response (`begin_step`). The agent reads all its mail first: in the same turn or, if that
  is too much for one commit, in earlier turns without a model call (`read_ahead`).
- The agent's response, as text or by any tool that sends a message, goes to the audience of the step only.
- An agent that calls actions first, or makes a mistake, gets another turn in the same step.
- Stalled tasks are not nudged: the caller is in control.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Literal

from mail.core.decisions.submit import resume
from mail.core.decisions.turn import (
    NO_BACKGROUND,
    AgentFailure,
    Background,
    Settlement,
    TurnOutput,
    text_alone,
)
from mail.core.protocol.address import EVERYONE, create_agent_address
from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.compose import compose_message
from mail.core.protocol.error_text import did_you_mean
from mail.core.protocol.mail_tools import (
    AcknowledgeBroadcast,
    AwaitMessage,
    DirectMessage,
    IgnoreBroadcast,
    SendBroadcast,
    SendInterswarmBroadcast,
    TaskComplete,
)
from mail.core.protocol.message import MAILMessage, MAILRequest
from mail.core.protocol.values import value
from mail.core.protocol.xml import STEP, Markup, render_by_audience
from mail.core.task.change import InboxEntry, TaskChange, Turn
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.extras import Extra
from mail.core.task.limits import MAIL_PER_READING, READING_BYTES
from mail.core.task.swarm import FormResult, History, SwarmCore
from mail.core.task.task import TaskStatus
from mail.core.task.turn_state import Checkpoint
from mail.errors import BadRequest, Subject

ResponseType = Literal["broadcast", "response", "request"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a manual task.

    Attributes:
        audience: the agents that receive the response; `all` for everyone.
        kind: the type of the response message.
        payload: instructions for the agent.
    """

    target: str
    audience: tuple[str, ...] = (EVERYONE,)
    kind: ResponseType = "broadcast"
    payload: str = ""

    def check(self, swarm: SwarmCore) -> None:
        """Raise BadRequest for names that are not agents of the swarm."""
        for name in (self.target, *self.audience):
            if name not in swarm.agents and not (name == EVERYONE and name in self.audience):
                raise BadRequest(
                    f"{name!r} is not an agent of swarm {swarm.name!r}{did_you_mean(name, swarm.agents)}"
                )
        if not self.audience:
            raise BadRequest(
                "response_targets is empty; name the agents that receive the response, or ['all']"
            )

    def recipients(self, swarm: SwarmCore) -> list[str]:
        """Return the agents that receive the response, without its author."""
        names = list(swarm.agents) if EVERYONE in self.audience else list(dict.fromkeys(self.audience))
        return [name for name in names if name != self.target]


def begin_step(draft: Draft, step: Step) -> TaskChange:
    """Put the step's instructions into its agent's mailbox, and resume the task if it has stopped."""
    draft.manual = True
    if not draft.is_running:
        resume(draft)
    draft.tell(step.target, Subject.MANUAL_STEP, step.payload)
    return draft.seal()


def portion(mail: Sequence[InboxEntry]) -> tuple[InboxEntry, ...]:
    """Return the mail that fits into one turn, oldest first, at least one message."""
    oldest = sorted(mail, key=lambda entry: entry.seq)[:MAIL_PER_READING]
    sizes = accumulate(len(entry.message.message.body.encode()) for entry in oldest)
    fitting = sum(size <= READING_BYTES for size in sizes)
    return tuple(oldest[: max(1, fitting)])


def read_ahead(draft: Draft, turn: "StepTurn") -> TaskChange:
    """Move mail from an agent's mailbox to its history without a model call."""
    draft.end_turn(turn, consume=True)
    draft.remember(turn.mailbox, turn.mail_prompts)
    count = 1 + len(turn.also_read)
    draft.emit(
        EventKind.AWAIT_MESSAGE,
        f"agent {turn.mailbox} has read {count} messages, and continues reading",
        Extra(agent=turn.mailbox),
    )
    return draft.seal()


@value
class StepTurn(Turn):
    """A turn of a step.

    Attributes:
        step: the step.
        instructions: the seq of the message that began it.
    """

    step: Step = Step("")
    instructions: int = 0

    @property
    def prompts(self) -> History:
        """Everything the agent reads: its public and private mail, and its instructions."""
        sections = [*self._mail_sections(), self._task()]
        return [{"role": "user", "content": "\n".join(sections)}]

    @property
    def mail_prompts(self) -> History:
        """Its mail alone, without instructions."""
        sections = list(self._mail_sections())
        return [{"role": "user", "content": "\n".join(sections)}] if sections else []

    def _mail_sections(self) -> Iterator[str]:
        mail = sorted((self.entry, *self.also_read), key=lambda entry: entry.seq)
        return render_by_audience(
            entry.message for entry in mail if entry.seq != self.instructions and not self._resumes(entry)
        )

    @property
    def markup(self) -> Markup:
        """The elements around the texts of its prompt."""
        return STEP

    def _task(self) -> str:
        audience = "everyone" if EVERYONE in self.step.audience else ", ".join(self.step.audience)
        payload = self.step.payload
        instructions = f"<instructions>{STEP.escape(payload)}</instructions>\n" if payload else ""
        return (
            f"<manual_step>\n{instructions}"
            "<how_to_answer>Use your own tools first, if you need them. Then answer in plain text. "
            f"Whatever you say is heard by: {STEP.escape(audience)}.</how_to_answer>\n</manual_step>"
        )


class StepPolicy:
    """The rules of a step's turn: what its agent says is the response, and failures are for the caller.

    Attributes:
        said: the response, or an empty one if the agent chose to say nothing; None until then.
        failed: why there will be no response.
    """

    def __init__(self, turn: StepTurn) -> None:
        self.said: MAILMessage | None = None
        self.failed: str | None = None
        self._turn = turn
        self._step = turn.step
        self._subject = turn.step.kind.capitalize()
        self._words: list[str] = []

    def text_of(self, output: Checkpoint) -> str | None:
        """Return the text as it is if there are no calls: blank text is a response, too."""
        return text_alone(output) if output.calls else output.text or None

    def take_text(self, settlement: Settlement, text: str | None, content: str) -> None:
        """Add the text to the response."""
        self._words.append(text or content)

    def perform(self, settlement: Settlement, call: AgentToolCall, result: FormResult) -> str | None:
        """Perform a MAIL tool in a step: tools that send a message add to the response, tools that wait don't."""
        match result.tool:
            case DirectMessage(subject=subject, body=body) | SendBroadcast(subject=subject, body=body):
                self._subject = subject or self._subject
                self._words.append(body)
                return f"SUCCESS: said to {', '.join(self._step.audience)}"
            case TaskComplete(finish_message=words):
                done = settlement.tools.perform(result)
                self._words.append(words)
                return f"SUCCESS: {done}"
            case AwaitMessage() | AcknowledgeBroadcast() | IgnoreBroadcast():
                return "SUCCESS: you have said nothing"
            case SendInterswarmBroadcast() | _:
                return f"SUCCESS: {settlement.tools.perform(result)}"

    def end_output(self, settlement: Settlement, output: Checkpoint) -> None:
        """Send the agent's response, or wake it for another turn."""
        if self._words:
            self._respond(settlement, "\n\n".join(self._words))
            return
        if settlement.tools.acts:
            settlement.wake_after_actions(output)
        if not settlement.draft.wakes(settlement.name):
            self.said = self._message(settlement.draft, self._step.audience[0], "", None)

    def agent_failed(self, settlement: Settlement, reason: str) -> None:
        """Keep the reason for the caller of the step."""
        self.failed = reason

    def may_give_up(self, settlement: Settlement) -> bool:
        """Return whether there is no response yet."""
        return self.said is None

    def end_turn(self, settlement: Settlement, *, gave_up: bool) -> None:
        """Keep the reason of a failure for the caller of the step, which is in control of stalled tasks."""
        if gave_up:
            self.failed = settlement.faults_in_words
        elif settlement.failed_call is not None:
            self.failed = settlement.failed_call

    def _respond(self, settlement: Settlement, words: str) -> None:
        """Send the response to its recipients."""
        draft = settlement.draft
        recipients = self._step.recipients(settlement.swarm)
        if self._step.kind == "broadcast":
            self.said = self._message(draft, self._step.audience[0], words, None)
            draft.send(self.said, recipients)
            return
        messages = [(name, self._message(draft, name, words, self._asked_by(name))) for name in recipients]
        self.said = messages[0][1] if messages else self._message(draft, self._step.audience[0], words, None)
        for name, message in messages:
            draft.send(message, (name,))
        if not messages:
            draft.send(self.said, ())  # for the timeline only

    def _message(self, draft: Draft, recipient: str, words: str, request_id: str | None) -> MAILMessage:
        recipients: Sequence[str] = [recipient]
        if self._step.kind == "broadcast":
            recipients = [EVERYONE] if EVERYONE in self._step.audience else self._step.audience
        return compose_message(
            self._step.kind,
            task_id=draft.task_id,
            sender=create_agent_address(self._turn.mailbox),
            recipients=[create_agent_address(name) for name in recipients],
            subject=self._subject,
            body=words,
            clock=draft.clock,
            request_id=request_id,
        )

    def _asked_by(self, name: str) -> str | None:
        """Return the id of the newest request from this agent among the messages just read."""
        asked = [
            entry.message.message.request_id
            for entry in (self._turn.entry, *self._turn.also_read)
            if isinstance(entry.message.message, MAILRequest) and entry.message.sender.address == name
        ]
        return asked[-1] if asked else None


def settle_step(
    draft: Draft, turn: StepTurn, output: TurnOutput, background: Background = NO_BACKGROUND
) -> tuple[TaskChange, StepPolicy]:
    """Decide the effect of a step's turn, and return with it what the step has brought.

    After a failure, the other mail of the turn stays unread.
    """
    if isinstance(output, AgentFailure):
        turn = replace(turn, also_read=())
    policy = StepPolicy(turn)
    change = Settlement(draft, turn, policy, background).settle(output)
    if change.task.status is TaskStatus.PAUSED:
        policy.said = change.response
    return change, policy
