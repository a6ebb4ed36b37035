"""Lenient reading takes any text, in time linear in its length."""

import random
import string
from contextlib import suppress
from time import thread_time

import pytest
from support.plugins.tiers import sized

from mail.agentmail import AgentMailMessage, MalformedMessage, MessageType, Parser
from mail.agentmail.messages import CLASSES, layout

LENIENT, STRICT = Parser(), Parser(strict=True)

PIECES = [
    *(kind.value for kind in MessageType),
    *(f"{getattr(place, 'label', 'x')}:" for shape in CLASSES.values() for place in layout(shape).values()),
    *(
        f"## {getattr(place, 'header', 'Failure')}"
        for shape in CLASSES.values()
        for place in layout(shape).values()
    ),
    *(
        "Bead:",
        "Accepted bead:",
        "Issue:",
        "Subject:",
        "Body:",
        "[ol-1]",
        "ol-1.2:",
        "45%",
        "~45%",
        "PASS",
        "true",
    ),
    *(
        "\n",
        "\n",
        "\n",
        "\r\n",
        "\r",
        "- ",
        "* ",
        "##",
        "###",
        "\\",
        "\t",
        " ",
        ",",
        ":",
        "{",
        "}",
        "[",
        "]",
        '"',
    ),
    *(
        "\x00",
        "\x1c",
        "\x85",
        "\u2028",
        "\ud800",
        "\udc00",
        "\U0001f600",
        "é",
        "ſ",
        "٤٥%",
        "2026-01-31T08:00:00Z",
    ),
]


def scraps(generator: random.Random) -> str:
    return "".join(generator.choices(PIECES, k=generator.randrange(12)))


def noise(generator: random.Random) -> str:
    return "".join(generator.choices(string.printable + "\ud800\u0660", k=generator.randrange(60)))


def test_random_texts_do_not_raise() -> None:
    generator = random.Random(7)
    seen: dict[MessageType, int] = dict.fromkeys(MessageType, 0)
    for number in range(sized(fast=4_000, full=4_000, soak=1_000_000)):
        subject, body = (scraps if number % 4 else noise)(generator), scraps(generator)
        raw = {"subject": subject, "body": body} if number % 2 else f"Subject: {subject}\n{body}"
        message = LENIENT.parse(raw)
        seen[message.type] += 1
        if number % 20 == 0:
            assert AgentMailMessage.model_validate_json(message.model_dump_json()) == message
            with suppress(MalformedMessage):
                assert STRICT.parse(raw).parsed == message.parsed
    assert min(seen.values()) > 10


@pytest.mark.parametrize(
    "text", ["{" * 100_000, '{"a":' * 100_000, "[" * 100_000, '{"id": ' + "9" * 5000 + "}"]
)
def test_json_that_is_none(text: str) -> None:
    assert LENIENT.parse(text).type is MessageType.UNKNOWN


HOSTILE = {
    "blanks": " ",
    "tabs and bullets": "\t- ",
    "backslashes": "\\",
    "escaped headers": "\\##",
    "headers": "## Problem\n",
    "own labels": "Files touched:\n",
    "list": "- a, b\n",
    "hashes": "#",
    "brackets": "[",
    "words": "a-",
    "commas": ",",
    "lines": "\n",
    "almost labels": "- Accepted bead\n",
    "carriage returns": "\r",
}


def cost(text: str) -> float:
    """The least CPU time of a few runs, of all types and both places."""
    times = []
    for _ in range(3):
        start = thread_time()
        for kind in ("HELP_REQUEST", "PROGRESS", "HELP_RESPONSE"):
            LENIENT.parse({"subject": kind, "body": f"Files touched:\n{text}"})
        LENIENT.parse({"subject": text, "body": ""})
        times.append(thread_time() - start)
    return min(times)


@pytest.mark.full
@pytest.mark.parametrize("piece", HOSTILE.values(), ids=HOSTILE)
def test_a_long_body_costs_no_more_per_byte_than_a_short_one(piece: str) -> None:
    length, times = sized(fast=2**12, full=2**12, soak=2**16), 16
    small, large = (cost(piece * (size // len(piece))) for size in (length, times * length))
    assert large < times * 4 * small
