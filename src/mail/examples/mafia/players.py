"""The players: `Agent` is a seat at the table, `RuleBasedPlayer` plays without calling a language model."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from mail.api.agents import MAILAgentTemplate
from mail.core.protocol.calls import AgentToolCall
from mail.core.task.swarm import History, ToolChoice
from mail.examples.mafia.hearings import read_hearings
from mail.examples.mafia.personas import Persona
from mail.examples.mafia.phrases import (
    CHOICES,
    KILLS,
    LIVING,
    NARRATOR,
    NOBODY,
    NOMINATES,
    Move,
    move_in,
    names_in,
)
from mail.examples.mafia.prompts import create_agent_system_prompt
from mail.examples.mafia.roles import Role
from mail.factories import LiteLLMAgentFunction

SENTENCES: Mapping[Move, tuple[str, ...]] = {
    Move.PROTECT: ("I protect {}.",),
    Move.INVESTIGATE: ("I investigate {}.",),
    Move.KILL: ("I vote to kill {}.",),
    Move.NOMINATE: ("I nominate {}.",),
    Move.VERDICT: ("I vote guilty.", "I vote innocent."),
    Move.DEFENCE: ("I am only a villager. You are making a mistake.",),
    Move.SPEECH: ("I suspect {}.",),
}
"""What a player without a model says in each kind of step, about one of those whom it can choose."""


VOTES_FOR = {Move.KILL: KILLS, Move.NOMINATE: NOMINATES}
"""The votes with which a player agrees that it has heard since its last step."""


class RuleBasedPlayer:
    """A player that chooses by chance, or agrees with the first one who has voted.

    It sees only its own history, as a model would, answers in text, and keeps no state between turns.

    Args:
        seed: seed of the random choices.
    """

    def __init__(self, name: str, seed: int = 0, **_wiring: Any) -> None:
        self.name = name
        self.seed = seed

    async def __call__(
        self, messages: History, tool_choice: ToolChoice = "auto"
    ) -> tuple[str | None, list[AgentToolCall]]:
        """Run one step, by the messages only."""
        return self.answer(messages), []

    def answer(self, messages: History) -> str:
        """Return what it says now."""
        hearings = list(read_hearings(messages))
        now = hearings[-1]
        move = move_in(now.instructions)
        texts = [each.text for hearing in hearings for each in hearing.heard]
        living = names_in(LIVING, "\n".join((*texts, now.instructions)))
        choices = names_in(CHOICES, now.instructions) or [each for each in living if each != self.name]
        if (vote := VOTES_FOR.get(move)) is not None:
            voted = [found["name"] for each in now.heard if (found := vote.search(each.text))]
            choices = [name for name in voted if name in choices][:1] or choices

        def chance(option: str) -> bytes:
            return sha256(f"{self.seed}/{self.name}/{len(texts)}/{option}".encode()).digest()

        return min(SENTENCES[move], key=chance).format(min(choices, key=chance, default=NOBODY))


@dataclass
class Agent:
    """A player.

    Attributes:
        llm: the model that plays, by its name in litellm; None for a rule-based player.
        seed: seed of the rule-based player's random choices.
    """

    persona: Persona
    role: Role
    llm: str | None = None
    seed: int = 0
    is_alive: bool = True

    @property
    def name(self) -> str:
        """The name of the character and of its agent."""
        return self.persona.name

    def build_agent_template(self) -> MAILAgentTemplate:
        """Return the template of the agent that plays: a language model, or rules."""
        factory: Any = RuleBasedPlayer
        params: dict[str, Any] = {"seed": self.seed}
        if self.llm is not None:
            factory = LiteLLMAgentFunction
            params = {"llm": self.llm, "system": create_agent_system_prompt(self.persona, self.role)}
        return MAILAgentTemplate(
            name=self.name, factory=factory, comm_targets=[NARRATOR], actions=[], agent_params=params
        )
