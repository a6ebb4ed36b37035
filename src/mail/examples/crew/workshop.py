"""The work itself, which is made up: a bead takes some steps, and its title says what comes in between.

The same step always comes out the same, so that it may be repeated after a crash.
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
"""What is unclear about a bead whose title holds the word, once its first step is done."""


class Step(BaseModel):
    """One step of the work on a bead."""

    bead_id: str = Field(description="The bead.")
    title: str = Field(description="What the bead is about.")
    after: str = Field(default="", description="The commit to go on from; empty to begin.")
    guidance: str = Field(default="", description="What somebody has said about an open question.")


class Outcome(BaseModel):
    """What a step has come to: `done` of `steps` are in the commit, and there may be a reason why there are no more."""

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
        """Whether nothing is left to do."""
        return self.done == self.steps


def commit_of(bead_id: str, done: int) -> str:
    """The commit that holds so many steps of a bead; the empty text for none."""
    return sha256(f"{bead_id} {done}".encode()).hexdigest()[:7] if done else ""


@action(description="Take the next step of the work on a bead", idempotent=True)
def take_step(step: Step) -> str:
    """The outcome as JSON. Raises ToolCallFault for a commit that is not the bead's."""
    steps = STEPS_OF_LARGE if "large" in step.title else STEPS
    commits = [commit_of(step.bead_id, done) for done in range(steps)]
    if step.after not in commits:
        raise ToolCallFault(f"bead {step.bead_id!r} has no commit {step.after!r} to go on from")
    done = commits.index(step.after)
    question = next((text for word, text in QUESTIONS.items() if word in step.title), "")
    obstacle = "its parts exclude each other" if "impossible" in step.title else ""
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
