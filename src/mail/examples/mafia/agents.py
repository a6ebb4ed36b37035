"""A seat at the table: who sits there, what they secretly are, and what plays them."""

from dataclasses import dataclass
from typing import Any

from mail.api.agents import MAILAgentTemplate
from mail.examples.mafia.personas import Persona
from mail.examples.mafia.phrases import NARRATOR
from mail.examples.mafia.players import PLAYERS
from mail.examples.mafia.prompts import create_agent_system_prompt
from mail.examples.mafia.roles import Role
from mail.factories import LiteLLMAgentFunction


@dataclass
class Agent:
    """A player.

    Attributes:
        llm: the model that plays, as litellm names it; None where rules do.
        seed: of what rules leave to chance.
    """

    persona: Persona
    role: Role
    llm: str | None = None
    seed: int = 0
    is_alive: bool = True

    @property
    def name(self) -> str:
        """What all call it; the name of its agent."""
        return self.persona.name

    def build_agent_template(self) -> MAILAgentTemplate:
        """The agent that plays: a language model that is told who it is, or the rules for its role."""
        factory: Any = PLAYERS[self.role]
        params: dict[str, Any] = {"seed": self.seed}
        if self.llm is not None:
            factory = LiteLLMAgentFunction
            params = {"llm": self.llm, "system": create_agent_system_prompt(self.persona, self.role)}
        return MAILAgentTemplate(
            name=self.name, factory=factory, comm_targets=[NARRATOR], actions=[], agent_params=params
        )
