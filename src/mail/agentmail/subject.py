"""Subjects: `TYPE`, `[bead] TYPE` or `bead: TYPE`.

Lenient parsing returns the first type in order of precedence that occurs anywhere in the subject, so that "ABANDONED" is
`DONE`. Exact parsing requires that only the type follows the bead.
"""

import re

from mail.agentmail.kinds import TYPED, MessageType

_WORDS = [(kind, re.compile(kind.value, re.IGNORECASE | re.ASCII)) for kind in TYPED]
_BEAD = re.compile(r"\s*+(?:\[([^\[\]\n]++)\]|([A-Za-z0-9_.]++-[A-Za-z0-9_.-]++):)\s*+")
_BY_NAME = {kind.value: kind for kind in TYPED}


def bead_of(subject: str) -> str:
    """Return the bead at the start of a subject, or the empty string.

    Before a colon, only an id with a hyphen counts, so that "Re: DONE" names no bead.
    """
    found = _BEAD.match(subject)
    return (found[1] or found[2]).strip() if found else ""


def type_of(subject: str) -> MessageType:
    """Return the type that occurs in the subject, in any case, even inside a word."""
    for kind, word in _WORDS:
        if word.search(subject):
            return kind
    return MessageType.UNKNOWN


def exact_type_of(subject: str) -> MessageType:
    """Return the type if the subject contains nothing else but a bead before it; in any case."""
    found = _BEAD.match(subject)
    word = subject[found.end() :] if found else subject
    return _BY_NAME.get(word.strip().upper(), MessageType.UNKNOWN) if word.isascii() else MessageType.UNKNOWN


def write_subject(kind: MessageType, bead_id: str) -> str:
    """Return the subject of a message of this type, without the bead if its id would be read as another type."""
    subject = f"[{bead_id}] {kind}" if bead_id else kind.value
    return subject if type_of(subject) is kind else kind.value


def possible_subjects(kind: MessageType, bead_id: str) -> tuple[str, ...]:
    """Return all subjects of a message of this type that may be about the bead, the shortest first."""
    return (kind.value, f"[{bead_id}] {kind}", f"{bead_id}: {kind}") if bead_id else (kind.value,)
