"""Texts of DynamoDB items: compressed with a dictionary that never changes, and plain ones where that is shorter."""

from hashlib import sha256

import pytest

from mail.adapters.aws.compression import DICTIONARIES, PRESENT, compress, decompress
from mail.adapters.aws.items import pack, unpack
from mail.errors import StoreUnavailable

STORED = {
    1: "0183c68c39eea83184460dd171020d4360233b275f47212afff06a60590a00",
    2: "0283c68c39eea83184460dd171020d4360433d275f47212afff06a60590a00",
}
"""A text as a version with each dictionary has stored it."""

TEXT = (
    '{"id":"7","timestamp":"2026-11-22T10:00:00+00:00","msg_type":"request","message":{"body":"hello, Zoë"}}'
)

DIGESTS = {
    1: "f9729f478d33dc71905130846d8c31f7b7e8574aa1c6593fcd117734bbb72594",
    2: "2f8ec8beb3a0a268538fba940595b452719976447a7e114f8750adab4ff84c74",
}


def test_dictionaries_never_change() -> None:
    """What was compressed with one can't be read with another."""
    assert {number: sha256(text).hexdigest() for number, text in DICTIONARIES.items()} == DIGESTS
    assert max(DICTIONARIES) == PRESENT


@pytest.mark.parametrize("number", sorted(DICTIONARIES))
def test_what_was_ever_stored_is_read(number: int) -> None:
    assert decompress(bytes.fromhex(STORED[number])) == TEXT


@pytest.mark.parametrize("text", [TEXT, "é" * 1000, "", "x", "\x00 \ud7ff", '{"a":1}' * 30_000])
def test_every_text_comes_back(text: str) -> None:
    item = pack({"state": {"S": text}, "status": {"S": text}})
    assert unpack(item["state"]) == text
    assert item["status"] == {"S": text}, "only texts are compressed"


def test_what_would_be_longer_is_left_as_it_is() -> None:
    assert compress("") is None
    assert pack({"message": {"S": "Qx7"}}) == {"message": {"S": "Qx7"}}


def test_a_text_that_is_stored_plainly_is_read() -> None:
    assert unpack({"S": TEXT}) == TEXT


def test_what_a_later_version_has_stored_is_refused() -> None:
    with pytest.raises(StoreUnavailable, match="later version"):
        decompress(bytes([PRESENT + 1]) + b"...")
