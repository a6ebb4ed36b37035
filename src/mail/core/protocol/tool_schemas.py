"""Declarations of tools for language models, in the style of either API, and models that validate tool arguments.

Programs written for MAIL also import from here what `calls` and `mail_tools` define.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from keyword import iskeyword
from operator import or_
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, Strict, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from mail.core.protocol.calls import AgentToolCall, ToolFormat
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.protocol.error_text import did_you_mean
from mail.core.protocol.mail_tools import (
    AcknowledgeBroadcast,
    AwaitMessage,
    DirectMessage,
    DiscoverSwarms,
    Help,
    IgnoreBroadcast,
    MAILTool,
    SendBroadcast,
    SendInterrupt,
    SendInterswarmBroadcast,
    SendRequest,
    SendResponse,
    TaskComplete,
    read_call,
    write_message,
)
from mail.core.protocol.message import MAILMessage
from mail.errors import ConfigurationError

__all__ = [
    "AgentToolCall",
    "ToolFormat",
    "convert_call_to_mail_message",
    "create_acknowledge_broadcast_tool",
    "create_await_message_tool",
    "create_broadcast_tool",
    "create_help_tool",
    "create_ignore_broadcast_tool",
    "create_interrupt_tool",
    "create_interswarm_broadcast_tool",
    "create_mail_tools",
    "create_request_tool",
    "create_response_tool",
    "create_supervisor_tools",
    "create_swarm_discovery_tool",
    "create_task_complete_tool",
    "declared_name",
    "pydantic_model_to_tool",
    "tool_declaration",
]


def pydantic_model_to_tool(
    model_cls: type[BaseModel],
    name: str | None = None,
    description: str | None = None,
    style: ToolFormat = "completions",
) -> dict[str, Any]:
    """Declare a tool whose arguments are the fields of a pydantic model.

    The name defaults to the class's name and the description to its docstring.
    """
    schema = inlined(model_cls.model_json_schema())
    schema.pop("title", None)
    described = schema.pop("description", "")
    for prop in schema.get("properties", {}).values():
        prop.pop("title", None)
    return tool_declaration(name or model_cls.__name__, description or described, schema, style)


def tool_declaration(
    name: str, description: str, parameters: dict[str, Any], style: ToolFormat
) -> dict[str, Any]:
    """Declare a tool in the style of an API."""
    function = {"name": name, "description": description, "parameters": inlined(parameters)}
    if style == "responses":
        return {"type": "function", **function, "strict": False}
    if style == "completions":
        return {"type": "function", "function": function}
    raise ValueError(f"style must be 'completions' or 'responses', not {style!r}")


def _declare(tool: type[MAILTool], style: ToolFormat) -> dict[str, Any]:
    return pydantic_model_to_tool(tool, name=tool.tool_name, style=style)


def _declare_message(
    tool: type[DirectMessage], targets: list[str], enable_interswarm: bool, style: ToolFormat
) -> dict[str, Any]:
    declaration = _declare(tool, style)
    parameters = declaration["parameters"] if style == "responses" else declaration["function"]["parameters"]
    target = parameters["properties"]["target"]
    if enable_interswarm:
        target["description"] += (
            f" Here: {', '.join(targets) or 'nobody'}. An agent of another swarm is written as agent@swarm."
        )
    elif targets:
        target["enum"] = list(targets)
    return declaration


def create_request_tool(
    targets: list[str], enable_interswarm: bool = False, style: ToolFormat = "completions"
) -> dict[str, Any]:
    """Declare `send_request` to `targets`, and to `agent@swarm` if interswarm is enabled."""
    return _declare_message(SendRequest, targets, enable_interswarm, style)


def create_response_tool(
    targets: list[str], enable_interswarm: bool = False, style: ToolFormat = "completions"
) -> dict[str, Any]:
    """Declare `send_response`; see `create_request_tool`."""
    return _declare_message(SendResponse, targets, enable_interswarm, style)


def create_interrupt_tool(
    targets: list[str], enable_interswarm: bool = False, style: ToolFormat = "completions"
) -> dict[str, Any]:
    """Declare `send_interrupt`; see `create_request_tool`."""
    return _declare_message(SendInterrupt, targets, enable_interswarm, style)


def create_interswarm_broadcast_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `send_interswarm_broadcast`."""
    return _declare(SendInterswarmBroadcast, style)


def create_swarm_discovery_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `discover_swarms`."""
    return _declare(DiscoverSwarms, style)


def create_broadcast_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `send_broadcast`."""
    return _declare(SendBroadcast, style)


def create_acknowledge_broadcast_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `acknowledge_broadcast`."""
    return _declare(AcknowledgeBroadcast, style)


def create_ignore_broadcast_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `ignore_broadcast`."""
    return _declare(IgnoreBroadcast, style)


