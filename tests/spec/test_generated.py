"""The generated files of `spec/` are what the code says, and say what the types check."""

import json
import os
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from protocol_samples import KINDS, address, envelope, envelopes
from pydantic import ValidationError
from spec_folder import SPEC, load_script
from support.processes import forkserver

from mail.core.protocol.message import MAILMessage

pytestmark = pytest.mark.full

generate = load_script("generate")


@pytest.mark.parametrize("name", generate.FILES)
def test_a_generated_file_is_what_the_code_says(name: str) -> None:
    assert (SPEC / name).read_text(encoding="utf-8") == generate.FILES[name](), (
        f"{name} has drifted; run: python spec/generate.py"
    )


def test_the_script_tells_a_file_that_has_drifted(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(generate, "FOLDER", tmp_path)
    monkeypatch.setattr(
        generate, "FILES", {"MAIL-core.schema.json": lambda: "{1}", "openapi.yaml": lambda: "2"}
    )
    assert generate.main(["--check"]) == 1
    assert generate.main([]) == 0
    assert generate.main(["--check"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(generate.FILES)
    (tmp_path / "MAIL-core.schema.json").write_text("{}")
    assert generate.main(["--check"]) == 1


@pytest.mark.soak
def test_the_script_runs_by_itself() -> None:
    done = forkserver.run([sys.executable, str(SPEC / "generate.py"), "--check"], env=dict(os.environ))
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize("name", ["MAIL-core.schema.json", "MAIL-interswarm.schema.json"])
def test_a_schema_is_valid_and_closed(name: str) -> None:
    schema = json.loads((SPEC / name).read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    assert all(definition["additionalProperties"] is False for definition in schema["$defs"].values())


def _core() -> Draft202012Validator:
    schema = json.loads((SPEC / "MAIL-core.schema.json").read_text(encoding="utf-8"))
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


core = _core()


@given(whole=envelopes())
def test_what_the_types_take_the_schema_takes(whole: dict[str, Any]) -> None:
    core.validate(whole)
    core.validate(MAILMessage.model_validate(whole).as_json())


json_values: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.just([]) | st.just({})
)


@given(
    whole=envelopes(),
    place=st.sampled_from([(), ("message",), ("message", "sender")]),
    field=st.sampled_from(
        [
            "id",
            "msg_type",
            "message",
            "task_id",
            "request_id",
            "broadcast_id",
            "interrupt_id",
            "sender",
            "recipient",
            "recipients",
            "subject",
            "body",
            "routing_info",
            "address",
            "address_type",
            "extra",
        ]
    ),
    value=json_values | st.sampled_from(KINDS) | st.just(address("agent:x")) | st.just([address("agent:x")]),
)
def test_schema_and_types_agree_on_what_is_wrong(
    whole: dict[str, Any], place: tuple[str, ...], field: str, value: Any
) -> None:
    changed = inner = json.loads(json.dumps(whole))
    for step in place:
        inner = inner[step]
    inner[field] = value
    try:
        MAILMessage.model_validate(changed)
    except ValidationError:
        assert not core.is_valid(changed)
    else:
        is_written_otherwise = place == ("message",) and field == "routing_info" and value is None
        assert core.is_valid(changed) is not is_written_otherwise


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("other", KINDS)
def test_the_schema_binds_the_shape_to_the_type(kind: str, other: str) -> None:
    mixed = envelope(kind) | {"msg_type": other}
    same_shape = envelope(kind)["message"].keys() == envelope(other)["message"].keys()
    assert core.is_valid(mixed) is same_shape
