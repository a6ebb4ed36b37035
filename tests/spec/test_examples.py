"""The example payloads of `spec/examples` are what they claim to be."""

import json
from pathlib import Path
from typing import Any

import pytest
from spec_folder import SPEC, load_script

from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage

validate_samples = load_script("validate_samples")
VERDICTS = list(validate_samples.verdicts())
VALID = sorted((SPEC / "examples").glob("*.json"))


@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda verdict: verdict.name)
def test_an_example_gets_the_verdict_that_its_place_promises(verdict: Any) -> None:
    assert verdict.is_expected, str(verdict)


def test_there_is_a_valid_and_an_invalid_example_of_every_kind() -> None:
    types = {
        (path.name.partition("-")[0], json.loads(path.read_text(encoding="utf-8"))["msg_type"])
        for path in VALID
    }
    every = {"request", "response", "broadcast", "interrupt", "broadcast_complete"}
    assert types == {(kind, msg_type) for kind in ("message", "interswarm") for msg_type in every}
    assert {verdict.name.split("/")[1].partition("-")[0] for verdict in VERDICTS if "/" in verdict.name} == {
        "message",
        "interswarm",
    }


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.stem)
def test_a_valid_example_is_written_as_it_was_read(path: Path) -> None:
    given = json.loads(path.read_text(encoding="utf-8"))
    kind = MAILMessage if path.name.startswith("message") else MAILInterswarmMessage
    written = kind.model_validate(given).as_json()
    if "without-optional-fields" in path.stem:
        if kind is MAILMessage:
            given["message"]["routing_info"] = {}
        else:
            given |= {"auth_token": "", "metadata": {}}
    assert written == given


def test_the_read_me_lists_every_example() -> None:
    text = (SPEC / "examples" / "README.md").read_text(encoding="utf-8")
    missing = [verdict.name for verdict in VERDICTS if f"`{verdict.name}`" not in text]
    assert not missing


def test_the_script_fails_when_a_verdict_is_not_the_expected_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(validate_samples.verdicts, "__defaults__", (tmp_path,))
    assert validate_samples.main() == 1
    good = (SPEC / "examples" / "message-request.json").read_text(encoding="utf-8")
    (tmp_path / "message-good.json").write_text(good, encoding="utf-8")
    assert validate_samples.main() == 0
    (tmp_path / "invalid").mkdir()
    (tmp_path / "invalid" / "message-good.json").write_text(good, encoding="utf-8")
    assert validate_samples.main() == 1
    assert "✗ invalid/message-good.json: schema: valid; types: valid" in capsys.readouterr().out
