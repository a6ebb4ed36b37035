"""The JSON Schema of a task's answer: what it may be, and which answers fit it.

Schemas come from callers, and the answers from models, so both the time and the memory that a check takes are bounded:
a schema has `MAX_SCHEMA_BYTES` at most and refers to itself only, its patterns are those of Rust's `regex`, which takes
linear time, and a check that takes more than `MAX_STEPS` ends as a mismatch. `jsonschema` is imported when the first
schema is used.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any

from pydantic import PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from pydantic import ValidationError as InvalidObject
from pydantic_core import (
    PydanticSerializationError,
    SchemaError,
    ValidationError,
    from_json,
    to_json,
)

from mail.core.protocol.error_text import explain
from mail.core.protocol.json_schema import SHOWN_CHARACTERS, pattern_check, resolve, whole
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.question_text import shortened
from mail.errors import BadRequest, Subject, ToolCallFault

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError as Mismatch
    from jsonschema.protocols import Validator

OutputSchema = dict[str, Any]

MAX_SCHEMA_BYTES = 8_192
"""The size of a schema: it is stored in the task, which every turn writes."""

MAX_STEPS = 50_000
"""The number of keywords that one check may apply, so that no schema can occupy a server."""

SHOWN_MISMATCHES = 5

OUTPUT = "output"
"""The argument of `task_complete` that has the answer, in a task with a schema."""

_ONE = frozenset(
    {
        "additionalItems",
        "additionalProperties",
        "contains",
        "else",
        "if",
        "items",
        "not",
        "propertyNames",
        "then",
    }
)
_LIST = frozenset({"allOf", "anyOf", "items", "oneOf", "prefixItems"})
_MAP = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "properties"})
"""The keywords whose value is a schema, a list or an object of schemas."""

_UNSUPPORTED = (
    "$dynamicRef",
    "$recursiveRef",
    "patternProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
)
"""The keywords for which `jsonschema` takes steps that can't be counted, or uses Python's patterns."""


def schema_of(kind: Any) -> OutputSchema:
    """Return the schema of a type (a pydantic model, a dataclass, a `TypedDict`, `list[…]`, …), or the schema itself.

    Raises BadRequest if it has none, or one that `check_schema` refuses.
    """
    if isinstance(kind, Mapping):
        schema = dict(kind)
    elif isinstance(kind, str):  # pydantic would take it for the name of a type
        raise BadRequest(f"output_type {_short(repr(kind))} has no JSON Schema: it is text")
    else:
        try:
            schema = TypeAdapter(kind).json_schema()
        except (PydanticUserError, PydanticSchemaGenerationError, TypeError) as error:
            why = str(error).partition("\n")[0]
            raise BadRequest(f"output_type {_short(repr(kind))} has no JSON Schema: {why}") from error
    return check_schema(schema)


def check_schema(schema: Mapping[str, Any]) -> OutputSchema:
    """Return the schema as plain JSON values. Raises BadRequest if answers can't be checked by it."""
    try:
        text = to_json(schema, inf_nan_mode="constants")
    except PydanticSerializationError as error:
        raise BadRequest(f"output_schema is not JSON: {error}") from error
    except ValueError as error:
        raise BadRequest("output_schema is nested too deep") from error
    if len(text) > MAX_SCHEMA_BYTES:
        raise BadRequest(f"output_schema has {len(text)} bytes; at most {MAX_SCHEMA_BYTES} are allowed")
    try:
        plain: OutputSchema = from_json(text, allow_inf_nan=False)
    except ValueError as error:
        raise BadRequest(f"output_schema is not JSON: {error}") from error
    _check(text)
    return plain


@lru_cache(maxsize=64)
def _check(text: bytes) -> None:
    from jsonschema.exceptions import SchemaError as InvalidSchema

    schema = from_json(text)
    try:
        _validator_class(schema).check_schema(schema)
        _Walk(schema).visit(schema, "#")
    except InvalidSchema as error:
        where = "/".join(("#", *map(str, error.absolute_path)))
        raise BadRequest(
            f"output_schema is not a valid JSON Schema: at {where}: {_short(error.message)}"
        ) from error
    except RecursionError as error:
        raise BadRequest("output_schema is nested too deep") from error


