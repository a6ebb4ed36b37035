"""The orchestrator: it assigns beads, answers questions, reassigns unfinished beads, and reports."""

import re
from collections.abc import Iterator

from mail.agentmail import Checkpoint, Failed, HelpRequest, HelpResponse, OfferingReady
from mail.errors import Subject
from mail.examples.crew.worker import WAIT, read
from mail.examples.rule_based.agents import RuleBasedAgent, brief, reply_subject
from mail.examples.rule_based.calls import ToolUse
from mail.examples.rule_based.reading import Call, Entry, back_to
from mail.factories.rules import ReceivedMessage

HANDBOOK = {"limit": "The shorter one."}
"""Answers that the orchestrator knows, by a word of the question."""

UNANSWERED = "Nobody has answered; decide it yourself."
"""Sent to a worker if the user's message doesn't answer its question."""

EXPLANATION = (
    "Give me one bead per line, as 'id: title', such as 'q-1: a list of prices'. Titles with limit, price, "
    "large or impossible are harder."
)

_BEAD = re.compile(r"^[ \t]*((?=[\w.-]*[\d-])[\w.-]+):[ \t]+(\S.*)$", re.MULTILINE)
"""A line that assigns a bead. Its id has a number or a hyphen, as "Status: urgent" assigns nothing."""


class Orchestrator(RuleBasedAgent):
    """An agent that assigns beads. A round starts after a completion of the task and ends when every bead has ended."""

    def decide(self, message: ReceivedMessage, earlier: Iterator[Entry]) -> list[ToolUse]:
        """React to a message; then wait for the next one, or report."""
        _, entries = back_to(earlier, lambda each: isinstance(each, Call) and each.tool == "task_complete")
        this_round = [*entries, message]
        form = read(message)
        if message.is_from_person:
            answer, beads = _answer(message, entries), _read_beads(message)
            uses = [*_pass_on(answer, entries), *self._hand_out(beads, len(_beads(entries)))]
            return [*uses, WAIT] if uses else [self._wait_or_sum_up(message, this_round)]
        match form:
            case HelpRequest():
                return _help(message.sender, form)
            case Checkpoint(bead_id=bead_id):
                successors = [worker for worker in self.comm_targets if worker != message.sender]
                title = _beads(this_round)[bead_id]
                return [_request((successors or self.comm_targets)[0], bead_id, title, resume=True), WAIT]
            case OfferingReady():
                accept = {
                    "target": message.sender,
                    "subject": reply_subject(message.subject),
                    "body": "Accepted.",
                }
                return [("send_response", accept), self._wait_or_sum_up(message, this_round)]
            case _:
                return [self._wait_or_sum_up(message, this_round)]

    def _hand_out(self, beads: dict[str, str], count: int) -> Iterator[ToolUse]:
        """Request work on each bead, from one worker after the other."""
        for number, (bead_id, title) in enumerate(beads.items(), start=count):
            yield _request(self.comm_targets[number % len(self.comm_targets)], bead_id, title)

    def _wait_or_sum_up(self, message: ReceivedMessage, this_round: list[Entry]) -> ToolUse:
        ends = _ends(this_round)
        lines = [ends[bead_id] for bead_id in _beads(this_round) if bead_id in ends]
        if message.is_from_system and message.subject != Subject.ACTION_COMPLETE:
            lines.append(f"I could not finish: {brief(message.body, 300)}")
        elif any(bead_id not in ends for bead_id in _beads(this_round)):
            return WAIT
        return "task_complete", {"finish_message": "\n".join(lines) or EXPLANATION}


def _help(worker: str, request: HelpRequest) -> list[ToolUse]:
    """Answer from the handbook if it has the answer; otherwise ask the user."""
    known = next((answer for word, answer in HANDBOOK.items() if word in request.question), None)
    if known is not None:
        return [("answer_help", {"target": worker, "bead_id": request.bead_id, "guidance": known}), WAIT]
    return [("ask_for_help", request.model_dump(mode="json", exclude={"type"}) | {"target": "user"})]


def _answer(message: ReceivedMessage, entries: list[Entry]) -> tuple[str, str] | None:
    """Return the bead of the open question to the user, and the answer in this message; None without a question.

    The answer may also be the result of a tool call, followed by a message; a message alone leaves the question open.
    """
    asked = None
    for entry in entries:
        match entry:
            case Call(tool="ask_for_help", arguments=arguments):
                asked = str(arguments["bead_id"])
            case ReceivedMessage() if entry.is_from_person:
                asked = None
            case _:
                pass
    if asked is None:
        return None
    form = read(message)
    return asked, form.guidance if isinstance(form, HelpResponse) else UNANSWERED


def _pass_on(answer: tuple[str, str] | None, entries: list[Entry]) -> Iterator[ToolUse]:
    """Send the user's answer to the worker that asked."""
    asked, guidance = answer or ("", "")
    for sender, report in reversed(list(_reports(entries))):
        if isinstance(report, HelpRequest) and report.bead_id == asked:
            yield "answer_help", {"target": sender, "bead_id": asked, "guidance": guidance}
            return


def _request(worker: str, bead_id: str, title: str, *, resume: bool = False) -> ToolUse:
    return "request_worker", {"target": worker, "bead_id": bead_id, "brief": title, "resume": resume}


def _read_beads(message: ReceivedMessage) -> dict[str, str]:
    """Return the beads of a message that assigns work; an answer never does."""
    if isinstance(read(message), HelpResponse):
        return {}
    return {bead_id: title.strip() for bead_id, title in _BEAD.findall(message.body)}


def _beads(this_round: list[Entry]) -> dict[str, str]:
    """Return the titles of the beads of this round, by their ids."""
    beads: dict[str, str] = {}
    for entry in this_round:
        if isinstance(entry, ReceivedMessage) and entry.is_from_person:
            beads |= _read_beads(entry)
    return beads


def _reports(this_round: list[Entry]) -> Iterator[tuple[str, object]]:
    """Iterate over the workers' messages, as sender and form."""
    for entry in this_round:
        if isinstance(entry, ReceivedMessage) and entry.is_from_agent:
            yield entry.sender, read(entry)


def _ends(this_round: list[Entry]) -> dict[str, str]:
    """Return a line of the report for each bead that has ended."""
    ends = {}
    for sender, report in _reports(this_round):
        match report:
            case OfferingReady(bead_id=bead_id, commit_sha=commit, summary=summary):
                ends[bead_id] = f"{bead_id}: {sender} has done it in {commit}. {summary}"
            case Failed(bead_id=bead_id, reason=reason):
                ends[bead_id] = f"{bead_id}: {sender} has failed, as {reason}."
    return ends
