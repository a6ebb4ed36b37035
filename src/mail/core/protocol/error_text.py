"""Text of errors: suggestions for misspelt names, descriptions of invalid values, URLs without credentials."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of an error message, `. Did you mean 'x'?`, or nothing if no known name is similar."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=1)
    return f". Did you mean {close[0]!r}?" if close else ""


def explain(error: ValidationError) -> str:
    """Return one line that lists each invalid field with its error."""
    return "; ".join(
        f"{'.'.join(map(str, problem['loc'])) or 'value'}: {problem['msg']}"
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    )


def describe(
    error: ValidationError, model: type[BaseModel], names: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Return one line per problem: the key, and what to change. Values are not repeated; they may be secret.

    `names` maps keys to the names that the reader knows.
    """
    return "\n".join(f"{path}: {text}" if path else text for path, text in problems(error, model, names))


def problems(
    error: ValidationError, model: type[BaseModel], names: Mapping[str, str] = MappingProxyType({})
) -> list[tuple[str, str]]:
    """Return the problems that `describe` puts into lines: the path of each, and what to change."""
    return [
        _problem(
            problem["type"],
            [names.get(str(part), str(part)) for part in problem["loc"]],
            problem["msg"],
            model,
        )
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    ]


def _problem(kind: str, path: list[str], message: str, model: type[BaseModel]) -> tuple[str, str]:
    key = ".".join(path)
    if kind == "extra_forbidden":
        known = _keys(model, path[:-1])
        hint = did_you_mean(path[-1], known) or f"; known keys are {', '.join(known)}"
        return key, f"unknown key{hint}"
    if not key:
        return "", message
    return key, message.removeprefix("Value error, ")


def _keys(model: type[BaseModel], path: list[str]) -> list[str]:
    """Return the keys that are known at `path`, whose numbers are indexes of lists."""
    is_item = False
    for key in path:
        if is_item or key.isdecimal():
            is_item = False
            continue
        annotation = model.model_fields[key].annotation
        is_item = get_origin(annotation) is dict
        model = _model_in(annotation)
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel]:
    """Return the model in an annotation: itself, or a list or dictionary of it."""
    candidates = (annotation, *get_args(annotation))
    return next(found for found in candidates if isinstance(found, type) and issubclass(found, BaseModel))


def hide_credentials(url: str) -> str:
    """Return the URL of a database without user, password and options."""
    scheme, _, rest = url.partition("://")
    user, _, address = rest.rpartition("@")
    if "?" in user or "#" in user:  # the password is among the options, or not percent-encoded
        return f"{scheme}://…"
    return f"{scheme}://{address.partition('?')[0]}"


_DISTRIBUTIONS = {
    "litellm": "'litellm[mcp]'",
    "mcp_types": "mcp",
    "opentelemetry": "opentelemetry-sdk opentelemetry-exporter-otlp-proto-http",
    "prometheus_client": "prometheus-client",
    "psycopg": "'psycopg[binary]' psycopg-pool",
    "psycopg_pool": "'psycopg[binary]' psycopg-pool",
}
"""What pip installs for modules of another name, or that are of use only together."""


def missing_package(error: ImportError) -> str:
    """Return the name of the module that can't be imported, and the command that installs it."""
    module = error.name or str(error)
    package = module.partition(".")[0]
    return f"{module}: pip install {distribution_of(package)}"


def distribution_of(package: str) -> str:
    """Return what pip installs for a package."""
    return _DISTRIBUTIONS.get(package, package)
