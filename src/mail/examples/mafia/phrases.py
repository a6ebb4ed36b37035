"""The key sentences of the game: the players' choices, and the narrator's announcements.

Prompts request them from language models, rule-based players write them, and players and narrator parse them.
"""

import re
from enum import StrEnum

from mail.examples.mafia.roles import Role

NARRATOR = "Narrator"
NOBODY = "nobody"


class Move(StrEnum):
    """The kinds of step of a player; each value is the word that identifies it in the instructions."""

    PROTECT = "protect"
    INVESTIGATE = "investigate"
    KILL = "kill"
    NOMINATE = "nominate"
    VERDICT = "guilty"
    DEFENCE = "defend"
    SPEECH = "speak"


def move_in(instructions: str) -> Move:
    """Return the kind of step that the instructions request; a speech by default."""
    text = instructions.lower()
    return next((move for move in Move if move in text), Move.SPEECH)


PROTECTS = re.compile(r"\bI protect (?P<name>\w+)", re.IGNORECASE)
INVESTIGATES = re.compile(r"\bI investigate (?P<name>\w+)", re.IGNORECASE)
KILLS = re.compile(r"\bI vote to kill (?P<name>\w+)", re.IGNORECASE)
NOMINATES = re.compile(r"\bI nominate (?P<name>\w+)", re.IGNORECASE)
VOTES = re.compile(r"\bI vote (?P<verdict>guilty|innocent)", re.IGNORECASE)
FINDING = re.compile(r"\b(?P<name>\w+) is (?P<not>not )?Mafia\b")
"""The result of an investigation."""

LIVING = re.compile(r"^Living players: (?P<names>.*)$", re.MULTILINE)
CHOICES = re.compile(r"^Choices: (?P<names>.*)$", re.MULTILINE)
TELL_THEM = "Tell them: "
"""In the narrator's instructions: the following text is to be announced."""
REPORT = "Report the finding"
"""In the narrator's instructions: the finding for the detective is in the result of its tool."""


def finding(name: str, is_mafia: bool) -> str:
    """Return the result of an investigation."""
    return f"{name} is Mafia." if is_mafia else f"{name} is not Mafia."


def death(name: str, role: Role) -> str:
    """Return the announcement of a death."""
    return f"{name} has died and was: {role.name}."


def names_in(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    """Return the names of the last list of this kind in a text; none without a list."""
    lists = pattern.findall(text)
    return tuple(name for name in lists[-1].split(", ") if name) if lists else ()
