"""The state of a game and its rules: who lives, what was chosen, who has won. No mail is sent here."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from mail.core.protocol.suggest import did_you_mean
from mail.errors import BadRequest
from mail.examples.mafia.agents import Agent
from mail.examples.mafia.roles import MAFIA, Role, Team

NOMINATIONS_FOR_TRIAL = 2
LAST_DAY = 10
"""A town that has not found the Mafia by then has lost, so that every game ends."""


class GamePhase(Enum):
    """Where the game is. A night is followed by the parts of a day, and these by the next night."""

    SETUP = "setup"
    NIGHT = "night"
    DISCUSSION = "discussion"
    NOMINATION = "nomination"
    TRIAL = "trial"
    GAME_OVER = "game over"


@dataclass
class GameState:
    """A game as the rules see it.

    Attributes:
        day_number: of the day, and of the night before it; from 1.
        protected_player: by the doctor, tonight.
        protected_before: last night.
        investigated: by the detective, at any time.
        kill_votes: tonight's, by member of the Mafia.
        nominations: today's, by who made them.
        accused: who is on trial.
        verdicts: at this trial, by voter; True for guilty.
    """

    players: list[Agent] = field(default_factory=list)
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

    # ------------------------------------------------------------------------------------------- who is there

    def get_player_by_name(self, name: str) -> Agent:
        """The player of that name. Raises BadRequest if there is none."""
        for player in self.players:
            if player.name.casefold() == name.strip().casefold():
                return player
        raise BadRequest(f"{name!r} is no player{did_you_mean(name, self._names(self.players))}")

    def get_alive_players(self) -> list[Agent]:
        """Those who still play, in their order at the table."""
        return [player for player in self.players if player.is_alive]

    def get_mafia_members(self) -> list[Agent]:
        """The living members of the Mafia."""
        return [player for player in self.get_alive_players() if player.role is MAFIA]

    def get_alive(self, role: Role) -> Agent | None:
        """Who has this role, of which there is one; None once they are dead."""
        return next((player for player in self.get_alive_players() if player.role is role), None)

    def living(self, *, but: Iterable[str | None] = ()) -> list[str]:
        """The names of those who still play."""
        left_out = set(but)
        return [name for name in self._names(self.get_alive_players()) if name not in left_out]

    # ------------------------------------------------------------------------------------------------ night

    def begin_night(self) -> None:
        """Nothing is chosen yet; what was, is last night's."""
        self.phase = GamePhase.NIGHT
        self.protected_before, self.protected_player = self.protected_player, None
        self.kill_votes.clear()

    def resolve_night_actions(self) -> str | None:
        """Kill whom most of the Mafia want dead, unless the doctor protects them; returns who has died.

        Between two with as many votes, it is who was named first.
        """
        victim = _most_named(self.kill_votes)
        if victim is None or victim == self.protected_player:
            return None
        self.get_player_by_name(victim).is_alive = False
        return victim

    # -------------------------------------------------------------------------------------------------- day

    def begin_nominations(self) -> None:
        """Nobody is nominated yet."""
        self.phase = GamePhase.NOMINATION
        self.nominations.clear()
        self.accused = None

    def resolve_nominations(self) -> str | None:
        """Put on trial whom most have nominated; returns who that is, None where too few agree."""
        self.accused = _most_named(self.nominations, at_least=NOMINATIONS_FOR_TRIAL)
        return self.accused

    def begin_trial(self) -> None:
        """Nobody has voted yet."""
        self.phase = GamePhase.TRIAL
        self.verdicts.clear()

    def count_verdicts(self) -> tuple[int, int]:
        """How many have voted guilty, and how many innocent."""
        guilty = sum(self.verdicts.values())
        return guilty, len(self.verdicts) - guilty

    def resolve_trial(self) -> bool:
        """Execute the accused, if more have voted guilty than innocent; returns whether that is so."""
        guilty, innocent = self.count_verdicts()
        if self.accused is None or guilty <= innocent:
            return False
        self.get_player_by_name(self.accused).is_alive = False
        return True

    # -------------------------------------------------------------------------------------------------- end

    def check_winner(self) -> Team | None:
        """Who has won, if anybody has.

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
    """Who is named most often; the first of several. None where nobody is named often enough."""
    for name, count in Counter(votes.values()).most_common(1):  # it keeps the order of those with as many
        return name if count >= at_least else None
    return None
