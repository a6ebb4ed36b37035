"""The JSON Schema of swarms.json: as the code has it, and true of what is loaded."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from mail.errors import ConfigurationError
from mail.swarms_json import validate_swarm_from_swarms_json
from mail.swarms_json.schema import swarms_schema
from mail.swarms_json.specs import ActionSpec, AgentSpec, SwarmSpec

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "swarms-schema.json"

MINIMAL: dict[str, Any] = {
    "name": "s",
    "version": "1",
    "entrypoint": "boss",
    "agents": [{"name": "boss", "factory": "x:y", "enable_entrypoint": True, "can_complete_tasks": True}],
}


def complaints(swarm: Any) -> list[str]:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors([swarm])]


def test_the_file_is_what_the_code_says() -> None:
    written = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert written == swarms_schema(), "python -m mail.swarms_json.schema > docs/swarms-schema.json"
    jsonschema.Draft202012Validator.check_schema(written)


def test_the_packaged_swarms_are_valid() -> None:
    for swarm in json.loads((ROOT / "src/mail/examples/swarms.json").read_text(encoding="utf-8")):
        assert complaints(swarm) == []


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"entrypont": "boss"},
        {"name": "a:b"},
        {"agents": []},
        {"agents": [{"name": "boss"}]},
        {"actions": [{"name": "a", "parameters": []}]},
        {"task_message_limit": 0},
        {"keywords": "one"},
        {"public": 1},
    ],
)
def test_it_is_true(changes: dict[str, Any]) -> None:
    swarm = {**MINIMAL, **changes}
    try:
        validate_swarm_from_swarms_json(swarm)
    except ConfigurationError:
        assert complaints(swarm)
    else:
        assert complaints(swarm) == []


@pytest.mark.parametrize("entry", [ActionSpec, AgentSpec, SwarmSpec])
def test_every_field_is_described(entry: Any) -> None:
    assert [name for name, info in entry.model_fields.items() if not info.description] == []
