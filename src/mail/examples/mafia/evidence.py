"""What a player can conclude from what it has heard."""

from collections import Counter
from collections.abc import Sequence
from hashlib import sha256

from mail.core.task.swarm import History
from mail.examples.mafia import phrases
from mail.examples.mafia.hearing import Heard, read_hearings
from mail.examples.mafia.phrases import NARRATOR, NOBODY
from mail.examples.mafia.roles import DETECTIVE, DOCTOR, MAFIA, ROLES, Role

ACCUSED_BY_DETECTIVE = 10
CLEARED_BY_DETECTIVE = -10
WANTED_TO_SPARE_MAFIA = 3
WANTED_TO_KILL_TOWN = 1
SUSPECTED = 1


class Evidence:
    """A player's view of the game.

    It holds nothing but what follows from the player's own history: what others were told in private is not there.

    Attributes:
        instructions: what it is to do now.
        living: who still plays, as far as it knows.
        partners: the members of the Mafia, for one of them.
        findings: what the narrator has told the detective in private; True for Mafia.
        revealed: the roles of the dead.
        claims: who was the first to claim a role in public, and so is believed.
        accused: who is on trial, or was last.
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

    # ---------------------------------------------------------------------------------------- to choose from

    @property
    def others(self) -> list[str]:
        """The living, without the player."""
        return [name for name in self.living if name != self.name]

    @property
    def choices(self) -> list[str]:
        """Whom the player may choose now."""
        return list(phrases.names_in(phrases.CHOICES, self.instructions)) or self.others

    def claimant(self, role: Role) -> str | None:
        """The living player who is believed to have this role."""
        name = self.claims.get(role)
        return name if name in self.living else None

    def is_exposed(self, name: str) -> bool:
        """Whether the detective has called this player Mafia."""
        return self.suspicions()[name] >= ACCUSED_BY_DETECTIVE

    def suspicions(self) -> Counter[str]:
        """How suspicious the living are, by what they and others have said and done in public."""
        scores = Counter({name: self._opinions[name] for name in self.others})
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
        """The most suspicious of these; where several are, chance decides, the same way each time."""
        scores = self.suspicions()
        return min(among, key=lambda name: (-scores[name], self._chance(name)), default=NOBODY)

    def any_of(self, among: Sequence[str]) -> str:
        """One of these by chance, the same each time."""
        return min(among, key=self._chance, default=NOBODY)

    def _chance(self, name: str) -> bytes:
        return sha256(f"{self._seed}/{self.name}/{len(self.heard)}/{name}".encode()).digest()

    # ------------------------------------------------------------------------------------------- tonight

    def proposals(self) -> list[str]:
        """Whom the rest of the Mafia has voted to kill tonight, the first vote first."""
        tonight: list[str] = []
        for heard in self.heard:
            if heard.sender == NARRATOR and phrases.NIGHT_FALLS.search(heard.text):
                tonight.clear()
            elif not heard.is_public and (vote := phrases.KILLS.search(heard.text)):
                tonight.append(vote["name"])
        return tonight

    # ------------------------------------------------------------------------------------------ to take in

    def _learn(self, heard: Heard) -> None:
        """The narrator has spoken; it does not lie."""
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
        """Another player has spoken; it may lie."""
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
