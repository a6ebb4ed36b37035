"""The evidence that a player has heard, and its conclusions.

In manual mode a step adds one user turn to its agent's history: the unread mail in `<public>` and `<private>`
sections, and then `<manual_step>` with the instructions. Mail that is too long for one turn comes in earlier turns.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256

from mail.core.protocol.xml import ENVELOPE, STEP, read_envelope
from mail.core.task.swarm import History
from mail.examples.mafia import phrases
from mail.examples.mafia.phrases import NARRATOR, NOBODY
from mail.examples.mafia.roles import DETECTIVE, DOCTOR, MAFIA, ROLES, Role
from mail.factories.rules import ReceivedMessage, received

ACCUSED_BY_DETECTIVE = 10
CLEARED_BY_DETECTIVE = -10
WANTED_TO_SPARE_MAFIA = 3
WANTED_TO_KILL_TOWN = 1
SUSPECTED = 1

_SECTION = re.compile("<(public|private)>")
_INSTRUCTIONS = re.compile("<instructions>(.*?)</instructions>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Heard:
    """A message, and whether everyone has received it."""

    message: ReceivedMessage
    is_public: bool

    @property
    def sender(self) -> str:
        """The name of the speaker."""
        return self.message.sender

    @property
    def text(self) -> str:
        return self.message.body


@dataclass(slots=True)
class Hearing:
    """The messages between two steps of the agent, oldest first, and its instructions for the second one."""

    heard: list[Heard] = field(default_factory=list)
    instructions: str = ""


def read_hearings(history: History) -> Iterator[Hearing]:
    """Iterate over an agent's history, oldest first; the last hearing is the one to act on now."""
    hearing = Hearing()
    for entry in history:
        if entry.get("role") == "user":
            _read(str(entry["content"]), hearing)
        elif hearing.heard or hearing.instructions:
            yield hearing
            hearing = Hearing()
    yield hearing


def _read(content: str, hearing: Hearing) -> None:
    section, end = "", 0
    for found in ENVELOPE.finditer(content):
        section = next(iter(_SECTION.findall(content, end, found.start())), section)
        hearing.heard.append(Heard(received(read_envelope(found, STEP)), section == "public"))
        end = found.end()
    if step := _INSTRUCTIONS.search(content, end):
        hearing.instructions = STEP.unescape(step[1])


class Evidence:
    """A player's view of the game, derived from its own history only.

    Attributes:
        instructions: the instructions for this step.
        living: the living players, as far as the player knows.
        partners: the members of the Mafia, for one of them.
        findings: the detective's results, by player; True for Mafia.
        revealed: the roles of the dead.
        claims: by role, the first player to claim it in public, who is believed.
        accused: the player on trial, or the last one.
    """

    def __init__(self, name: str, seed: int, history: History) -> None:
        hearings = list(read_hearings(history))
        self.name = name
        self.instructions = hearings[-1].instructions
        self.heard = [heard for hearing in hearings for heard in hearing.heard]
        self.revealed: dict[str, Role] = {}
        self.claims: dict[Role, str] = {}
        self.partners: tuple[str, ...] = (name,)
        self.findings: dict[str, bool] = {}
        self._opinions: Counter[str] = Counter()
        self._blamed: list[tuple[str, str]] = []
        self._spared: list[tuple[str, str]] = []
        self.accused = ""
        self._seed = seed
        for heard in self.heard:
            if heard.sender == NARRATOR:
                self._learn(heard)
            elif heard.is_public:
                self._listen(heard)
        texts = (*(heard.text for heard in self.heard), self.instructions)
        lists = [names for text in texts if (names := phrases.names_in(phrases.LIVING, text))]
        self.living = [name for name in (lists[-1] if lists else ()) if name not in self.revealed]

    # ---------------------------------------------------------------------------------------------- choices

    @property
    def rivals(self) -> list[str]:
        """The living players, without this one."""
        return [name for name in self.living if name != self.name]

    @property
    def choices(self) -> list[str]:
        """The players to choose from now."""
        return list(phrases.names_in(phrases.CHOICES, self.instructions)) or self.rivals

    def claimant(self, role: Role) -> str | None:
        """Return the living player who is believed to have this role."""
        name = self.claims.get(role)
        return name if name in self.living else None

    def is_exposed(self, name: str) -> bool:
        """Return whether the detective has named this player as Mafia."""
        return self.suspicions()[name] >= ACCUSED_BY_DETECTIVE

    def suspicions(self) -> Counter[str]:
        """Return how suspicious each living player is, by public statements and votes."""
        scores = Counter({name: self._opinions[name] for name in self.rivals})
        for voter, accused in self._spared:
            scores[voter] += WANTED_TO_SPARE_MAFIA * (self.revealed.get(accused) is MAFIA)
        for voter, accused in self._blamed:
            died_as = self.revealed.get(accused)
            scores[voter] += WANTED_TO_KILL_TOWN * (died_as is not None and died_as is not MAFIA)
        for role in (DETECTIVE, DOCTOR):
            if claimant := self.claimant(role):
                scores[claimant] += CLEARED_BY_DETECTIVE
        return scores

    def most_suspicious(self, among: Sequence[str]) -> str:
        """Return the most suspicious of these players; ties are broken by a fixed pseudo-random order."""
        scores = self.suspicions()
        return min(among, key=lambda name: (-scores[name], self._chance(name)), default=NOBODY)

    def any_of(self, among: Sequence[str]) -> str:
        """Return one of these players by a fixed pseudo-random order."""
        return min(among, key=self._chance, default=NOBODY)

    def _chance(self, name: str) -> bytes:
        return sha256(f"{self._seed}/{self.name}/{len(self.heard)}/{name}".encode()).digest()

    # ------------------------------------------------------------------------------------------- tonight

    def proposals(self) -> list[str]:
        """Return the victims that the rest of the Mafia has voted for tonight, first vote first."""
        tonight: list[str] = []
        for heard in self.heard:
            if heard.sender == NARRATOR and phrases.NIGHT_FALLS.search(heard.text):
                tonight.clear()
            elif not heard.is_public and (vote := phrases.KILLS.search(heard.text)):
                tonight.append(vote["name"])
        return tonight

    # ---------------------------------------------------------------------------------------------- reading

    def _learn(self, heard: Heard) -> None:
        """Learn from the narrator, who does not lie."""
        text = heard.text
        for death in phrases.DEATH.finditer(text):
            self.revealed[death["name"]] = ROLES[death["role"]]
        if trial := phrases.ON_TRIAL.search(text):
            self.accused = trial["name"]
        if not heard.is_public:
            self.partners = phrases.names_in(phrases.PARTNERS, text) or self.partners
            for finding in phrases.FINDING.finditer(text):
                self.findings[finding["name"]] = not finding["not"]

    def _listen(self, heard: Heard) -> None:
        """Listen to another player, who may lie."""
        text, sender = heard.text, heard.sender
        if claim := phrases.CLAIMS.search(text):
            self.claims.setdefault(ROLES[claim["role"]], sender)
        if self.claims.get(DETECTIVE) == sender:
            for finding in phrases.FINDING.finditer(text):
                self._opinions[finding["name"]] += (
                    CLEARED_BY_DETECTIVE if finding["not"] else ACCUSED_BY_DETECTIVE
                )
        for pattern in (phrases.SUSPECTS, phrases.NOMINATES):
            if named := pattern.search(text):
                self._opinions[named["name"]] += SUSPECTED
                self._blamed.append((sender, named["name"]))
        if vote := phrases.VOTES.search(text):
            ballots = self._blamed if vote["verdict"] == "guilty" else self._spared
            ballots.append((sender, self.accused))
