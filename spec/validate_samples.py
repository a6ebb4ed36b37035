"""Validate every example payload of this folder, with the JSON Schemas and with the types of `mail.core`.

    python spec/validate_samples.py

Prints a line per file. The exit code is 1 when a verdict is not the expected one: what lies in `examples/`
must pass both; what lies in `examples/invalid/` must fail both, except that a name with `.beyond-schema`
marks a fault that JSON Schema can't express and only the types find.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from jsonschema.exceptions import ValidationError as JsonSchemaError
from jsonschema.exceptions import best_match
from pydantic import BaseModel, TypeAdapter, ValidationError

from mail.core.protocol.error_text import explain
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage, Timestamp

FOLDER = Path(__file__).resolve().parent
EXAMPLES = FOLDER / "examples"

KINDS: dict[str, tuple[str, type[BaseModel]]] = {
    "message": ("MAIL-core.schema.json", MAILMessage),
    "interswarm": ("MAIL-interswarm.schema.json", MAILInterswarmMessage),
}
"""The first word of an example's name says what it is: the schema and the type for it."""


FORMATS = FormatChecker(["uuid"])
"""The formats of the schemas. jsonschema checks dates only if another package is installed, so our type does."""
FORMATS.checks("date-time", ValidationError)(
    lambda value: not isinstance(value, str) or bool(TypeAdapter(Timestamp).validate_python(value))
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in one file; a problem is None where there is none."""

    name: str
    schema_problem: str | None
    type_problem: str | None

    @property
    def is_expected(self) -> bool:
        """Whether the file is what its place and name say."""
        invalid = self.name.startswith("invalid/")
        for_schema = invalid and ".beyond-schema" not in self.name
        return (self.schema_problem is not None, self.type_problem is not None) == (for_schema, invalid)

    def __str__(self) -> str:
        problems = f"schema: {self.schema_problem or 'valid'}; types: {self.type_problem or 'valid'}"
        return f"{'✓' if self.is_expected else '✗'} {self.name}: {problems}"


def validator_for(kind: str) -> Draft202012Validator:
    """The validator for a kind of example; formats (uuid, date-time) are checked as well."""
    schema = json.loads((FOLDER / KINDS[kind][0]).read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=FORMATS)


def schema_problem(validator: Draft202012Validator, payload: Any) -> str | None:
    """What the schema has against a payload."""
    error = best_match(inner for error in validator.iter_errors(payload) for inner in _unfold(error))
    return f"{error.json_path}: {error.message}" if error else None


def _unfold(error: JsonSchemaError) -> list[JsonSchemaError]:
    """Of a payload that fits no shape, the errors of the one shape that its `msg_type` chooses."""
    if error.validator != "oneOf":
        return [error]
    others = {inner.schema_path[0] for inner in error.context or () if inner.validator == "const"}
    return [inner for inner in error.context or () if inner.schema_path[0] not in others]


def type_problem(kind: str, payload: Any) -> str | None:
    """What the types have against a payload."""
    try:
        KINDS[kind][1].model_validate(payload)
    except ValidationError as error:
        return explain(error)
    return None


def verdicts(examples: Path = EXAMPLES) -> Iterator[Verdict]:
    """A verdict for every JSON file below the folder, in order of their names."""
    validators = {kind: validator_for(kind) for kind in KINDS}
    for path in sorted(examples.rglob("*.json")):
        kind = path.name.partition("-")[0]
        payload = json.loads(path.read_text(encoding="utf-8"))
        yield Verdict(
            path.relative_to(examples).as_posix(),
            schema_problem(validators[kind], payload),
            type_problem(kind, payload),
        )


def main() -> int:
    """Print the verdicts; returns the exit code."""
    found = list(verdicts())
    for verdict in found:
        print(verdict)
    wrong = sum(not verdict.is_expected for verdict in found)
    print(f"{len(found)} examples, {wrong} not as expected")
    return 1 if wrong or not found else 0


if __name__ == "__main__":
    sys.exit(main())