def create_await_message_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `await_message`."""
    return _declare(AwaitMessage, style)


def create_help_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `help`."""
    return _declare(Help, style)


def create_task_complete_tool(style: ToolFormat = "completions") -> dict[str, Any]:
    """Declare `task_complete`."""
    return _declare(TaskComplete, style)


def declared_name(declaration: dict[str, Any]) -> str:
    """Return the name of a declared tool, in either style."""
    name: str = declaration.get("function", declaration)["name"]
    return name


def _without(declarations: list[dict[str, Any]], exclude_tools: Collection[str]) -> list[dict[str, Any]]:
    return [declaration for declaration in declarations if declared_name(declaration) not in exclude_tools]


def create_mail_tools(
    targets: list[str],
    enable_interswarm: bool = False,
    style: ToolFormat = "completions",
    exclude_tools: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Declare the tools of every agent: send requests and responses, handle broadcasts, wait, get help."""
    return _without(
        [
            create_request_tool(targets, enable_interswarm, style),
            create_response_tool(targets, enable_interswarm, style),
            create_acknowledge_broadcast_tool(style),
            create_ignore_broadcast_tool(style),
            create_await_message_tool(style),
            create_help_tool(style),
        ],
        exclude_tools,
    )


def create_supervisor_tools(
    targets: list[str],
    can_complete_tasks: bool = True,
    enable_interswarm: bool = False,
    style: ToolFormat = "completions",
    _debug_include_intraswarm: bool = True,
    exclude_tools: Collection[str] = (),
) -> list[dict[str, Any]]:
    """Declare the additional tools of supervisors: interrupt, broadcast, reach other swarms, complete the task."""
    declarations = []
    if _debug_include_intraswarm:
        declarations += [
            create_interrupt_tool(targets, enable_interswarm, style),
            create_broadcast_tool(style),
        ]
    if enable_interswarm:
        declarations += [create_interswarm_broadcast_tool(style), create_swarm_discovery_tool(style)]
    if can_complete_tasks:
        declarations.append(create_task_complete_tool(style))
    return _without(declarations, exclude_tools)


def convert_call_to_mail_message(
    call: AgentToolCall,
    sender: str,
    task_id: str,
    *,
    clock: Clock = SYSTEM_CLOCK,
    request_id: str | None = None,
) -> MAILMessage:
    """Return the message that a tool call of the agent `sender` sends.

    `request_id` is the id of the request that a response answers; without one the message gets a new id.
    Raises ToolCallFault for a tool that sends no message, or for invalid arguments.
    """
    return write_message(read_call(call), sender, task_id, clock, clock.now().isoformat(), request_id)


# ---------------------------------------------------------------------------- from JSON Schema to a model
#
# Agents send JSON, so the types are exact: "3" is not an integer, true is not a number. Unknown keywords (if, not,
# patternProperties, …) are not checked, as the function that receives the arguments decides; known keywords with
# invalid values are refused.

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
        root = _root(schema)
        return _Reader(schema.get("$defs", {})).model(name, root, description)
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
    target = schema.get("$defs", {}).get(str(schema["$ref"]).removeprefix("#/$defs/"))
    if not isinstance(target, Mapping) or "$ref" in target:
        raise _Flaw(f"$ref must name the definition of an object: {schema['$ref']!r}")
    return target


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """Replace a schema that refers to one of its own definitions, as pydantic makes of recursive models, by that one."""
    return {**_target(schema), "$defs": schema["$defs"]} if "$ref" in schema else schema


class _Reader:
    """Reader of one schema; `definitions` are those that it refers to."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
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
            return self._defined(str(schema["$ref"]).removeprefix("#/$defs/"))
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
                return Annotated[int, *_constraints(schema, kind, name), Strict(), BeforeValidator(_whole)]
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

    def _defined(self, name: str) -> Any:
        """Return the type of a definition; recursive references in it are not validated."""
        if name not in self._known:
            self._known[name] = Any
            schema = self._definitions.get(name)
            self._known[name] = self.type_of(schema, name) if isinstance(schema, Mapping) else Any
        return self._known[name]


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
    """Return the constraint for a `pattern`; none if Python can't compile it, as JSON Schema has another dialect."""
    pattern = schema.get("pattern", "")
    if not isinstance(pattern, str):
        raise _Flaw(f"{name}: pattern can't be {pattern!r}")
    try:
        expression = re.compile(pattern)
    except re.error:
        return []
    if not expression.pattern:
        return []

    def check(text: str) -> str:
        if expression.search(text) is None:
            raise ValueError(f"must match the pattern {expression.pattern!r}")
        return text

    return [AfterValidator(check)]


def _whole(value: Any) -> Any:
    """Return a whole float as int, as 3.0 is an integer in JSON."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
