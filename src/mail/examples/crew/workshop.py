"""The simulated work: a bead takes some steps, and words in its title cause questions and obstacles.

A step is deterministic, so that it may be repeated after a crash.
"""

from hashlib import sha256

from pydantic import BaseModel, Field

from mail.api.actions import action
from mail.errors import ToolCallFault

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
        """Whether all steps are done."""
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
