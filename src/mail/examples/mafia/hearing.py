"""What an agent of the game has heard: its history in manual mode, read.

A step brings its agent one user turn: the mail that waited, in `<public>` and `<private>` sections, and then
`<manual_step>` with the instructions. Mail that was too much for one turn came in turns of its own before.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.etree import ElementTree

from mail.core.task.swarm import History
from mail.examples.rule_based.reading import Letter, read_letter


@dataclass(frozen=True, slots=True)
class Heard:
    """A message, and whether everyone has heard it."""

    letter: Letter
    is_public: bool

    @property
    def sender(self) -> str:
        """Who has said it."""
        return self.letter.sender

    @property
    def text(self) -> str:
        """What was said."""
        return self.letter.body


@dataclass(slots=True)
class Hearing:
    """What was heard between two things that the agent did, oldest first, and what it was told to do then."""

    heard: list[Heard] = field(default_factory=list)
    instructions: str = ""


def read_hearings(history: History) -> Iterator[Hearing]:
    """All that an agent has heard, oldest first; the last hearing is what it is to act on now."""
    hearing = Hearing()
    for entry in history:
        if entry.get("role") == "user":
            _read(str(entry["content"]), hearing)
        elif hearing.heard or hearing.instructions:
            yield hearing
            hearing = Hearing()
    yield hearing


def _read(content: str, hearing: Hearing) -> None:
    for section in ElementTree.fromstring(f"<turn>{content}</turn>"):  # noqa: S314 - the engine wrote it
        if section.tag == "manual_step":
            hearing.instructions = section.findtext("instructions", "")
        for message in section.iterfind("incoming_message"):
            message.tail = None
            letter = read_letter(ElementTree.tostring(message, encoding="unicode"))
            hearing.heard.append(Heard(letter, section.tag == "public"))
