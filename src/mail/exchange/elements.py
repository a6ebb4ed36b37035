"""The base class of everything in an exchange: an identity, and conversion to and from JSON."""

from datetime import UTC, datetime
from typing import Annotated, Any, Self
from uuid import UUID, uuid4

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import from_json

from mail.errors import BadRequest

_ID = TypeAdapter(UUID)


def as_id(value: UUID | str) -> UUID:
    """Return an id, which may be given as text. Raises BadRequest for an invalid one."""
    if isinstance(value, UUID):
        return value
    try:
        return _ID.validate_python(value)
    except ValidationError as error:
        raise BadRequest(f"an id must be a UUID, not {value!r:.100}") from error


def _in_utc(time: datetime) -> datetime:
    return time.astimezone(UTC)


class Element(BaseModel):
    """An object with an identity: elements with the same id are equal.

    Attributes:
        created_at: when it was made, in UTC.
        metadata: arbitrary further data.
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    id: UUID = Field(default_factory=uuid4, frozen=True)
    created_at: Annotated[AwareDatetime, AfterValidator(_in_utc)] = Field(
        default_factory=lambda: datetime.now(UTC), frozen=True
    )
    metadata: dict[str, Any] = Field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the element as JSON values. Raises BadRequest for values without a JSON form.

        Tuples and sets become lists; bytes, times, UUIDs and all keys become strings.
        """
        try:
            return self.model_dump(mode="json")
        except (ValueError, RecursionError) as error:
            raise _unwritable(self, error) from error

    def to_json(self) -> str:
        """Return the element as JSON text; see `to_dict`."""
        try:
            text = self.model_dump_json()
            from_json(text)  # pydantic writes some numbers and depths that it can't read
        except (ValueError, RecursionError) as error:
            raise _unwritable(self, error) from error
        return text

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read an element written by `to_dict`. Raises BadRequest with the problems."""
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            raise unreadable(cls, error) from error

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read an element written by `to_json`. Raises BadRequest with the problems."""
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
    """Return pydantic's problems as a BadRequest."""
    lines = {
        f"{'.'.join(map(str, problem['loc']))}: {problem['msg'].removeprefix('Value error, ')}".removeprefix(
            ": "
        )
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    }
    return BadRequest(f"this is not a valid {cls.__name__}:\n" + "\n".join(sorted(lines)))
