"""Arguments of actions that are also accepted by other names."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator


class Arguments(BaseModel):
    """Base class of arguments; `also_named` maps other names to those of the fields. Agents see only the fields."""

    model_config = ConfigDict(extra="forbid")

    also_named: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _read_other_names(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {cls.also_named.get(name, name): value for name, value in given.items()}
