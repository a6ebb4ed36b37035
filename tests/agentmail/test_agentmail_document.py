"""docs/agentmail.md: its pieces run, its samples are strict messages with all fields, its tables are those of
the code.
"""

import re
from typing import Any

import pytest
from support.processes.document_samples import DOCS, blocks, run_in_order

from mail.agentmail import ACK_REQUIRED, BeadState, BeadStatus, Envelope, MessageType, Parser, Summary, build
from mail.agentmail.messages import CLASSES, TYPED, layout
from mail.agentmail.notation import never

pytestmark = pytest.mark.full

DOCUMENT = DOCS / "agentmail.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
SAMPLES = [text for _, text in blocks(DOCUMENT, "markdown")]


async def test_every_piece(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run_in_order(DOCUMENT, capsys) == 7


def test_a_sample_of_every_type() -> None:
    kinds = [Parser(strict=True).parse(sample).type for sample in SAMPLES]
    assert sorted(kinds) == sorted(TYPED)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.partition("\n")[0])
def test_each_sample_has_all_fields_and_is_what_is_built(sample: str) -> None:
    message = Parser(strict=True).parse(sample)
    assert all(message.parsed.model_dump().values())
    envelope = build(message.parsed)
    assert sample == f"Subject: {envelope.subject}\n\n{envelope.body}\n"


def test_the_table_of_types() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| `(\w+)` \| [\w, ]+ \| (yes|no) \|$", TEXT, re.MULTILINE)
    assert {kind for kind, _, _ in rows} == {kind.value for kind in TYPED}
    for kind, name, ack in rows:
        assert CLASSES[MessageType(kind)].__name__ == name
        assert (ack == "yes") == (MessageType(kind) in ACK_REQUIRED)


@pytest.mark.parametrize("kind", TYPED)
def test_every_field_is_named(kind: MessageType) -> None:
    for name in layout(CLASSES[kind]):
        assert f"`{name}`" in TEXT


def test_what_strict_messages_may_leave_out() -> None:
    table = TEXT.partition("| optional |")[2].partition("\n\n")[0]
    rows: dict[str, Any] = dict(re.findall(r"^\| ([A-Z_, ]+) \| (.*) \|$", table, re.MULTILINE))
    told = {kind: set(re.findall(r"`(\w+)`", cell)) for row, cell in rows.items() for kind in row.split(", ")}
    for kind, shape in CLASSES.items():
        empty = shape.model_construct(**{name: field.default for name, field in shape.model_fields.items()})
        optional = {
            name for name, place in layout(shape).items() if place.needed is never or not place.needed(empty)
        }
        optional |= set() if shape.names_bead else {"bead_id"}
        if kind is not MessageType.UNKNOWN:
            assert told.get(kind.value, set()) == optional


def test_every_field_of_envelopes_and_summaries() -> None:
    for shape in (Envelope, BeadStatus, Summary):
        for name in shape.model_fields:
            assert f"`{name}`" in TEXT, name


def test_every_state() -> None:
    section = TEXT.partition("| state | after |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == {state.value for state in BeadState}


def test_the_order_of_types_in_subjects() -> None:
    order = re.findall(r"[A-Z]+(?:_[A-Z]+)?", TEXT.partition("the first of")[2].partition("that occurs")[0])
    assert order == [kind.value for kind in TYPED]
