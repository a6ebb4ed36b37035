"""The roles of a game of Mafia."""

from dataclasses import dataclass
from enum import StrEnum

from mail.errors import BadRequest

MIN_PLAYERS = 4
MAX_PLAYERS = 16
"""The number of personas."""

MAFIA_AMONG_SEVEN = 2
"""Members of the Mafia per seven players: a larger share makes the town rarely win, a smaller one the Mafia."""


class Team(StrEnum):
    """A side of the game; it wins or loses as one."""

    TOWN = "Town"
    MAFIA = "Mafia"


@dataclass(frozen=True, slots=True)
class Role:
    """The secret role of a player.

    Attributes:
        task: the description that the player gets.
    """

    name: str
    team: Team
    task: str


MAFIA = Role(
    "Mafia",
    Team.MAFIA,
    "Each night you and your fellow Mafia vote on the player to kill. By day you pass for a villager. "
    "You win as soon as half of the living players are Mafia.",
)
DOCTOR = Role(
    "Doctor",
    Team.TOWN,
    "Each night you protect one player from being killed; not the same one two nights in a row. "
    "You win with the town, when no Mafia is left.",
)
DETECTIVE = Role(
    "Detective",
    Team.TOWN,
    "Each night you investigate one player and learn whether they are Mafia. Tell the town when it helps, "
    "and not before: the Mafia listens. You win with the town, when no Mafia is left.",
)
VILLAGER = Role(
    "Villager", Team.TOWN, "You have your wits and your vote. You win with the town, when no Mafia is left."
)


def calculate_roles(n: int) -> list[Role]:
    """Return the roles of a game of `n` players. Raises BadRequest for too few or too many."""
    if not MIN_PLAYERS <= n <= MAX_PLAYERS:
        raise BadRequest(f"Mafia takes {MIN_PLAYERS} to {MAX_PLAYERS} players, not {n}")
    mafia = max(1, n * MAFIA_AMONG_SEVEN // 7)
    return [MAFIA] * mafia + [DOCTOR, DETECTIVE] + [VILLAGER] * (n - mafia - 2)
