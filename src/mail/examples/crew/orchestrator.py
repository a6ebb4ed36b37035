"""The orchestrator: it hands out beads, helps, finds successors, and sums up."""

import re
from collections.abc import Iterator

from mail.agentmail import Checkpoint, Failed, HelpRequest, HelpResponse, OfferingReady
from mail.errors import Subject
from mail.examples.crew.worker import WAIT, read
from mail.examples.rule_based.agent import RuleBasedAgent, reply_subject
from mail.examples.rule_based.calls import ToolUse
from mail.examples.rule_based.phrases import brief
from mail.examples.rule_based.reading import Call, Entry, Letter, back_to

HANDBOOK = {"limit": "The shorter one."}
"""What the orchestrator knows by itself: a word of the question, and the answer."""

UNANSWERED = "Nobody has answered; decide it yourself."
"""What a worker is told where the user has written something else."""

EXPLANATION = (
    "Give me one bead per line, as 'id: title'. Titles with limit, price, large or impossible are harder."
)

_BEAD = re.compile(r"^[ \t]*([\w.-]+):[ \t]+(\S.*)$", re.MULTILINE)


class Orchestrator(RuleBasedAgent):
    """Everything since it last completed the task is one round; a round ends once every bead has."""

    def decide(self, letter: Letter, earlier: Iterator[Entry]) -> list[ToolUse]:
        """React to a letter; then wait for more, or sum up."""
        _, entries = back_to(earlier, _is_completion)
        this_round = [*entries, letter]
        message = read(letter)
        if letter.is_from_person:
            answer, beads = _answer(letter, entries), _read_beads(letter)
            uses = [*_pass_on(answer, entries), *self._hand_out(beads, len(_beads(entries)))]
            return [*uses, WAIT] if uses else [self._wait_or_sum_up(letter, this_round)]
        match message:
            case HelpRequest():
                return _help(letter.sender, message)
            case Checkpoint(bead_id=bead_id):
                others = [worker for worker in self.comm_targets if worker != letter.sender]
                title = _beads(this_round)[bead_id]
                return [_request((others or self.comm_targets)[0], bead_id, title, resume=True), WAIT]
            case OfferingReady():
                accept = {
                    "target": letter.sender,
                    "subject": reply_subject(letter.subject),
                    "body": "Accepted.",
                }
                return [("send_response", accept), self._wait_or_sum_up(letter, this_round)]
            case _:
                return [self._wait_or_sum_up(letter, this_round)]

    def _hand_out(self, beads: dict[str, str], count: int) -> Iterator[ToolUse]:
        """The workers take turns."""
        for number, (bead_id, title) in enumerate(beads.items(), start=count):
            yield _request(self.comm_targets[number % len(self.comm_targets)], bead_id, title)

    def _wait_or_sum_up(self, letter: Letter, this_round: list[Entry]) -> ToolUse:
        ends = _ends(this_round)
        lines = [ends[bead_id] for bead_id in _beads(this_round) if bead_id in ends]
        if letter.is_from_system and letter.subject != Subject.ACTION_COMPLETE:
            lines.append(f"I could not finish: {brief(letter.body, 300)}")
        elif any(bead_id not in ends for bead_id in _beads(this_round)):
            return WAIT
        return "task_complete", {"finish_message": "\n".join(lines) or EXPLANATION}


def _help(worker: str, message: HelpRequest) -> list[ToolUse]:
    """Answer what the handbook knows; let the user answer the rest."""
    known = next((answer for word, answer in HANDBOOK.items() if word in message.question), None)
    if known is not None:
        return [("answer_help", {"target": worker, "bead_id": message.bead_id, "guidance": known}), WAIT]
    return [("ask_for_help", message.model_dump(mode="json", exclude={"type"}) | {"target": "user"})]


def _answer(letter: Letter, entries: list[Entry]) -> tuple[str, str] | None:
    """The bead that the user was asked about, and what they answer by this letter; None where they were not asked.

    A call's result may bring the answer too, and words that go with it; words alone leave the question open.
    """
    asked = None
    for entry in entries:
        match entry:
            case Call(tool="ask_for_help", arguments=arguments):
                asked = str(arguments["bead_id"])
            case Letter() if entry.is_from_person:
                asked = None
            case _:
                pass
    if asked is None:
        return None
    message = read(letter)
    return asked, message.guidance if isinstance(message, HelpResponse) else UNANSWERED


def _pass_on(answer: tuple[str, str] | None, entries: list[Entry]) -> Iterator[ToolUse]:
    """Tell the worker that is stuck what the user has answered."""
    asked, guidance = answer or ("", "")
    for sender, report in reversed(list(_reports(entries))):
        if isinstance(report, HelpRequest) and report.bead_id == asked:
            yield "answer_help", {"target": sender, "bead_id": asked, "guidance": guidance}
            return


def _request(worker: str, bead_id: str, title: str, *, resume: bool = False) -> ToolUse:
    return "request_worker", {"target": worker, "bead_id": bead_id, "brief": title, "resume": resume}


def _read_beads(letter: Letter) -> dict[str, str]:
    """The beads of a letter that gives work; an answer gives none, whatever it says."""
    if isinstance(read(letter), HelpResponse):
        return {}
    return {bead_id: title.strip() for bead_id, title in _BEAD.findall(letter.body)}


def _beads(this_round: list[Entry]) -> dict[str, str]:
    """The titles of the beads that the user has given, by their ids."""
    beads: dict[str, str] = {}
    for entry in this_round:
        if isinstance(entry, Letter) and entry.is_from_person:
            beads |= _read_beads(entry)
    return beads


def _reports(this_round: list[Entry]) -> Iterator[tuple[str, object]]:
    """What the workers have written."""
    for entry in this_round:
        if isinstance(entry, Letter) and entry.is_from_agent:
            yield entry.sender, read(entry)


def _ends(this_round: list[Entry]) -> dict[str, str]:
    """A line for each bead that has ended."""
    ends = {}
    for sender, report in _reports(this_round):
        match report:
            case OfferingReady(bead_id=bead_id, commit_sha=commit, summary=summary):
                ends[bead_id] = f"{bead_id}: {sender} has done it in {commit}. {summary}"
            case Failed(bead_id=bead_id, reason=reason):
                ends[bead_id] = f"{bead_id}: {sender} has failed, as {reason}."
    return ends


def _is_completion(entry: Entry) -> bool:
    return isinstance(entry, Call) and entry.tool == "task_complete"
