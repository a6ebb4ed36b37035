"""From the JSON Schema of a tool's arguments to a pydantic model that checks them.

Agents send JSON, so the types are exact: `"3"` is no integer, `true` is no number. What a schema says in keywords
that are not known here (`if`, `not`, `patternProperties`, …) is left unchecked rather than refused: the function
that gets the arguments is the last judge.
"""

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from keyword import iskeyword
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, create_model

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
    """The model, called `name`, of objects that a JSON Schema describes.

    A property that can't be an attribute's name gets another one, with the property's own as its alias.
    Properties that the schema doesn't name are kept, unless it forbids them.
    """
    return _Reader(schema.get("$defs", {})).model(name, schema, description)


class _Reader:
    """One schema being read; `definitions` are those that it refers to."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._known: dict[str, Any] = {}

    def model(self, name: str, schema: Mapping[str, Any], description: str | None) -> type[BaseModel]:
        required = set(schema.get("required", ()))
        fields: dict[str, Any] = {}
        for prop, value in schema.get("properties", {}).items():
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

    def type_of(self, schema: Mapping[str, Any], name: str) -> Any:
        if "$ref" in schema:
            return self._defined(str(schema["$ref"]).removeprefix("#/$defs/"))
        if "enum" in schema or "const" in schema:
            return _one_of(schema["enum"] if "enum" in schema else [schema["const"]])
        for keyword in ("anyOf", "oneOf"):
            if schema.get(keyword):
                return _union([self.type_of(option, name) for option in schema[keyword]])
        if len(schema.get("allOf", ())) == 1:
            return self.type_of(schema["allOf"][0], name)
        kinds = schema.get("type", ())
        if isinstance(kinds, str):
            kinds = [kinds]
        return _union([self.plain(kind, schema, name) for kind in kinds]) if kinds else Any

    def plain(self, kind: str, schema: Mapping[str, Any], name: str) -> Any:
        """The type of one value of the JSON type `kind`."""
        match kind:
            case "string":
                return Annotated[str, *_constraints(schema, kind), Strict(), *_pattern(schema)]
            case "integer":
                return Annotated[int, *_constraints(schema, kind), Strict(), BeforeValidator(_whole)]
            case "number":
                return Annotated[float, *_constraints(schema, kind), Strict()]
            case "boolean":
                return Annotated[bool, Strict()]
            case "null":
                return None
            case "array":
                items = schema.get("items", {})
                item = self.type_of(items, name) if isinstance(items, Mapping) else Any
                return Annotated[list[item], *_constraints(schema, kind), Strict()]  # type: ignore[valid-type]
            case "object" if "properties" in schema:
                return self.model(_class_name(name), schema, None)
            case "object":
                values = schema.get("additionalProperties")
                value = self.type_of(values, name) if isinstance(values, Mapping) else Any
                return dict[str, value]  # type: ignore[valid-type]
            case _:
                return Any

    def _defined(self, name: str) -> Any:
        """The type of a definition, read once; inside of itself it is not checked any further."""
        if name not in self._known:
            self._known[name] = Any
            schema = self._definitions.get(name)
            self._known[name] = self.type_of(schema, name) if isinstance(schema, Mapping) else Any
        return self._known[name]


def _attribute(prop: str, taken: Mapping[str, Any]) -> str:
    """The name of the attribute for a property: its own, where Python and pydantic allow it."""
    name = re.sub(r"\W", "_", prop).strip("_") or "field"
    if name[0].isdigit() or iskeyword(name) or name.startswith("model_") or hasattr(BaseModel, name):
        name = f"field_{name}"
    while name in taken:
        name += "_"
    return name


def _class_name(name: str) -> str:
    return "".join(part.capitalize() for part in re.split(r"\W|_", name)) or "Object"


def _union(options: Sequence[Any]) -> Any:
    return reduce(or_, options) if Any not in options else Any


def _one_of(values: Sequence[Any]) -> Any:
    """Exactly these values; unlike `==`, JSON tells 1 from true."""
    if values and all(value is None or isinstance(value, str | bool | int) for value in values):
        return Literal[*values]

    def check(value: Any) -> Any:
        if not any(type(value) is type(allowed) and value == allowed for allowed in values):
            raise ValueError(f"must be one of {list(values)}")
        return value

    return Annotated[Any, AfterValidator(check)]


def _constraints(schema: Mapping[str, Any], kind: str) -> list[Any]:
    known = _LENGTHS.get(kind, _BOUNDS)
    found = {known[keyword]: schema[keyword] for keyword in known if keyword in schema}
    return [Field(**found)] if found else []


def _pattern(schema: Mapping[str, Any]) -> list[Any]:
    """The check of a `pattern`, if it is one for Python too; JSON Schema's is another dialect."""
    try:
        expression = re.compile(schema.get("pattern", ""))
    except (re.error, TypeError):
        return []
    if not expression.pattern:
        return []

    def check(text: str) -> str:
        if expression.search(text) is None:
            raise ValueError(f"must match the pattern {expression.pattern!r}")
        return text

    return [AfterValidator(check)]


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 3.0 is the integer 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
