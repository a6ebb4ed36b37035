"""The state and the rules of a game. No mail is sent here."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from mail.core.protocol.error_text import did_you_mean
from mail.errors import BadRequest
from mail.examples.mafia.players import Agent
from mail.examples.mafia.roles import MAFIA, Role, Team

NOMINATIONS_FOR_TRIAL = 2
LAST_DAY = 10
"""The last day, so that every game ends; a town that has not found the Mafia by then has lost."""


class GamePhase(Enum):
    """The phases of a game; night, discussion, nomination and trial repeat."""

    SETUP = "setup"
    NIGHT = "night"
    DISCUSSION = "discussion"
    NOMINATION = "nomination"
    TRIAL = "trial"
    GAME_OVER = "game over"


@dataclass
class GameState:
    """The state of a game.

    Attributes:
        narrator_llm: the model that narrates; None for a rule-based narrator.
        day_number: number of the day and of the night before it, from 1.
        protected_player: the player that the doctor protects tonight.
        protected_before: the one protected last night.
        investigated: all players that the detective has investigated.
        kill_votes: tonight's votes, by member of the Mafia.
        nominations: today's nominations, by player.
        accused: the player on trial.
        verdicts: the votes of this trial, by voter; True for guilty.
    """

    players: list[Agent] = field(default_factory=list)
    narrator_llm: str | None = None
    phase: GamePhase = GamePhase.SETUP
    day_number: int = 1
    protected_player: str | None = None
    protected_before: str | None = None
    investigated: list[str] = field(default_factory=list)
    kill_votes: dict[str, str] = field(default_factory=dict)
    nominations: dict[str, str] = field(default_factory=dict)
    accused: str | None = None
    verdicts: dict[str, bool] = field(default_factory=dict)
    last_day: int = LAST_DAY

    # --------------------------------------------------------------------------------------------- players

    def get_player_by_name(self, name: str) -> Agent:
        """Return the player of that name. Raises BadRequest if there is none."""
        for player in self.players:
            if player.name.casefold() == name.strip().casefold():
                return player
        raise BadRequest(f"{name!r} is not a player{did_you_mean(name, self._names(self.players))}")

    def get_alive_players(self) -> list[Agent]:
        """Return the living players, in their order at the table."""
        return [player for player in self.players if player.is_alive]

    def get_mafia_members(self) -> list[Agent]:
        """Return the living members of the Mafia."""
        return [player for player in self.get_alive_players() if player.role is MAFIA]

    def get_alive(self, role: Role) -> Agent | None:
        """Return the living player with this unique role; None if they are dead."""
        return next((player for player in self.get_alive_players() if player.role is role), None)

    def living(self, *, but: Iterable[str | None] = ()) -> list[str]:
        """Return the names of the living players."""
        left_out = set(but)
        return [name for name in self._names(self.get_alive_players()) if name not in left_out]

    # ------------------------------------------------------------------------------------------------ night

    def begin_night(self) -> None:
        """Start a night, without any choice yet."""
        self.phase = GamePhase.NIGHT
        self.protected_before, self.protected_player = self.protected_player, None
        self.kill_votes.clear()

    def resolve_night_actions(self) -> str | None:
        """Kill the player with the most votes, unless the doctor protects them; return the victim.

        Of players with equal votes, the one named first dies.
        """
        victim = _most_named(self.kill_votes)
        if victim is None or victim == self.protected_player:
            return None
        self.get_player_by_name(victim).is_alive = False
        return victim

    # -------------------------------------------------------------------------------------------------- day

    def begin_nominations(self) -> None:
        """Start the nominations, without any yet."""
        self.phase = GamePhase.NOMINATION
        self.nominations.clear()
        self.accused = None

    def resolve_nominations(self) -> str | None:
        """Put the player with the most nominations on trial and return them; None if too few agree."""
        self.accused = _most_named(self.nominations, at_least=NOMINATIONS_FOR_TRIAL)
        return self.accused

    def begin_trial(self) -> None:
        """Start the trial, without any vote yet."""
        self.phase = GamePhase.TRIAL
        self.verdicts.clear()

    def count_verdicts(self) -> tuple[int, int]:
        """Return the number of votes for guilty, and for innocent."""
        guilty = sum(self.verdicts.values())
        return guilty, len(self.verdicts) - guilty

    def resolve_trial(self) -> bool:
        """Execute the accused if most votes are for guilty; return whether they are."""
        guilty, innocent = self.count_verdicts()
        if self.accused is None or guilty <= innocent:
            return False
        self.get_player_by_name(self.accused).is_alive = False
        return True

    # -------------------------------------------------------------------------------------------------- end

    def check_winner(self) -> Team | None:
        """Return the winner, if there is one.

        The town wins without Mafia; the Mafia wins when it is half of the living, or when the last day is over.
        """
        mafia = len(self.get_mafia_members())
        if mafia == 0:
            return Team.TOWN
        if 2 * mafia >= len(self.get_alive_players()) or self.day_number > self.last_day:
            return Team.MAFIA
        return None

    def _names(self, players: Iterable[Agent]) -> list[str]:
        return [player.name for player in players]


def _most_named(votes: Mapping[str, str], *, at_least: int = 1) -> str | None:
    """Return the name with the most votes, the first of several; None if no name has enough."""
    for name, count in Counter(votes.values()).most_common(1):  # ties keep their order
        return name if count >= at_least else None
    return None
