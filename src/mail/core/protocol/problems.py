"""What pydantic finds wrong with a file or with parameters, in words for whoever wrote them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from mail.core.protocol.suggest import did_you_mean


def describe(
    error: ValidationError, model: type[BaseModel], names: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return one line per problem: the key, and what to change. Values are not repeated; they may be secret.

    `names` are those of keys that the reader knows under another name.
    """
    return "\n".join(
        _problem(
            problem["type"],
            [names.get(str(part), str(part)) for part in problem["loc"]],
            problem["msg"],
            model,
        )
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    )


def _problem(kind: str, place: list[str], message: str, model: type[BaseModel]) -> str:
    key = ".".join(place)
    if kind == "extra_forbidden":
        known = _keys(model, place[:-1])
        hint = did_you_mean(place[-1], known) or f"; known keys are {', '.join(known)}"
        return f"{key}: there is no such key{hint}"
    if not key:
        return message
    return f"{key}: {message.removeprefix('Value error, ')}"


def _keys(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the keys that are known at `path`; numbers in it are places in lists."""
    for part in path:
        if not part.isdecimal():
            model = _model_in(model.model_fields[part].annotation)
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel]:
    """Return the model that an annotation is, or is a list of."""
    candidates = (annotation, *get_args(annotation))
    return next(found for found in candidates if isinstance(found, type) and issubclass(found, BaseModel))
