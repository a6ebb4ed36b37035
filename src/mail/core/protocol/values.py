"""The base class of values on the wire: frozen, without unknown fields, readable by subscript."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict


class Value(BaseModel):
    """A frozen value, validated where it enters the system and trusted from then on.

    Fields can be read as attributes or, as programs written for MAIL's typed dictionaries do, by
    subscript: ``response["message"]["body"]``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __getitem__(self, field: str) -> Any:
        if field in type(self).model_fields:
            return getattr(self, field)
        raise KeyError(field)

    def __contains__(self, field: object) -> bool:
        return field in type(self).model_fields

    def get(self, field: str, default: Any = None) -> Any:
        """Return the field's value, or `default` for an unknown field, like `dict.get`."""
        return self[field] if field in self else default

    def items(self) -> Iterator[tuple[str, Any]]:
        """Return the fields with their values, like `dict.items`."""
        return iter((field, self[field]) for field in self.keys())

    def keys(self) -> Iterator[str]:
        """Return the names of the fields, so that `dict(value)` works."""
        return iter(type(self).model_fields)


def _default(encoder: json.JSONEncoder, value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, Value) else _refuse(encoder, value)


_refuse = json.JSONEncoder.default
json.JSONEncoder.default = _default  # type: ignore[assignment, method-assign]
"""`json.dumps(message)` works, as programs written for MAIL's typed dictionaries expect; json asks nobody else."""
