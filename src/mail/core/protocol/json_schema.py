"""JSON Schema: what a reference in it names, and the pydantic model of the objects that it describes.

Agents send JSON, so the types of a model are exact: "3" is not an integer, true is not a number. Unknown keywords
(if, not, patternProperties, …) are not checked, as the function that receives the arguments decides; known keywords
with invalid values are refused. `output_schema` checks answers by the whole of JSON Schema.
"""

import json
import logging
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache, reduce
from keyword import iskeyword
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError, SchemaValidator, core_schema

from mail.core.protocol.error_text import did_you_mean
from mail.errors import ConfigurationError

logger = logging.getLogger(__name__)

SHOWN_CHARACTERS = 200
"""Characters of a reference that errors show."""


def resolve(root: Any, ref: str) -> Any:
    """Return the part of a schema that a reference such as `#/$defs/Name` names.

    Raises ValueError if it names nothing there, or something that is no schema.
    """
    shown = repr(ref if len(ref) <= SHOWN_CHARACTERS else f"{ref[:SHOWN_CHARACTERS]}…")
    if ref != "#" and not ref.startswith("#/"):
        raise ValueError(f"$ref may only refer to the schema itself, such as '#/$defs/Name', not to {shown}")
    target = root
    for part in ref.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        try:
            target = target[int(name)] if isinstance(target, list) else target[name]
        except (KeyError, IndexError, TypeError, ValueError):
            raise ValueError(f"there is no {shown}") from None
    if not isinstance(target, Mapping | bool):
        raise ValueError(f"{shown} is not a schema")
    return target


def whole(value: Any) -> Any:
    """Return a whole float as int, as 3.0 is an integer in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_TYPES = ("string", "integer", "number", "boolean", "null", "array", "object")

_BOUNDS = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_LENGTHS = {
    "string": {"minLength": "min_length", "maxLength": "max_length"},
    "array": {"minItems": "min_length", "maxItems": "max_length"},
}


def model_of(name: str, schema: Mapping[str, Any], *, description: str | None = None) -> type[BaseModel]:
    """Return a model, called `name`, of the objects that a JSON Schema describes.

    A property that can't be an attribute's name gets another name, and its own as alias. Properties not in the
    schema are kept, unless it forbids them.

    Raises ConfigurationError for anything but the JSON Schema of an object.
    """
    try:
        return _Reader(schema).model(name, _root(schema), description)
    except (_Flaw, PydanticUserError, SchemaError, TypeError, ValueError) as flaw:
        raise ConfigurationError(
            f"the parameters of {name!r} must be a JSON Schema of type 'object': {flaw}"
        ) from flaw
    except RecursionError as error:
        raise ConfigurationError(f"the parameters of {name!r} are nested too deep") from error


class _Flaw(ConfigurationError):
    """An error in a schema."""


def _root(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of the object itself, which may be one of its own definitions."""
    if not isinstance(schema, Mapping):
        raise _Flaw(f"{schema!r} is not an object")
    if not isinstance(schema.get("$defs", {}), Mapping):
        raise _Flaw("$defs must be an object")
    if "$ref" in schema:
        schema = _target(schema)
    kind = schema.get("type", "object")
    if kind != "object":
        raise _Flaw(f"its type is {kind!r}")
    return schema