class _Walk:
    """A visit to every part of a schema that could be applied."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._seen: set[int] = set()

    def visit(self, schema: Any, where: str) -> None:
        """Raise BadRequest for keywords that are not supported."""
        if not isinstance(schema, dict) or id(schema) in self._seen:
            return
        self._seen.add(id(schema))
        for keyword in _UNSUPPORTED:
            if keyword in schema:
                raise BadRequest(f"output_schema: {keyword} is not supported, at {where}")
        if "$id" in schema and schema is not self._root:
            raise BadRequest(f"output_schema: $id is not supported, at {where}")
        if (pattern := schema.get("pattern")) is not None:
            try:
                pattern_check(pattern)
            except SchemaError as error:
                raise BadRequest(
                    f"output_schema: the pattern {_short(repr(pattern))} is not supported, at {where}; patterns have "
                    "no look-around and no backreferences"
                ) from error
        if (ref := schema.get("$ref")) is not None:
            try:
                target = resolve(self._root, ref)
            except ValueError as error:
                raise BadRequest(f"output_schema: {error}, at {where}") from None
            self.visit(target, ref)
        for keyword, value in schema.items():
            at = f"{where}/{keyword}"
            if keyword in _ONE:
                self.visit(value, at)
            if keyword in _LIST and isinstance(value, list):
                for index, part in enumerate(value):
                    self.visit(part, f"{at}/{index}")
            if keyword in _MAP and isinstance(value, dict):
                for name, part in value.items():
                    self.visit(part, f"{at}/{name}")


def fit(schema: OutputSchema, text: str) -> str:
    """Return the answer that a model gave as JSON text, perhaps in a code block, as JSON.

    Raises ToolCallFault that says where it doesn't fit the schema.
    """
    try:
        value = from_json(_without_fence(text), allow_inf_nan=False)
    except ValueError as error:
        if not _mismatches(schema, text):  # a schema of plain text
            return to_json(text).decode()
        raise ToolCallFault(
            f"the answer must be JSON that fits the output schema: it is not JSON: {error}"
        ) from error
    found = _mismatches(schema, value)
    if found and isinstance(value, str):  # JSON text, quoted twice
        try:
            inner = from_json(value, allow_inf_nan=False)
        except ValueError:
            inner = value
        if not _mismatches(schema, inner):
            return to_json(inner).decode()
    if found:
        raise ToolCallFault(f"the answer doesn't fit the output schema: {'; '.join(found)}")
    return to_json(value).decode()


def written(arguments: Mapping[str, Any]) -> str:
    """Return the answer in the arguments of `task_complete`, as text: `output`, `finish_message`, or all of them."""
    if OUTPUT in arguments:
        return to_json(arguments[OUTPUT]).decode()
    message = arguments.get("finish_message")
    return message if isinstance(message, str) else to_json(arguments).decode()


def read_output(answer: MAILMessage) -> Any:
    """Return the value of a task's answer in JSON; None if the task has failed, or is paused.

    Only the answers of agents fit the task's schema.
    """
    is_agent = answer.sender.address_type == "agent"
    if not is_agent or answer.message.subject == Subject.BREAKPOINT_TOOL_CALL:
        return None
    try:
        return from_json(answer.message.body)
    except ValueError:  # another swarm's answer
        return None


def read_object(kind: Any, text: str) -> Any:
    """Return the answer `text` as an object of the type, or as plain values if `kind` is a schema.

    Raises ValueError if a validator of the type refuses it.
    """
    return from_json(text) if isinstance(kind, Mapping) else TypeAdapter(kind).validate_json(text)


def check_of(kind: Any) -> Callable[[str], None] | None:
    """Return the check of answers by the validators of a type; it raises ToolCallFault. None for a schema."""
    if kind is None or isinstance(kind, Mapping):
        return None
    adapter = TypeAdapter(kind)

    def check(answer: str) -> None:
        try:
            adapter.validate_json(answer)
        except InvalidObject as error:
            raise ToolCallFault(f"the answer doesn't fit the output type: {explain(error)}") from error

    return check


def answer_tool(schema: OutputSchema) -> dict[str, Any]:
    """Return the parameters of a `task_complete` whose argument `output` fits the schema.

    Definitions move to the root, as providers resolve references there.
    """
    inner = {
        name: value
        for name, value in schema.items()
        if name not in ("$schema", "$id", "$defs", "definitions")
    }
    definitions = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    return {
        "type": "object",
        "properties": {OUTPUT: _moved(inner)},
        "required": [OUTPUT],
        **{name: _moved(value) for name, value in definitions.items()},
    }


def _moved(part: Any) -> Any:
    """Return part of a schema with its references to the root changed to the argument."""
    if isinstance(part, list):
        return [_moved(item) for item in part]
    if not isinstance(part, dict):
        return part
    moved = {name: _moved(value) for name, value in part.items()}
    ref = part.get("$ref")
    if isinstance(ref, str) and not ref.startswith(("#/$defs/", "#/definitions/")):
        moved["$ref"] = f"#/properties/{OUTPUT}{ref[1:]}"
    return moved


def _without_fence(text: str) -> str:
    """Return the text without the Markdown code block around it, if there is one."""
    stripped = text.strip()
    if not (stripped.startswith("```") and stripped.endswith("```")):
        return stripped
    return stripped[3:-3].removeprefix("json").strip()


def _mismatches(schema: OutputSchema, value: Any) -> list[str]:
    """Return where a value doesn't fit; the first of many."""
    from jsonschema.exceptions import best_match
    from referencing import Registry

    checker = _validator_class(schema)(schema, registry=Registry())
    steps = _STEPS.set([MAX_STEPS])
    found: list[str] = []
    try:
        for error in checker.iter_errors(value):
            found.append(_describe(best_match([error]) or error))
            if len(found) == SHOWN_MISMATCHES:
                break
    except (_TooManyStepsError, RecursionError):
        found.append("it takes too long to check; make it smaller")
    finally:
        _STEPS.reset(steps)
    return found


