"""docs/guards.md: its policy is one, and its numbers hold."""

import json
import re
from pathlib import Path

from support.processes.document_samples import DOCS, blocks

from mail.core.task.guards import GUARD_SECONDS, MAX_GUARDS
from mail.core.task.limits import FAULTS_IN_A_ROW
from mail.stdlib import guards
from mail.stdlib.guards import policy
from mail.swarms_json.specs import GuardSpec

DOCUMENT = DOCS / "guards.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def test_the_policy_and_the_entries(tmp_path: Path) -> None:
    ((_, text),) = blocks(DOCUMENT, "toml")
    (tmp_path / "policy.toml").write_text(text)
    assert policy(tmp_path / "policy.toml").name == "policy"
    ((_, entry),) = blocks(DOCUMENT, "jsonc")
    for each in json.loads(f"{{{entry}}}")["guards"][1:]:
        spec = GuardSpec.model_validate(each)
        assert hasattr(guards, spec.factory.rpartition(":")[2])


def test_every_number() -> None:
    assert f"`timeout` of {GUARD_SECONDS:.0f} seconds" in TEXT
    assert f"at most {MAX_GUARDS}" in TEXT
    assert FAULTS_IN_A_ROW == 5
    assert "five turns with refusals" in TEXT
    assert guards.QUOTED == 12
    assert {*re.findall(r"^\| `(\w+)\(", TEXT, re.MULTILINE)} == {
        "max_length",
        "no_secrets",
        "policy",
        "judge",
    } | {
        "Replace",
        "Refuse",
        "AskPerson",
    }
