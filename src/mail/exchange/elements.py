"""What everything in an exchange is: a thing with an identity, which can be written as JSON and read again."""

from datetime import UTC, datetime
from typing import Annotated, Any, Self
from uuid import UUID, uuid4

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from mail.errors import BadRequest

_ID = TypeAdapter(UUID)


def as_id(value: UUID | str) -> UUID:
    """Return an id, which may be given as text. Raises BadRequest for what is none."""
    if isinstance(value, UUID):
        return value
    try:
        return _ID.validate_python(value)
    except ValidationError as error:
        raise BadRequest(f"an id is a UUID, and {value!r:.100} is none") from error


def _in_utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC)


class Element(BaseModel):
    """Something with an identity: two elements are equal, and hash alike, if they have the same id.

    Attributes:
        created_at: when it was made, in UTC.
        metadata: anything that goes with it.
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    id: UUID = Field(default_factory=uuid4, frozen=True)
    created_at: Annotated[AwareDatetime, AfterValidator(_in_utc)] = Field(
        default_factory=lambda: datetime.now(UTC), frozen=True
    )
    metadata: dict[str, Any] = Field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the element as JSON values. Raises BadRequest for what can't be made into one.

        What can is one of them from then on: tuples and sets are lists; bytes, times, UUIDs, and all keys are text.
        """
        try:
            return self.model_dump(mode="json")
        except (ValueError, RecursionError) as error:
            raise _unwritable(self, error) from error

    def to_json(self) -> str:
        """Return the element as JSON text; see `to_dict`."""
        try:
            text = self.model_dump_json()
            from_json(text)  # some numbers and depths are written that nobody could read again
        except (ValueError, RecursionError) as error:
            raise _unwritable(self, error) from error
        return text

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Return the inverse of `to_dict`. Raises BadRequest that says what is wrong."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise unreadable(cls, error) from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the inverse of `to_json`. Raises BadRequest that says what is wrong."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise unreadable(cls, error) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Element) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)


def _unwritable(element: Element, error: Exception) -> BadRequest:
    return BadRequest(f"{type(element).__name__} {element.id} can't be written as JSON: {error}")


def unreadable(cls: type[Element], error: ValidationError) -> BadRequest:
    """What pydantic has found wrong, as an error of ours."""
    lines = {
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg'].removeprefix('Value error, ')}".removeprefix(
            ": "
        )
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    }
    return BadRequest(f"this is no {cls.__name__}:\n" + "\n".join(sorted(lines)))
