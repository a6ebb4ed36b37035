"""A worker: it takes beads, reports each step, asks when it is stuck, and leaves a checkpoint in time."""

from collections.abc import Iterator
from itertools import chain

from mail.agentmail import CheckpointReason, FailureType, IssueType, Parser, SpawnRequest, ValidationResult
from mail.agentmail.messages import HelpResponse
from mail.errors import Subject
from mail.examples.crew.workshop import Outcome, Step, take_step
from mail.examples.rule_based.agent import RuleBasedAgent, reply_subject
from mail.examples.rule_based.calls import ToolUse
from mail.examples.rule_based.phrases import brief
from mail.examples.rule_based.reading import Call, Entry, Letter, back_to
from mail.stdlib.agentmail.actions import BRIEF
from mail.stdlib.agentmail.forms import enclosed

CONTEXT_OF_STEP = 20
"""How much of its context window a step takes, in percent."""

CONTEXT_HIGH = 80

WAIT: ToolUse = ("await_message", {"reason": "the others will write"})

_parser = Parser(exact_subjects=True)


class Worker(RuleBasedAgent):
    """Works on whatever bead its mail is about; several may be in its hands at once."""

    def decide(self, letter: Letter, earlier: Iterator[Entry]) -> list[ToolUse]:
        """Take a step for a request or an answer, and say what has come of one."""
        if letter.is_from_system:
            return self._go_on(letter, list(earlier))
        match read(letter):
            case SpawnRequest(bead_id=bead_id, orchestrator=boss, checkpoint=commit):
                title = enclosed(letter.body, BRIEF)
                accept = {"target": boss, "bead_id": bead_id, "title": title}
                step = Step(bead_id=bead_id, title=title, after=commit)
                return [("accept_bead", accept), _take(step)]
            case HelpResponse(bead_id=bead_id, guidance=guidance):
                stuck = next((step for step in _steps(earlier) if bead_id in ("", step.bead_id)), None)
                return [_take(stuck.model_copy(update={"guidance": guidance})) if stuck else _thank(letter)]
            case _:
                return [_thank(letter)]

    def _go_on(self, letter: Letter, earlier: list[Entry]) -> list[ToolUse]:
        """The system has written: a step is done, or something is wrong."""
        if letter.subject == Subject.ACTION_COMPLETE:
            outcome = Outcome.model_validate_json(letter.body.removeprefix(f"{take_step.name}: "))
            return self._report(outcome, earlier)
        step = next(_steps(iter(earlier)), None)
        if letter.subject != Subject.ACTION_ERROR or step is None:
            return [WAIT]
        boss, _ = _request_for(step.bead_id, earlier)
        return [_failure(boss, step.bead_id, FailureType.ERROR, brief(letter.body))]

    def _report(self, outcome: Outcome, earlier: list[Entry]) -> list[ToolUse]:
        boss, since = _request_for(outcome.bead_id, earlier)
        about = {"target": boss, "bead_id": outcome.bead_id}
        taken = [step for step in _steps(iter(since)) if step.bead_id == outcome.bead_id]
        usage = CONTEXT_OF_STEP * len(taken)
        if outcome.question:
            problem = {
                "issue_type": IssueType.SPEC_UNCLEAR,
                "problem": f"I can't go on with {outcome.title!r}.",
                "what_i_tried": "I have read the spec again.",
                "files_touched": outcome.files,
                "question": outcome.question,
            }
            return [("ask_for_help", about | problem), WAIT]
        if outcome.obstacle:
            return [_failure(boss, outcome.bead_id, FailureType.SPEC_IMPOSSIBLE, outcome.obstacle)]
        if outcome.is_complete:
            checks = dict.fromkeys(("tests", "lint", "build"), ValidationResult.PASS)
            summary = f"{outcome.title}, in {outcome.steps} steps."
            work = {"commit_sha": outcome.commit, "files": outcome.files, "summary": summary}
            return [("offer_work", about | work | checks), WAIT]
        if usage >= CONTEXT_HIGH:
            left = {
                "reason": CheckpointReason.CONTEXT_HIGH,
                "commit_sha": outcome.commit,
                "description": f"{outcome.done} of {outcome.steps} steps are done",
                "context_usage": usage,
                "next_steps": f"Take step {outcome.done + 1}.",
            }
            return [("leave_checkpoint", about | left)]
        progress = {
            "step": f"{outcome.done} of {outcome.steps}",
            "status": "goes well",
            "context_usage": usage,
            "files_touched": outcome.files,
        }
        following = Step(bead_id=outcome.bead_id, title=outcome.title, after=outcome.commit)
        return [("report_progress", about | progress), _take(following)]


def read(letter: Letter) -> object:
    """What a letter says in Agent Mail."""
    return _parser.parse({"sender": letter.sender, "subject": letter.subject, "body": letter.body}).parsed


def _thank(letter: Letter) -> ToolUse:
    """A turn must use a tool, and there may be nothing to await. A response would answer an open request of theirs."""
    words = {"subject": reply_subject(letter.subject), "body": "Thank you."}
    return "send_interrupt", {"target": letter.sender, **words}


def _take(step: Step) -> ToolUse:
    return take_step.name, step.model_dump()


def _failure(boss: str, bead_id: str, kind: FailureType, reason: str) -> ToolUse:
    about = {"target": boss, "bead_id": bead_id, "failure_type": kind, "reason": reason}
    return "report_failure", {**about, "recommendation": "Ask for something else."}


def _steps(entries: Iterator[Entry]) -> Iterator[Step]:
    """The steps that the agent has taken, in the order of the entries."""
    for entry in entries:
        if isinstance(entry, Call) and entry.tool == take_step.name:
            yield Step.model_validate(entry.arguments)


def _request_for(bead_id: str, earlier: list[Entry]) -> tuple[str, list[Entry]]:
    """To whom to report on a bead, and what has been since the request for it, oldest first."""

    def asks(entry: Entry) -> bool:
        message = read(entry) if isinstance(entry, Letter) else None
        return isinstance(message, SpawnRequest) and message.bead_id == bead_id

    request, since = back_to(chain(earlier), asks)
    assert isinstance(request, Letter)
    message = read(request)
    assert isinstance(message, SpawnRequest)
    return message.orchestrator, since
