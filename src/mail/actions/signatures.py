"""Signatures of functions as schemas: type hints, defaults and docstrings tell a model what a tool takes."""

import inspect
import re
import types
import warnings
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import field
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, PydanticJsonSchemaWarning
from pydantic_core import PydanticUndefined, SchemaError, SchemaValidator
from pydantic_core.core_schema import CoreSchema, StringSchema

from mail.core.protocol.json_schema import bounded_check
from mail.core.protocol.values import value
from mail.core.turns.context import ActionContext
from mail.errors import ConfigurationError

Parameter = inspect.Parameter

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)


SHOWN = "shown_pattern"
"""Metadata of the schema of a text: its pattern as it was given, which is checked in another way, or isn't."""


@value
class Signature:
    """The parameters of a function, those bound by `partial` left out.

    Attributes:
        context: the name of the parameter that takes the `ActionContext`, if any.
        deps: the type of the context's dependencies; Any if the annotation names none.
        parameters: all others, with evaluated annotations.
    """

    parameters: tuple[Parameter, ...]
    context: str | None = None
    deps: Any = Any

    @property
    def by_position(self) -> tuple[Parameter, ...]:
        """The parameters that can take an argument by position."""
        return tuple(parameter for parameter in self.parameters if parameter.kind in _BY_POSITION)

    @property
    def model(self) -> type[BaseModel] | None:
        """The pydantic model with which the first positional parameter is annotated: its fields are the arguments."""
        for first in self.by_position[:1]:
            if inspect.isclass(first.annotation) and issubclass(first.annotation, BaseModel):
                return first.annotation
        return None

    @property
    def takes_mapping(self) -> bool:
        """Whether the only positional parameter takes the arguments as a dictionary, or says nothing of its type."""
        match self.by_position:
            case (only,) if only.kind is not Parameter.VAR_POSITIONAL:
                kind = get_origin(only.annotation) or only.annotation
                return kind in (dict, Mapping, MutableMapping, Parameter.empty, Any)
        return False

    @property
    def is_typed(self) -> bool:
        """Whether each parameter is an argument, unlike in functions that take one model or one dictionary of all."""
        if len(self.by_position) == 1 and (self.model is not None or self.takes_mapping):
            others = (each for each in self.parameters if each.kind is Parameter.KEYWORD_ONLY)
            return any(each.default is Parameter.empty for each in others)
        return bool(self.parameters)


def signature_of(function: Callable[..., Any], namespace: Mapping[str, Any] | None = None) -> Signature:
    """Return the signature of a function; `namespace` has local names that its annotations may use.

    An annotation that can't be evaluated stays text.
    """
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a callable without a signature
        return Signature((Parameter("arguments", Parameter.POSITIONAL_ONLY),))
    hints = _type_hints(function, namespace)
    bound = getattr(function, "keywords", None) or {}  # of functools.partial
    context, deps, rest = None, Any, []
    for each in found:
        parameter = each.replace(annotation=hints.get(each.name, each.annotation))
        kind = get_origin(parameter.annotation) or parameter.annotation
        if kind is ActionContext:
            context, deps = parameter.name, next(iter(get_args(parameter.annotation)), Any)
        elif parameter.name not in bound:
            rest.append(parameter)
    return Signature(tuple(rest), context, deps)


