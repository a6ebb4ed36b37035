"""Words and sentences of English texts, compared without a model."""

import re

STOP_WORDS = """a about an and are as at be but by can do does for from get had has have how i if in is it its me my
of on or our so that the their there they this to was we were what when where which who why will with you your"""


def words_of(text: str) -> list[str]:
    """Return the words that carry a text's meaning, in lower case and without their endings."""
    found = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)?|\d+(?:[.,]\d+)*", text.lower())
    return [
        re.sub(r"(?<=..)(ing|ed|es|s|e|y)$", "", word) for word in found if word not in STOP_WORDS.split()
    ]


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [found for each in re.split(r"(?<=[.!?])\s+|\n+", text) if (found := each.strip())]


def similarity(wanted: str, text: str) -> float:
    """Return the share of the words of `wanted` that a text has, from 0 to 1."""
    words = set(words_of(wanted))
    return len(words & set(words_of(text))) / len(words) if words else 0.0


def signs_in(text: str, signs: str) -> list[str]:
    """Return those of the words in `signs` that a text has."""
    words = set(words_of(text))
    return [sign for sign in signs.split() if not words.isdisjoint(words_of(sign))]