def _describe(error: "Mismatch") -> str:
    return f"at {'/' + '/'.join(map(str, error.absolute_path))}: {_short(error.message)}"


def _short(text: str) -> str:
    return shortened(text, SHOWN_CHARACTERS)


# ------------------------------------------------------------------------------------ counting steps


class _TooManyStepsError(Exception):
    """A check has taken too many steps."""


_STEPS: ContextVar[list[int]] = ContextVar("_STEPS")
"""The steps left to the check that is running, in a list of one."""

_Keyword = Callable[["Validator", Any, Any, Any], "Iterator[Mismatch] | None"]


def _validator_class(schema: Any) -> Any:
    """Return the validator of the draft that a schema names, 2020-12 by default; it counts steps."""
    from jsonschema.validators import Draft202012Validator, validator_for

    return _counting(validator_for(schema, default=Draft202012Validator))


@cache
def _counting(base: Any) -> Any:
    from jsonschema.validators import extend

    keywords = {**base.VALIDATORS, "pattern": _check_pattern, "uniqueItems": _check_unique}
    build: Any = extend
    return build(base, {name: partial(_counted, keyword) for name, keyword in keywords.items()})


def _counted(
    keyword: _Keyword, validator: "Validator", value: Any, instance: Any, schema: Any
) -> "Iterator[Mismatch]":
    left = _STEPS.get(None)
    if left is not None:
        left[0] -= 1
        if left[0] < 0:
            raise _TooManyStepsError
    yield from keyword(validator, value, instance, schema) or ()


def _check_pattern(
    _validator: "Validator", pattern: str, instance: Any, _schema: Any
) -> "Iterator[Mismatch]":
    from jsonschema.exceptions import ValidationError as Mismatch

    if isinstance(instance, str):
        try:
            pattern_check(pattern).validate_python(instance)
        except ValidationError:
            yield Mismatch(f"{instance[:40]!r} does not match {pattern!r}")


def _check_unique(_validator: "Validator", unique: Any, instance: Any, _schema: Any) -> "Iterator[Mismatch]":
    """Compare the items by their JSON; `jsonschema` compares each with each."""
    from jsonschema.exceptions import ValidationError as Mismatch

    if unique and isinstance(instance, list):
        items = {json.dumps(_whole(item), sort_keys=True) for item in instance}
        if len(items) < len(instance):
            yield Mismatch(f"{len(instance)} items, of which {len(items)} are different")


def _whole(value: Any) -> Any:
    """Return a JSON value with its whole floats as integers, as 1.0 equals 1 in JSON Schema."""
    match value:
        case float():
            return whole(value)
        case list():
            return [_whole(item) for item in value]
        case dict():
            return {name: _whole(item) for name, item in value.items()}
    return value
