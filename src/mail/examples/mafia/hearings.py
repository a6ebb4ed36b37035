"""What an agent of the game has heard, read from its history.

In manual mode a step adds one user turn to its agent's history: the unread mail in `<public>` and `<private>`
sections, and then `<manual_step>` with the instructions. Mail that is too long for one turn comes in earlier turns.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from mail.core.protocol.xml import ENVELOPE, STEP, read_envelope
from mail.core.task.swarm import History
from mail.factories.rules import ReceivedMessage, received

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
