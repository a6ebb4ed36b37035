"""Players that follow rules instead of asking a language model. Each sees only its own history, as a model would.

A player is built by its class, called with its history, and answers in text. It keeps nothing between its turns.
"""

from collections.abc import Mapping
from typing import Any

from mail.core.protocol.calls import AgentToolCall
from mail.core.task.swarm import History, ToolChoice
from mail.examples.mafia.evidence import Evidence
from mail.examples.mafia.phrases import NOBODY, Move, finding, move_in
from mail.examples.mafia.roles import DETECTIVE, DOCTOR, MAFIA, VILLAGER, Role


class RuleBasedPlayer:
    """A villager, and what all others pass for.

    Args:
        seed: of what is left to chance.
    """

    def __init__(self, name: str, seed: int = 0, **_wiring: Any) -> None:
        self.name = name
        self.seed = seed

    async def __call__(
        self, messages: History, tool_choice: ToolChoice = "auto"
    ) -> tuple[str | None, list[AgentToolCall]]:
        """One step: everything it knows is in the messages."""
        return self.answer(Evidence(self.name, self.seed, messages)), []

    def answer(self, evidence: Evidence) -> str:
        """What it says to what it was asked for."""
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
        """What it does at night."""
        return "I sleep."

    def speech(self, evidence: Evidence) -> str:
        """What it says by day."""
        suspect = self.suspect(evidence)
        if suspect == NOBODY:
            return "I trust you all."
        if detective := evidence.claimant(DETECTIVE):
            return f"I believe {detective}. I suspect {suspect}."
        return f"I suspect {suspect}."

    def nominee(self, evidence: Evidence) -> str:
        """Whom it puts on trial."""
        return self.suspect(evidence)

    def suspect(self, evidence: Evidence) -> str:
        """Whom it takes for Mafia."""
        return evidence.most_suspicious(evidence.others)

    def defence(self, evidence: Evidence) -> str:
        """What it says when it is on trial."""
        return "I am only a villager. You are making a mistake."

    def finds_guilty(self, evidence: Evidence) -> bool:
        """Whether it takes the accused for Mafia: those who are more suspicious than most."""
        scores = evidence.suspicions()
        accused = evidence.accused
        return scores[accused] > 0 and scores[accused] * len(scores) >= scores.total()


class RuleBasedDoctor(RuleBasedPlayer):
    """Protects who has come out as the detective, else anyone."""

    def at_night(self, evidence: Evidence) -> str:
        """Whom it protects."""
        detective = evidence.claimant(DETECTIVE)
        choices = evidence.choices
        return f"I protect {detective if detective in choices else evidence.any_of(choices)}."

    def defence(self, evidence: Evidence) -> str:
        """Better known to the Mafia than executed by the town."""
        return "I am the Doctor. Without me nobody is safe at night."


class RuleBasedDetective(RuleBasedPlayer):
    """Investigates who is most suspicious, and comes out with what it knows once that may decide the day."""

    def at_night(self, evidence: Evidence) -> str:
        """Whom it investigates."""
        unknown = [name for name in evidence.choices if name not in evidence.findings]
        return f"I investigate {evidence.most_suspicious(unknown or evidence.choices)}."

    def speech(self, evidence: Evidence) -> str:
        """What it knows, if that helps."""
        known = [name for name in evidence.others if name in evidence.findings]
        if self._found(evidence) or 2 * len(known) >= len(evidence.others):
            return self._testimony(evidence)
        return super().speech(evidence)

    def suspect(self, evidence: Evidence) -> str:
        """Whom it knows to be Mafia, or else doesn't know."""
        unknown = [name for name in evidence.others if name not in evidence.findings]
        return next(iter(self._found(evidence)), evidence.most_suspicious(unknown))

    def defence(self, evidence: Evidence) -> str:
        """There is nothing to lose now."""
        return self._testimony(evidence)

    def finds_guilty(self, evidence: Evidence) -> bool:
        """Whether the accused is Mafia, if that is known."""
        return evidence.findings.get(evidence.accused, super().finds_guilty(evidence))

    def _found(self, evidence: Evidence) -> list[str]:
        return [name for name, is_mafia in evidence.findings.items() if is_mafia and name in evidence.others]

    def _testimony(self, evidence: Evidence) -> str:
        known = [finding(name, is_mafia) for name, is_mafia in evidence.findings.items()]
        return " ".join(["I am the Detective.", *known])


class RuleBasedMafia(RuleBasedPlayer):
    """Votes at night with the first of its kind, and by day leads suspicion away from them all."""

    def at_night(self, evidence: Evidence) -> str:
        """Whom it wants dead: whom the others want, or else who is most dangerous."""
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
        """Whoever of the town is suspected already."""
        town = [name for name in evidence.others if name not in evidence.partners]
        return evidence.most_suspicious(town)

    def finds_guilty(self, evidence: Evidence) -> bool:
        """A partner who is lost anyway is better lost with one's own vote."""
        return evidence.accused not in evidence.partners or evidence.is_exposed(evidence.accused)


PLAYERS: Mapping[Role, type[RuleBasedPlayer]] = {
    MAFIA: RuleBasedMafia,
    DOCTOR: RuleBasedDoctor,
    DETECTIVE: RuleBasedDetective,
    VILLAGER: RuleBasedPlayer,
}
