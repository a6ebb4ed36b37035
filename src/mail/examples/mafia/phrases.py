"""The sentences that the game turns on: what players are asked to end with, and what the narrator makes known.

Language models are asked for them, rules speak them, and rules and narrator read them.
"""

import re
from enum import StrEnum

from mail.examples.mafia.roles import ROLES, Role

NARRATOR = "Narrator"
NOBODY = "nobody"


class Move(StrEnum):
    """What a player can be asked for: the word by which it is recognized in the instructions."""

    PROTECT = "protect"
    INVESTIGATE = "investigate"
    KILL = "kill"
    NOMINATE = "nominate"
    VERDICT = "guilty"
    DEFENCE = "defend"
    SPEECH = "speak"


def move_in(instructions: str) -> Move:
    """What the instructions ask for; to speak, if nothing else."""
    text = instructions.lower()
    return next((move for move in Move if move in text), Move.SPEECH)


# ------------------------------------------------------------------------------------------- what players say

PROTECTS = re.compile(r"\bI protect (?P<name>\w+)", re.IGNORECASE)
INVESTIGATES = re.compile(r"\bI investigate (?P<name>\w+)", re.IGNORECASE)
KILLS = re.compile(r"\bI vote to kill (?P<name>\w+)", re.IGNORECASE)
NOMINATES = re.compile(r"\bI nominate (?P<name>\w+)", re.IGNORECASE)
VOTES = re.compile(r"\bI vote (?P<verdict>guilty|innocent)", re.IGNORECASE)
SUSPECTS = re.compile(r"\bI suspect (?P<name>\w+)")
CLAIMS = re.compile(r"\bI am the (?P<role>Doctor|Detective)\b")
FINDING = re.compile(r"\b(?P<name>\w+) is (?P<not>not )?Mafia\b")
"""Of a detective, and of the narrator to the detective."""


def finding(name: str, is_mafia: bool) -> str:
    """What an investigation has shown."""
    return f"{name} is Mafia." if is_mafia else f"{name} is not Mafia."


# ---------------------------------------------------------------------------------------- what is made known

LIVING = re.compile(r"^Living players: (?P<names>.*)$", re.MULTILINE)
CHOICES = re.compile(r"^Choices: (?P<names>.*)$", re.MULTILINE)
PARTNERS = re.compile(r"^The Mafia is: (?P<names>.*)$", re.MULTILINE)
NIGHT_FALLS = re.compile(r"\bNight \d+ falls\b")
ON_TRIAL = re.compile(r"\b(?P<name>\w+) is on trial\b")
DEATH = re.compile(rf"\b(?P<name>\w+) has died and was: (?P<role>{'|'.join(ROLES)})\b")
TELL_THEM = "Tell them: "
"""In the narrator's instructions: what follows is to be told."""
REPORT = "Report the finding"
"""In the narrator's instructions: what the detective is to learn is in the result of its tool."""


def death(name: str, role: Role) -> str:
    """How a death is made known."""
    return f"{name} has died and was: {role.name}."


def names_in(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    """The names of the last list of its kind in a text; none where there is no list."""
    lists = pattern.findall(text)
    return tuple(name for name in lists[-1].split(", ") if name) if lists else ()
