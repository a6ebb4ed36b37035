"""docs/message-format.md: its messages are ones, and its tables leave nothing out."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

from support.processes.document_samples import DOCS, ROOT, blocks

from mail.core.protocol.address import AddressType
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import PAYLOAD_TYPES, MAILMessage
from mail.errors import Subject

DOCUMENT = DOCS / "message-format.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_messages_are_messages() -> None:
    message, wrapper = [json.loads(code) for _, code in blocks(DOCUMENT, "jsonc")]
    assert MAILMessage.model_validate(message).as_json() == message
    assert MAILInterswarmMessage.model_validate(wrapper).as_json() == wrapper
    assert len(wrapper) == 10


def test_nothing_is_left_out() -> None:
    fields: set[str] = set(MAILMessage.model_fields)
    for kind, payload in PAYLOAD_TYPES.items():
        assert f"| `{kind}` | `{payload.__name__}`" in TEXT
        fields |= set(payload.model_fields)
    names: list[Any] = [*fields, *get_args(AddressType), *[subject.value for subject in Subject]]
    for name in names:
        assert f"`{name}`" in TEXT, name


def test_the_samples_of_the_protocol_are_valid(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "spec" / "validate_samples.py")]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
