"""Manual mode: somebody outside decides which agent takes a turn, and who hears what it says. Pure functions.

- Mail of a manual task waits in the mailboxes; none of it wakes an agent.
- A step tells an agent to say something (`begin_step`). It reads all mail of its mailbox first: in the very turn
  or, where that is too much for one commit, in readings before it (`read_ahead`), in which it isn't called.
- What the agent says, as text or by any tool that writes, goes where the step says and nowhere else.
- An agent that calls its actions first, or makes a mistake, gets another turn in the same step.
- Nothing counts against the step limit, and nobody is nudged: the game is the caller's.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Any, Literal

from mail.core.decisions.submit import resume
from mail.core.decisions.turn import Settlement
from mail.core.protocol.address import EVERYONE, create_agent_address
from mail.core.protocol.calls import TEXT_OUTPUT, AgentToolCall
from mail.core.protocol.clock import Clock
from mail.core.protocol.compose import compose_message
from mail.core.protocol.mail_tools import (
    MAIL_TOOLS,
    AcknowledgeBroadcast,
    AwaitMessage,
    IgnoreBroadcast,
    Letter,
    SendBroadcast,
    SendInterswarmBroadcast,
    TaskComplete,
)
from mail.core.protocol.message import MAILMessage, MAILRequest
from mail.core.protocol.suggest import did_you_mean
from mail.core.protocol.xml import build_body_xml, render_message
from mail.core.task.change import InboxEntry, TaskChange, Turn
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.limits import FAULTS_IN_A_ROW, MAIL_PER_READING, READING_BYTES
from mail.core.task.swarm import History, SwarmCore
from mail.core.task.task import Task, TaskStatus
from mail.core.task.turn_state import Checkpoint, Receipt
from mail.errors import AgentFault, BadRequest, Subject

ResponseType = Literal["broadcast", "response", "request"]

SUMMARIZES = "summarizes"
"""In a history entry: how many entries of the history it stands for. The key is for the engine, not for models."""


@dataclass(frozen=True, slots=True)
class Step:
    """What an agent is stepped for.

    Attributes:
        audience: the agents that hear the response; `all` alone for everyone.
        kind: as what they get it.
        payload: what the agent is told for this step.
    """

    target: str
    audience: tuple[str, ...] = (EVERYONE,)
    kind: ResponseType = "broadcast"
    payload: str = ""

    def check(self, swarm: SwarmCore) -> None:
        """Raise BadRequest for names that are no agents of the swarm."""
        for name in (self.target, *self.audience):
            if name not in swarm.agents and not (name == EVERYONE and name in self.audience):
                raise BadRequest(
                    f"{name!r} is no agent of swarm {swarm.name!r}{did_you_mean(name, swarm.agents)}"
                )
        if not self.audience:
            raise BadRequest("response_targets is empty: say who hears the response, ['all'] for everyone")

    def hearers(self, swarm: SwarmCore) -> list[str]:
        """The agents that get the response; whoever gives it is not among them."""
        names = list(swarm.agents) if EVERYONE in self.audience else list(dict.fromkeys(self.audience))
        return [name for name in names if name != self.target]


def begin_step(task: Task, swarm: SwarmCore, step: Step, clock: Clock) -> TaskChange:
    """Put the step's instructions into its agent's mailbox. A task that has stopped goes on."""
    draft = Draft(task, swarm, clock)
    draft.manual = True
    if not task.is_running:
        resume(draft)
    draft.tell(step.target, Subject.MANUAL_STEP, step.payload)
    return draft.seal()


def portion(mail: Sequence[InboxEntry]) -> tuple[InboxEntry, ...]:
    """As much of the mail as can be read at once, the oldest first, and one message at least."""
    oldest = sorted(mail, key=lambda entry: entry.seq)[:MAIL_PER_READING]
    sizes = accumulate(len(entry.message.message.body.encode()) for entry in oldest)
    fitting = sum(size <= READING_BYTES for size in sizes)
    return tuple(oldest[: max(1, fitting)])


def read_ahead(task: Task, swarm: SwarmCore, turn: "StepTurn", clock: Clock) -> TaskChange:
    """Let an agent read without being called: mail goes from its mailbox into its history."""
    draft = Draft(task, swarm, clock)
    draft.end_turn(turn, consume=True)
    draft.remember(turn.mailbox, turn.heard)
    count = 1 + len(turn.also_read)
    draft.emit(
        EventKind.AWAIT_MESSAGE,
        f"agent {turn.mailbox} has read {count} messages, and goes on reading",
        agent=turn.mailbox,
    )
    return draft.seal()


@dataclass(frozen=True, slots=True)
class StepTurn(Turn):
    """A turn of a step.

    Attributes:
        step: the step.
        instructions: the seq of the message that began it.
        summary: stands for earlier history from now on, if it was too long.
    """

    step: Step = Step("")
    instructions: int = 0
    summary: dict[str, Any] | None = None

    @property
    def prompts(self) -> History:
        """All that the agent reads: its mail, said in public or in private, and what it is to do."""
        parts = [*self._heard(), build_body_xml({"manual_step": self._task()})]
        prompt = {"role": "user", "content": "\n".join(parts)}
        return [prompt] if self.summary is None else [self.summary, prompt]

    @property
    def heard(self) -> History:
        """Its mail alone, without anything to do."""
        return [{"role": "user", "content": "\n".join(self._heard())}]

    def _heard(self) -> Iterator[str]:
        mail = sorted((self.entry, *self.also_read), key=lambda entry: entry.seq)
        return _by_audience(entry for entry in mail if entry.seq != self.instructions)

    def _task(self) -> dict[str, str]:
        audience = "everyone" if EVERYONE in self.step.audience else ", ".join(self.step.audience)
        told = {"instructions": self.step.payload} if self.step.payload else {}
        return {
            **told,
            "how_to_answer": "Use your own tools first, if you need them. Then answer in plain text. "
            f"Whatever you say is heard by: {audience}.",
        }


def _by_audience(mail: Iterator[InboxEntry]) -> Iterator[str]:
    for is_public, entries in groupby(mail, key=lambda entry: _is_public(entry.message)):
        tag = "public" if is_public else "private"
        messages = "\n".join(render_message(entry.message) for entry in entries)
        yield f"<{tag}>\n{messages}\n</{tag}>"


def _is_public(message: MAILMessage) -> bool:
    return any(recipient.address == EVERYONE for recipient in message.message.recipients)


def visible(history: History) -> History:
    """A history as its agent sees it: where a summary stands for the beginning, that is left out."""
    summary, kept = _summarized(history)
    entries = [history[index] for index in kept]
    if summary is None:
        return entries
    return [{key: value for key, value in history[summary].items() if key != SUMMARIZES}, *entries]


def summarize(history: History, count: int, text: str) -> dict[str, Any]:
    """An entry for the end of a history that stands for the first `count` entries of what is visible of it."""
    summary, kept = _summarized(history)
    left = kept[count - (summary is not None) :]
    return {"role": "user", "content": text, SUMMARIZES: left[0] if left else len(history)}


def _summarized(history: History) -> tuple[int | None, list[int]]:
    """Where the newest summary is in a history, and where the entries are that it does not stand for."""
    summaries = [index for index, entry in enumerate(history) if SUMMARIZES in entry]
    begin = history[summaries[-1]][SUMMARIZES] if summaries else 0
    kept = [index for index in range(begin, len(history)) if SUMMARIZES not in history[index]]
    return (summaries[-1] if summaries else None), kept


class StepSettlement(Settlement):
    """A turn of a step being settled.

    Attributes:
        said: the response, once the agent has said something, or chosen to say nothing.
        failed: why there will be none.
    """

    def __init__(
        self, task: Task, swarm: SwarmCore, turn: StepTurn, clock: Clock, mail: Sequence[MAILMessage] = ()
    ) -> None:
        super().__init__(task, swarm, turn, clock, mail)
        self.said: MAILMessage | None = None
        self.failed: str | None = None
        self._step = turn.step
        self._subject = turn.step.kind.capitalize()
        self._words: list[str] = []
        self._text: str | None = None

    def process(self, output: Checkpoint) -> None:
        """Take what the agent has put out; the response is sent, or the agent is woken for another turn."""
        self._text = output.text
        if output.calls or not output.text:
            super().process(output)
        else:
            self._words.append(output.text)
            said = {"role": "assistant", "content": output.text}
            self.draft.remember(self.name, [*self.turn.prompts, said])
        if self._words:
            self._respond("\n\n".join(self._words))
        elif not self.draft.wakes(self.name):
            self.said = self._message(self._step.audience[0], "", None)

    def agent_failed(self, reason: str, attempts: int) -> None:
        """The agent function itself failed; whoever takes the step is told."""
        self._emit(EventKind.AGENT_ERROR, f"agent '{self.name}' failed: {reason}")
        self._dead_letter(reason, attempts)
        self.failed = reason

    def seal(self) -> TaskChange:
        """The change, complete."""
        change = super().seal()
        if change.task.status is TaskStatus.PAUSED:
            self.said = change.response
        return change

    def _perform(self, call: AgentToolCall, receipt: Receipt | None) -> str | None:
        if receipt is None and call.tool_name == TEXT_OUTPUT:
            self._words.append(self._text or str(call.tool_args.get("content", "")))
            return None
        is_form = self.swarm.form(self.agent, call.tool_name) is not None
        if receipt is None and (is_form or call.tool_name in MAIL_TOOLS):
            try:
                return f"SUCCESS: {self._use(call)}"
            except AgentFault as fault:
                self._fault(fault)
                return f"ERROR: {fault.detail}"
        return super()._perform(call, receipt)

    def _use(self, call: AgentToolCall) -> str:
        """What a MAIL tool does in a step: those that write say something, those that wait say nothing."""
        writing = self._read(call)
        match writing.tool:
            case Letter(subject=subject, body=body) | SendBroadcast(subject=subject, body=body):
                self._subject = subject or self._subject
                self._words.append(body)
                return f"said to {', '.join(self._step.audience)}"
            case TaskComplete(finish_message=words):
                result = self.verbs.perform(writing)
                self._words.append(words)
                return result
            case AwaitMessage() | AcknowledgeBroadcast() | IgnoreBroadcast():
                return "you have said nothing"
            case SendInterswarmBroadcast() | _:
                return self.verbs.perform(writing)

    def _respond(self, words: str) -> None:
        """Send the response to those who are to hear it."""
        hearers = self._step.hearers(self.swarm)
        if self._step.kind == "broadcast":
            self.said = self._message(self._step.audience[0], words, None)
            self.draft.send(self.said, hearers)
            return
        letters = [(name, self._message(name, words, self._asked_by(name))) for name in hearers]
        self.said = letters[0][1] if letters else self._message(self._step.audience[0], words, None)
        for name, message in letters:
            self.draft.send(message, (name,))
        if not letters:
            self.draft.send(self.said, ())  # nobody hears it, but the timeline has it

    def _message(self, recipient: str, words: str, request_id: str | None) -> MAILMessage:
        recipients: Sequence[str] = [recipient]
        if self._step.kind == "broadcast":
            recipients = [EVERYONE] if EVERYONE in self._step.audience else self._step.audience
        return compose_message(
            self._step.kind,
            task_id=self.draft.task_id,
            sender=create_agent_address(self.name),
            recipients=[create_agent_address(name) for name in recipients],
            subject=self._subject,
            body=words,
            clock=self.draft.clock,
            request_id=request_id,
        )

    def _asked_by(self, name: str) -> str | None:
        """The id of the request that a response to this agent answers: the newest of those just read."""
        asked = [
            entry.message.message.request_id
            for entry in (self.turn.entry, *self.turn.also_read)
            if isinstance(entry.message.message, MAILRequest) and entry.message.sender.address == name
        ]
        return asked[-1] if asked else None

    def _keep_going(self, faults: dict[str, int]) -> None:
        if faults.get(self.name, 0) >= FAULTS_IN_A_ROW and self.said is None:
            del faults[self.name]
            self.failed = f"{FAULTS_IN_A_ROW} faulty turns in a row"

    def _wake_after_actions(self, output: Checkpoint) -> None:
        if not self._words:
            super()._wake_after_actions(output)