def _target(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the definition that a schema's own reference names."""
    try:
        target = resolve(schema, str(schema["$ref"]))
    except ValueError:
        target = None
    if not isinstance(target, Mapping) or "$ref" in target:
        raise _Flaw(f"$ref must name the definition of an object: {schema['$ref']!r}")
    return target


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace a schema that refers to its own definition, as pydantic's for recursive models do, by that one."""
    return {**_target(schema), "$defs": schema["$defs"]} if "$ref" in schema else schema


class _Reader:
    """Reader of one schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._known: dict[str, Any] = {}

    def model(self, name: str, schema: Mapping[str, Any], description: str | None) -> type[BaseModel]:
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            raise _Flaw(f"properties must be an object, not {properties!r}")
        required = schema.get("required", [])
        if not _is_list_of(required, str):
            raise _Flaw(f"required must be a list of names, not {required!r}")
        fields: dict[str, Any] = {}
        undescribed: dict[str, Any] = {prop: {} for prop in required if prop not in properties}
        for prop, value in {**properties, **undescribed}.items():
            if not isinstance(value, Mapping | bool):
                raise _Flaw(f"property {prop!r} must have a schema, an object, not {value!r}")
            described = value if isinstance(value, Mapping) else {}
            fields[_attribute(prop, fields)] = (
                self.type_of(described, prop),
                Field(
                    default=... if prop in required else described.get("default"),
                    alias=prop,
                    description=described.get("description"),
                ),
            )
        closed = schema.get("additionalProperties") is False
        model: type[BaseModel] = create_model(
            name,
            __config__=ConfigDict(extra="forbid" if closed else "allow", serialize_by_alias=True),
            __doc__=description if description is not None else schema.get("description"),
            **fields,
        )
        return model

    def type_of(self, schema: Mapping[str, Any] | bool, name: str) -> Any:
        """Return the type of the values that a schema allows; `name` is its position, for error messages."""
        if isinstance(schema, bool):
            return Any
        if "$ref" in schema:
            return self._defined(str(schema["$ref"]))
        if "enum" in schema or "const" in schema:
            values = schema["enum"] if "enum" in schema else [schema["const"]]
            if not _is_list_of(values, object) or not values:
                raise _Flaw(f"{name}: enum must be a list of values, not {values!r}")
            return _one_of(values)
        for keyword in ("anyOf", "oneOf", "allOf"):
            if keyword in schema and not (_is_list_of(schema[keyword], Mapping | bool) and schema[keyword]):
                raise _Flaw(f"{name}: {keyword} must be a list of schemas, not {schema[keyword]!r}")
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                return _union([self.type_of(option, name) for option in schema[keyword]])
        if len(schema.get("allOf", ())) == 1:
            return self.type_of(schema["allOf"][0], name)
        kinds = schema.get("type", ())
        if isinstance(kinds, str):
            kinds = [kinds]
        for kind in kinds:
            if kind not in _TYPES:
                raise _Flaw(f"{name}: unknown type {kind!r}{did_you_mean(str(kind), _TYPES)}")
        return _union([self.plain(kind, schema, name) for kind in kinds]) if kinds else Any

    def plain(self, kind: str, schema: Mapping[str, Any], name: str) -> Any:
        """Return the type of values of the JSON type `kind`."""
        match kind:
            case "string":
                return Annotated[str, *_constraints(schema, kind, name), Strict(), *_pattern(schema, name)]
            case "integer":
                return Annotated[int, *_constraints(schema, kind, name), Strict(), BeforeValidator(whole)]
            case "number":
                return Annotated[float, *_constraints(schema, kind, name), Strict()]
            case "boolean":
                return Annotated[bool, Strict()]
            case "null":
                return None
            case "array":
                items = schema.get("items", {})
                item = self.type_of(items, name) if isinstance(items, Mapping) else Any
                return Annotated[list[item], *_constraints(schema, kind, name), Strict()]  # type: ignore[valid-type]
            case "object" if "properties" in schema:
                return self.model(_class_name(name), schema, None)
            case "object":
                values = schema.get("additionalProperties")
                value = self.type_of(values, name) if isinstance(values, Mapping) else Any
                return dict[str, value]  # type: ignore[valid-type]
            case _:
                return Any

    def _defined(self, ref: str) -> Any:
        """Return the type of what a reference names; recursive references in it are not validated."""
        if ref not in self._known:
            self._known[ref] = Any
            try:
                schema = resolve(self._root, ref)
            except ValueError:  # of another document, or of nothing
                schema = True
            self._known[ref] = (
                self.type_of(schema, ref.rpartition("/")[2]) if isinstance(schema, Mapping) else Any
            )
        return self._known[ref]


def _attribute(prop: str, taken: Mapping[str, Any]) -> str:
    """Return the attribute name for a property: its own name if Python and pydantic allow it."""
    name = re.sub(r"\W", "_", prop).strip("_") or "field"
    if name[0].isdigit() or iskeyword(name) or name.startswith("model_") or hasattr(BaseModel, name):
        name = f"field_{name}"
    while name in taken:
        name += "_"
    return name


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in re.split(r"\W|_", name)) or "Object"


def _is_list_of(value: Any, kind: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, kind) for item in value)


def _union(options: Sequence[Any]) -> Any:
    return reduce(or_, options) if Any not in options else Any


def _one_of(values: Sequence[Any]) -> Any:
    """Return the type of exactly these values; unlike `==`, JSON distinguishes 1 from true."""
    if all(value is None or isinstance(value, str) for value in values):
        return Literal[*values]
    allowed = {_as_json(value) for value in values}

    def check(value: Any) -> Any:
        if _as_json(value) not in allowed:
            raise ValueError(f"must be one of {list(values)}")
        return value

    if all(value is None or isinstance(value, str | bool | int) for value in values):
        return Annotated[Literal[*values], BeforeValidator(check)]
    return Annotated[Any, AfterValidator(check)]


def _as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _constraints(schema: Mapping[str, Any], kind: str, name: str) -> list[Any]:
    known = _LENGTHS.get(kind, _BOUNDS)
    found: dict[str, Any] = {}
    for keyword in known.keys() & schema.keys():
        value = schema[keyword]
        is_number = isinstance(value, int if kind in _LENGTHS else int | float) and not isinstance(
            value, bool
        )
        if not is_number or (keyword == "multipleOf" and value <= 0) or (kind in _LENGTHS and value < 0):
            raise _Flaw(f"{name}: {keyword} can't be {value!r}")
        found[known[keyword]] = value
    return [Field(**found)] if found else []


def _pattern(schema: Mapping[str, Any], name: str) -> list[Any]:
    """Return the constraint for a `pattern`; none if it can't be checked in bounded time."""
    pattern = schema.get("pattern", "")
    if not isinstance(pattern, str):
        raise _Flaw(f"{name}: pattern can't be {pattern!r}")
    checker = bounded_check(pattern)
    if not pattern or checker is None:
        return []

    def check(text: str) -> str:
        if not checker.isinstance_python(text):
            raise ValueError(f"must match the pattern {pattern!r}")
        return text

    return [AfterValidator(check)]


@lru_cache(maxsize=256)
def bounded_check(pattern: str) -> SchemaValidator | None:
    """Return the check of a pattern. If there is none, warn once."""
    try:
        return pattern_check(pattern)
    except SchemaError:
        logger.warning(
            "values aren't checked against the pattern %.200r: it needs look-around, a backreference or too much "
            "memory",
            pattern,
        )
        return None


@lru_cache(maxsize=256)
def pattern_check(pattern: str) -> SchemaValidator:
    """Return the check of texts against a pattern, by Rust's `regex`, whose time grows linearly with the text.

    Raises SchemaError for what that doesn't support: look-around, backreferences, and patterns too large to compile.
    """
    return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
