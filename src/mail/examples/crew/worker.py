"""A worker: it accepts beads, reports each step, requests help, and leaves a checkpoint before its context is full.

The work is simulated: a bead takes some steps, and words in its title cause questions and obstacles. A step is
deterministic, so that it may be repeated after a crash.
"""

from collections.abc import Iterator
from hashlib import sha256
from itertools import chain

from pydantic import BaseModel, Field

from mail.agentmail import CheckpointReason, FailureType, IssueType, Parser, SpawnRequest, ValidationResult
from mail.agentmail.messages import HelpResponse
from mail.api.actions import action
from mail.errors import Subject, ToolCallFault
from mail.examples.rule_based.agents import RuleBasedAgent, brief
from mail.examples.rule_based.calls import ToolUse
from mail.examples.rule_based.reading import Call, Entry, back_to
from mail.factories.rules import ReceivedMessage
from mail.stdlib.agentmail.actions import BRIEF
from mail.stdlib.agentmail.forms import enclosed

STEPS = 3
STEPS_OF_LARGE = 6

QUESTIONS = {
    "limit": "The spec names two limits. Which one holds?",
    "price": "Which currency are the prices in?",
}
"""Questions after the first step of a bead, by a word in its title."""


class Step(BaseModel):
    """One step of the work on a bead."""

    bead_id: str = Field(description="The bead.")
    title: str = Field(description="What the bead is about.")
    after: str = Field(default="", description="The commit to continue from; empty to begin.")
    guidance: str = Field(default="", description="The answer to an open question.")

    def with_guidance(self, guidance: str) -> "Step":
        """Return the step with the answer to its question."""
        return Step(bead_id=self.bead_id, title=self.title, after=self.after, guidance=guidance)


class Outcome(BaseModel):
    """The outcome of a step: the commit has `done` of `steps`; a question or an obstacle may have stopped it."""

    bead_id: str
    title: str
    commit: str
    files: list[str]
    done: int
    steps: int
    question: str = ""
    obstacle: str = ""

    @property
    def is_complete(self) -> bool:
        return self.done == self.steps


def commit_of(bead_id: str, done: int) -> str:
    """Return the commit with this number of steps of a bead; empty for none."""
    return sha256(f"{bead_id} {done}".encode()).hexdigest()[:7] if done else ""


@action(description="Take the next step of the work on a bead", idempotent=True)
def take_step(step: Step) -> str:
    """Return the outcome as JSON. Raises ToolCallFault for a commit of another bead."""
    steps = STEPS_OF_LARGE if "large" in step.title else STEPS
    commits = [commit_of(step.bead_id, done) for done in range(steps)]
    if step.after not in commits:
        raise ToolCallFault(f"bead {step.bead_id!r} has no commit {step.after!r} to continue from")
    done = commits.index(step.after)
    question = next((text for word, text in QUESTIONS.items() if word in step.title), "")
    obstacle = "its requirements exclude each other" if "impossible" in step.title else ""
    is_stopped = done == 1 and bool(obstacle or (question and not step.guidance))
    done += not is_stopped
    return Outcome(
        bead_id=step.bead_id,
        title=step.title,
        commit=commit_of(step.bead_id, done),
        files=[f"src/{step.bead_id}_{number}.py" for number in range(1, done + 1)],
        done=done,
        steps=steps,
        question=question if is_stopped else "",
        obstacle=obstacle if is_stopped else "",
    ).model_dump_json()


CONTEXT_OF_STEP = 20
"""Share of its context window that a step takes, in percent."""

CONTEXT_HIGH = 80

WAIT: ToolUse = ("await_message", {"reason": "the other agents will write"})

_parser = Parser(exact_subjects=True)


class Worker(RuleBasedAgent):
    """An agent that works on the beads of its mail, several at the same time if requested."""

    def decide(self, message: ReceivedMessage, earlier: Iterator[Entry]) -> list[ToolUse]:
        """Take a step for a request or an answer, and report the outcome of a step."""
        if message.is_from_system:
            return self._after_step(message, list(earlier))
        match read(message):
            case SpawnRequest(bead_id=bead_id, orchestrator=boss, checkpoint=commit):
                title = enclosed(message.body, BRIEF)
                accept = {"target": boss, "bead_id": bead_id, "title": title}
                step = Step(bead_id=bead_id, title=title, after=commit)
                return [("accept_bead", accept), _take(step)]
            case HelpResponse(bead_id=bead_id, guidance=guidance):
                stuck = next((step for step in _steps(earlier) if bead_id in ("", step.bead_id)), None)
                return [_take(stuck.with_guidance(guidance)) if stuck else WAIT]
            case _:  # such as an acceptance
                return [WAIT]

    def _after_step(self, message: ReceivedMessage, earlier: list[Entry]) -> list[ToolUse]:
        """Report the outcome of a step, or a failure, from a message of the system."""
        if message.subject == Subject.ACTION_COMPLETE:
            outcome = Outcome.model_validate_json(message.body.removeprefix(f"{take_step.name}: "))
            return self._report(outcome, earlier)
        step = next(_steps(iter(earlier)), None)
        if message.subject != Subject.ACTION_ERROR or step is None:
            return [WAIT]
        boss, _ = _request_for(step.bead_id, earlier)
        return [_failure(boss, step.bead_id, FailureType.ERROR, brief(message.body))]

    def _report(self, outcome: Outcome, earlier: list[Entry]) -> list[ToolUse]:
        boss, since = _request_for(outcome.bead_id, earlier)
        about = {"target": boss, "bead_id": outcome.bead_id}
        taken = [step for step in _steps(iter(since)) if step.bead_id == outcome.bead_id]
        usage = CONTEXT_OF_STEP * len(taken)
        if outcome.question:
            problem = {
                "issue_type": IssueType.SPEC_UNCLEAR,
                "problem": f"I can't continue with {outcome.title!r}.",
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


def read(message: ReceivedMessage) -> object:
    """Parse a message by the forms of Agent Mail."""
    return _parser.parse({"sender": message.sender, "subject": message.subject, "body": message.body}).parsed


def _take(step: Step) -> ToolUse:
    return take_step.name, step.model_dump()


def _failure(boss: str, bead_id: str, kind: FailureType, reason: str) -> ToolUse:
    about = {"target": boss, "bead_id": bead_id, "failure_type": kind, "reason": reason}
    return "report_failure", {**about, "recommendation": "Ask for something else."}


def _steps(entries: Iterator[Entry]) -> Iterator[Step]:
    """Iterate over the steps that the agent has taken, in the order of the entries."""
    for entry in entries:
        if isinstance(entry, Call) and entry.tool == take_step.name:
            yield Step.model_validate(entry.arguments)


def _request_for(bead_id: str, earlier: list[Entry]) -> tuple[str, list[Entry]]:
    """Return the orchestrator of a bead, and the entries since its request, oldest first."""

    def requests_it(entry: Entry) -> bool:
        form = read(entry) if isinstance(entry, ReceivedMessage) else None
        return isinstance(form, SpawnRequest) and form.bead_id == bead_id

    request, since = back_to(chain(earlier), requests_it)
    assert isinstance(request, ReceivedMessage)
    form = read(request)
    assert isinstance(form, SpawnRequest)
    return form.orchestrator, since
