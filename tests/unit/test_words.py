"""The vocabulary of the code: names are the field's standard terms (docs/contributing.md, Words)."""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src"
READ_BY_PEOPLE = ("src", "tests", "chaos", "bench", "scripts")
HOLD_THEM = ("test_words.py", "test_prose.py")
"""The tests that name the words which nobody is to use."""

WORDS = [
    "Announcements",
    "Appeal",
    "Bell",
    "CROWD",
    "Contact",
    "DeliveryEnd",
    "DeliveryTurn",
    "Desk",
    "Doing",
    "Engine",
    "FAREWELL_SECONDS",
    "Hold",
    "HotTask",
    "Lane",
    "LONGEST_REST",
    "Leased",
    "MomentNotKept",
    "NO_PINGS_OF_ITS_OWN",
    "News",
    "Offer",
    "PATIENCE",
    "PeerBook",
    "QuotaGuard",
    "Quotas",
    "Record",
    "RollCall",
    "ServedSwarm",
    "Shorten",
    "Stamp",
    "Toolbox",
    "TurnDesk",
    "Verbs",
    "Watched",
    "Writing",
    "_write_abroad",
    "along",
    "asker",
    "bury",
    "carry_out",
    "contacts",
    "exhaust",
    "finisher",
    "for_swarm",
    "give_back",
    "give_up",
    "lapse",
    "lends",
    "letters",
    "meet",
    "moments",
    "observing",
    "parts",
    "places",
    "quotas",
    "rests_until",
    "roll_call",
    "shortener",
    "stamp",
    "toolbox",
    "troubles",
    "unheard",
]
"""Names that this project used to have for things that have a standard one."""

FOREIGN = {"mail/http/a2a": "parts", "mail/http/agui": "parts", "mail/net": "parts"}
"""What a protocol calls a thing, in the folder that speaks it."""

PHRASES = ("whoever", "anew", "of old", "is told", "are told", "goes on", "whose key", "is no such")
"""Words that a native technical writer would not use in a reference."""


def names(text: str) -> Iterator[tuple[int, str]]:
    """Every identifier in Python code, and every word between backticks, with its line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.NAME:
            yield token.start[0], token.string
        elif token.type in (tokenize.STRING, tokenize.COMMENT):
            for quoted in re.findall(r"`[^`\n]+`", token.string):
                for word in re.findall(r"\w+", quoted):
                    yield token.start[0], word


def test_names_are_standard_terms() -> None:
    found = [
        f"{path.relative_to(SRC)}:{line}: {name}"
        for path in sorted(SRC.rglob("*.py"))
        for line, name in names(path.read_text(encoding="utf-8"))
        if name in WORDS and FOREIGN.get(path.parent.relative_to(SRC).as_posix()) != name
    ]
    assert found == []


def test_prose_is_plain_english() -> None:
    pattern = re.compile(rf"\b({'|'.join(PHRASES)})\b", re.IGNORECASE)
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for folder in READ_BY_PEOPLE
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".py", ".js", ".html") and path.is_file() and path.name not in HOLD_THEM
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert found == []
