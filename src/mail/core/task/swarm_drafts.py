"""Drafts of a swarm: other prompts, models, options and actions of its agents, which people try before all tasks do."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field, StringConstraints

from mail.core.protocol.values import Value

MAX_REVISIONS = 20
"""Revisions of a draft that are kept."""

MAX_PROMPT = 100_000
"""Characters of a prompt in a draft, which is stored with its revisions."""

DraftName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


_Word = Annotated[str, StringConstraints(pattern=r"^[a-z_]+$")]


class DraftOptions(Value):
    """The options of model calls that a draft can set: none says where or with which key a model is called."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = Field(default=None, gt=0)
    reasoning_effort: _Word | None = None
    thinking_budget: int | None = Field(default=None, gt=0)
    verbosity: _Word | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    service_tier: _Word | None = None
    memory: bool | None = Field(default=None, description="Whether the model gets the agent's history.")


class AgentChanges(Value):
    """What a draft changes in an agent; what it doesn't name stays."""

    system: str | None = Field(
        default=None, max_length=MAX_PROMPT, description="The system prompt; what MAIL adds to it stays."
    )
    llm: str | None = Field(
        default=None, min_length=1, description="The model, by its name in litellm. It has no fallback then."
    )
    options: DraftOptions | None = Field(
        default=None, description="Options of its model calls; the others stay."
    )
    actions: tuple[str, ...] | None = Field(
        default=None, description="Those of the swarm's actions that it may call."
    )

    @property
    def set_options(self) -> dict[str, object]:
        """The options that it sets."""
        return {} if self.options is None else self.options.model_dump(exclude_none=True)


class Revision(Value):
    """A draft as somebody has saved it.

    Attributes:
        agents: what it changes, by agent.
        base: the version that it changes, by its digest.
        by: the principal who saved it.
        at: when, in ISO 8601, UTC.
        testers: the callers, as `role:id`, who may try it in forks of their tasks, besides admins.
    """

    agents: Mapping[str, AgentChanges]
    base: str
    by: str
    at: str
    testers: tuple[str, ...] = ()


class SwarmDraft(Value):
    """A draft with its revisions, the latest last."""

    name: str
    revisions: tuple[Revision, ...]

    @property
    def latest(self) -> Revision:
        """The latest revision."""
        return self.revisions[-1]


class Published(Value):
    """A draft that new tasks use: its revision, and who has published it when."""

    name: str
    revision: Revision
    by: str
    at: str
