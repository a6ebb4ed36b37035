"""The players: `Agent` is a seat at the table, the other classes play by rules instead of calling a language model.

A rule-based player sees only its own history, as a model would, and answers in text. It keeps no state between turns.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mail.api.agents import MAILAgentTemplate
from mail.core.protocol.calls import AgentToolCall
from mail.core.task.swarm import History, ToolChoice
from mail.examples.mafia.evidence import Evidence
from mail.examples.mafia.personas import Persona
from mail.examples.mafia.phrases import NARRATOR, NOBODY, Move, finding, move_in
from mail.examples.mafia.prompts import create_agent_system_prompt
from mail.examples.mafia.roles import DETECTIVE, DOCTOR, MAFIA, VILLAGER, Role
from mail.factories import LiteLLMAgentFunction


class RuleBasedPlayer:
    """A villager; the base class of all rule-based players.

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
        return self.answer(Evidence(self.name, self.seed, messages)), []

    def answer(self, evidence: Evidence) -> str:
        match move_in(evidence.instructions):
            case Move.SPEECH:
                return self.speech(evidence)
            case Move.NOMINATE:
                return f"I nominate {self.nominee(evidence)}."
            case Move.DEFENCE:
                return self.defence(evidence)
            case Move.VERDICT:
                return "I vote guilty." if self.finds_guilty(evidence) else "I vote innocent."
            case Move.PROTECT | Move.INVESTIGATE | Move.KILL:
                return self.at_night(evidence)

    def at_night(self, evidence: Evidence) -> str:
        """Return its choice at night."""
        return "I sleep."

    def speech(self, evidence: Evidence) -> str:
        """Return its speech by day."""
        suspect = self.suspect(evidence)
        if suspect == NOBODY:
            return "I trust you all."
        if detective := evidence.claimant(DETECTIVE):
            return f"I believe {detective}. I suspect {suspect}."
        return f"I suspect {suspect}."

    def nominee(self, evidence: Evidence) -> str:
        """Return the player it nominates for trial."""
        return self.suspect(evidence)

    def suspect(self, evidence: Evidence) -> str:
        """Return the player it suspects of being Mafia."""
        return evidence.most_suspicious(evidence.rivals)

    def defence(self, evidence: Evidence) -> str:
        """Return its defence at its trial."""
        return "I am only a villager. You are making a mistake."

    def finds_guilty(self, evidence: Evidence) -> bool:
        """Return whether it finds the accused guilty: if they are more suspicious than the average."""
        scores = evidence.suspicions()
        accused = evidence.accused
        return scores[accused] > 0 and scores[accused] * len(scores) >= scores.total()


class RuleBasedDoctor(RuleBasedPlayer):
    """A doctor, who protects the player who claims to be the detective, or else anyone."""

    def at_night(self, evidence: Evidence) -> str:
        """Return the player to protect."""
        detective = evidence.claimant(DETECTIVE)
        choices = evidence.choices
        return f"I protect {detective if detective in choices else evidence.any_of(choices)}."

    def defence(self, evidence: Evidence) -> str:
        """Claim the role: being known to the Mafia is better than being executed."""
        return "I am the Doctor. Without me nobody is safe at night."


class RuleBasedDetective(RuleBasedPlayer):
    """A detective, who investigates the most suspicious player, and testifies as soon as that may decide the day."""

    def at_night(self, evidence: Evidence) -> str:
        """Return the player to investigate."""
        unknown = [name for name in evidence.choices if name not in evidence.findings]
        return f"I investigate {evidence.most_suspicious(unknown or evidence.choices)}."

    def speech(self, evidence: Evidence) -> str:
        """Testify, if that helps."""
        known = [name for name in evidence.rivals if name in evidence.findings]
        if self._found(evidence) or 2 * len(known) >= len(evidence.rivals):
            return self._testimony(evidence)
        return super().speech(evidence)

    def suspect(self, evidence: Evidence) -> str:
        """Return a player known to be Mafia, or else the most suspicious unknown one."""
        unknown = [name for name in evidence.rivals if name not in evidence.findings]
        return next(iter(self._found(evidence)), evidence.most_suspicious(unknown))

    def defence(self, evidence: Evidence) -> str:
        """Testify, as nothing is left to lose."""
        return self._testimony(evidence)

    def finds_guilty(self, evidence: Evidence) -> bool:
        """Return whether the accused is Mafia, if that is known."""
        return evidence.findings.get(evidence.accused, super().finds_guilty(evidence))

    def _found(self, evidence: Evidence) -> list[str]:
        return [name for name, is_mafia in evidence.findings.items() if is_mafia and name in evidence.rivals]

    def _testimony(self, evidence: Evidence) -> str:
        known = [finding(name, is_mafia) for name, is_mafia in evidence.findings.items()]
        return " ".join(["I am the Detective.", *known])


class RuleBasedMafia(RuleBasedPlayer):
    """A member of the Mafia, who votes with its partners at night, and deflects suspicion from them by day."""

    def at_night(self, evidence: Evidence) -> str:
        """Return the player to kill: the partners' choice, or else the most dangerous one."""
        choices = [name for name in evidence.choices if name not in evidence.partners]
        for proposal in evidence.proposals():
            if proposal in choices:
                return f"Agreed. I vote to kill {proposal}."
        for role in (DETECTIVE, DOCTOR):
            claimant = evidence.claimant(role)
            if claimant in choices:
                return f"{claimant} claims to be the {role.name}. I vote to kill {claimant}."
        return f"I vote to kill {evidence.any_of(choices)}."

    def suspect(self, evidence: Evidence) -> str:
        """Return the most suspected player of the town."""
        town = [name for name in evidence.rivals if name not in evidence.partners]
        return evidence.most_suspicious(town)

    def finds_guilty(self, evidence: Evidence) -> bool:
        """Return True unless the accused is a partner who can still be saved."""
        return evidence.accused not in evidence.partners or evidence.is_exposed(evidence.accused)


PLAYERS: Mapping[Role, type[RuleBasedPlayer]] = {
    MAFIA: RuleBasedMafia,
    DOCTOR: RuleBasedDoctor,
    DETECTIVE: RuleBasedDetective,
    VILLAGER: RuleBasedPlayer,
}


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
        """Return the template of the agent that plays: a language model, or the rules for its role."""
        factory: Any = PLAYERS[self.role]
        params: dict[str, Any] = {"seed": self.seed}
        if self.llm is not None:
            factory = LiteLLMAgentFunction
            params = {"llm": self.llm, "system": create_agent_system_prompt(self.persona, self.role)}
        return MAILAgentTemplate(
            name=self.name, factory=factory, comm_targets=[NARRATOR], actions=[], agent_params=params
        )