def _type_hints(function: Any, namespace: Mapping[str, Any] | None) -> dict[str, Any]:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    try:
        return get_type_hints(function, localns=dict(namespace or {}), include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


# ----------------------------------------------------------------------------------------- typed functions


@value
class TypedArguments:
    """The arguments of a function whose parameters are typed.

    Attributes:
        model: validates the arguments; has one field per parameter, with the parameter's name as alias.
        description: the docstring without the descriptions of arguments.
    """

    model: type[BaseModel]
    description: str
    _fields: Mapping[str, Parameter] = field(default_factory=dict)

    def unpack(self, checked: BaseModel) -> tuple[list[Any], dict[str, Any]]:
        """Return validated arguments as those of a call, by position and by name."""
        args, kwargs = [], dict(checked.model_extra or {})
        for name, parameter in self._fields.items():
            if parameter.kind is Parameter.POSITIONAL_ONLY:
                args.append(getattr(checked, name))
            else:
                kwargs[parameter.name] = getattr(checked, name)
        return args, kwargs


def _bounded(schema: Any, engine: str | None = None) -> Any:
    """Return a core schema of pydantic whose patterns are checked by Rust's `regex`, or not at all.

    Python's `re` may take exponential time, in which the process does nothing else. `engine` is the configured one. A
    class whose schema changes is replaced by a subclass, as pydantic would use the validator that the class has.
    """
    if type(schema) in (list, tuple):
        return type(schema)(_bounded(part, engine) for part in schema)
    if not isinstance(schema, Mapping):  # one that is built on first use is no dictionary
        return schema
    if isinstance(schema.get("type"), str):
        engine = (schema.get("config") or {"regex_engine": engine, **schema}).get("regex_engine")
    bounded = {name: _bounded(part, engine) for name, part in schema.items()}
    pattern = schema.get("pattern") if schema.get("type") == "str" else None
    if pattern is not None:
        by_python = engine == "python-re" or isinstance(pattern, re.Pattern)
        text = _of_python(re.compile(pattern)) if by_python else pattern
        is_checked = bounded_check(text) is not None
        if by_python or not is_checked:
            shown = pattern.pattern if isinstance(pattern, re.Pattern) else pattern
            bounded["metadata"] = {**schema.get("metadata", {}), SHOWN: shown}
            bounded |= {"pattern": text, "regex_engine": "rust-regex"}
        if not is_checked:
            del bounded["pattern"]
    if schema.get("type") in ("model", "dataclass") and bounded != schema:
        bounded["cls"] = _subclass(schema["cls"])
    return bounded


def _of_python(pattern: re.Pattern[str]) -> str:
    """Return a pattern of Python for Rust, which doesn't know all flags. It has to match at the beginning."""
    flags = "".join(letter for letter in "aimsx" if pattern.flags & re.RegexFlag[letter.upper()])
    end = "\n" if pattern.flags & re.VERBOSE else ""  # of a comment
    return rf"\A(?{flags}:{pattern.pattern}{end})"


def _subclass(cls: type[Any]) -> type[Any]:
    """Return a subclass under the name of its class, whose validator is not built."""
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    options = {"defer_build": True} if issubclass(cls, BaseModel) else {}
    return types.new_class(cls.__name__, (cls,), options, lambda namespace: namespace.update(names))


def validator_of(model: type[BaseModel]) -> Callable[[Any], Any]:
    """Return the function that makes values of a model, and checks patterns as `_bounded` says."""
    schema = model.__pydantic_core_schema__
    bounded = _bounded(schema)
    return model.model_validate if bounded == schema else SchemaValidator(bounded).validate_python


class _Shown(GenerateJsonSchema):
    """Generator of JSON Schema that shows patterns as they were given."""

    def str_schema(self, schema: StringSchema) -> dict[str, Any]:
        pattern = schema.get("metadata", {}).get(SHOWN)
        return super().str_schema(schema) | ({} if pattern is None else {"pattern": pattern})


class _Arguments(BaseModel):
    """Base class of the arguments of functions. A pattern that can't be checked in bounded time isn't checked."""

    model_config = ConfigDict(extra="forbid", serialize_by_alias=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema: CoreSchema = _bounded(handler(source))
        return schema

    @classmethod
    def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, with all patterns."""
        return super().model_json_schema(*args, **{"schema_generator": _Shown, **options})


class _AnyArguments(_Arguments):
    """Arguments, and others with any name."""

    model_config = ConfigDict(extra="allow")


def typed_arguments(name: str, function: Callable[..., Any], signature: Signature) -> TypedArguments:
    """Return the arguments of the action `name`. Raises ConfigurationError for types without a JSON Schema."""
    where = f"action {name!r}"
    text, documented = read_docstring(function, {parameter.name for parameter in signature.parameters})
    fields: dict[str, Parameter] = {}
    definitions: dict[str, Any] = {}
    base = _Arguments
    for parameter in signature.parameters:
        if parameter.kind is Parameter.VAR_KEYWORD:
            base = _AnyArguments
            continue
        if parameter.kind is Parameter.VAR_POSITIONAL:
            raise ConfigurationError(f"{where}: agents can't use *{parameter.name}; take a list instead")
        if parameter.annotation is Parameter.empty:
            raise ConfigurationError(
                f"{where}: annotate its argument {parameter.name!r} with a type, or give a model or parameters"
            )
        if isinstance(parameter.annotation, str):
            raise ConfigurationError(
                f"{where}: the annotation {parameter.annotation!r} of {parameter.name!r} can't be evaluated; "
                "import its names outside of TYPE_CHECKING"
            )
        key = f"argument_{len(fields)}"
        fields[key] = parameter
        definitions[key] = _definition(parameter, documented.get(parameter.name))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PydanticJsonSchemaWarning)  # defaults that JSON can't express
            model = create_model("Arguments", __base__=base, **definitions)
            model.model_json_schema()
    except (PydanticUserError, SchemaError, TypeError) as error:
        problem = str(error).partition("\n")[0]
        raise ConfigurationError(f"{where}: its arguments have no JSON Schema: {problem}") from error
    return TypedArguments(model, text, fields)


def _definition(parameter: Parameter, documented: str | None) -> tuple[Any, Any]:
    """Return a field for a parameter: its type and its default."""
    annotation, default = parameter.annotation, parameter.default
    metadata = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    infos = [each for each in (*metadata, default) if isinstance(each, FieldInfo)]
    description = next((info.description for info in infos if info.description), None)
    if description is None:
        notes = [getattr(each, "documentation", each) for each in metadata]  # of typing.Doc
        description = next((note for note in notes if isinstance(note, str)), documented)
    described = Field(alias=parameter.name, description=description)
    if isinstance(default, FieldInfo):  # limit: int = Field(3, ge=1)
        annotation = Annotated[annotation, default]
        value = default.get_default(call_default_factory=False)
        default = Parameter.empty if value is PydanticUndefined else value
    missing = default is Parameter.empty
    return Annotated[annotation, described], ... if missing else default


# ---------------------------------------------------------------------------------------------- docstrings


def read_docstring(function: Callable[..., Any], names: set[str]) -> tuple[str, dict[str, str]]:
    """Return the docstring of a function and the descriptions of its parameters, cut out of it.

    Reads the styles of Google, NumPy and Sphinx; a docstring that describes no parameter stays as it is.
    """
    text = inspect.getdoc(function) or ""
    if "\n" not in text or not isinstance(function, types.FunctionType | types.MethodType):
        return text, {}
    from docstring_parser import ParseError, parse

    try:
        parsed = parse(text)
    except ParseError:
        return text, {}
    described = {
        name.strip(" *"): " ".join(each.description.split())
        for each in parsed.params
        if each.description
        for name in each.arg_name.split(",")
    }
    known = {name: description for name, description in described.items() if name in names}
    return ((parsed.description or "").strip(), known) if known else (text, {})
