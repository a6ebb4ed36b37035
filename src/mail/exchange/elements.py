"""The data structures of an exchange: elements with an identity and a JSON form, in piles, progressions and flows.

A pile finds elements by id, a progression orders ids, a flow combines both. Adding, finding, and removing from the
front or by id take constant time.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Annotated, Any, Self, TypeVar
from uuid import UUID, uuid4

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    model_validator,
)
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


class Element(BaseModel):
    """An object with an identity: elements with the same id are equal.

    Attributes:
        created_at: when it was made, in UTC.
        metadata: arbitrary further data.
    """

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    id: UUID = Field(default_factory=uuid4, frozen=True)
    created_at: Annotated[AwareDatetime, AfterValidator(lambda time: time.astimezone(UTC))] = Field(
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields alone: the rest is derived, and classes such as `Pile[Mail]` can't be found by a name."""
        return _restore, (
            _class_spec(type(self)),
            {name: getattr(self, name) for name in type(self).model_fields},
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Element) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)


def _class_spec(kind: Any) -> Any:
    """Return a class, or the generic class and the spec of its arguments."""
    generic = getattr(kind, "__pydantic_generic_metadata__", {})
    origin, args = generic.get("origin"), generic.get("args", ())
    if origin is None or any(isinstance(arg, TypeVar) for arg in args):
        return origin or kind
    return origin, tuple(map(_class_spec, args))


def _class_of(spec: Any) -> Any:
    return spec[0][tuple(map(_class_of, spec[1]))] if isinstance(spec, tuple) else spec


def _restore(spec: Any, fields: dict[str, Any]) -> Any:
    return _class_of(spec)(**fields)


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


def _numbered(given: Any) -> Any:
    """Return a list as a dictionary with arbitrary keys."""
    return given if isinstance(given, dict) or not isinstance(given, Iterable) else dict(enumerate(given))


def _by_id[T: Element](given: dict[Any, T]) -> dict[UUID, T]:
    found = {element.id: element for element in given.values()}
    if len(found) < len(given):
        raise ValueError("two elements have the same id")
    return found


class Pile[T: Element](Element):
    """Unique elements, found by id and kept in insertion order. In JSON they are a list."""

    elements: Annotated[
        dict[Any, T],
        BeforeValidator(_numbered),
        AfterValidator(_by_id),
        PlainSerializer(lambda elements: list(elements.values()), return_type=list[Any]),
    ] = Field(default_factory=dict)

    def add(self, element: T) -> None:
        """Add an element. Raises BadRequest for a duplicate id."""
        if element.id in self.elements:
            raise BadRequest(f"{element.id} is on the pile already")
        self.elements[element.id] = element

    def get(self, id: UUID) -> T | None:  # noqa: A002
        """Return the element with this id."""
        return self.elements.get(id)

    def pop(self, id: UUID) -> T | None:  # noqa: A002
        """Remove and return the element with this id."""
        return self.elements.pop(id, None)

    def __getitem__(self, id: UUID) -> T:  # noqa: A002
        return self.elements[id]

    def __contains__(self, element: object) -> bool:
        return (element.id if isinstance(element, Element) else element) in self.elements

    def __len__(self) -> int:
        return len(self.elements)

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]  # pydantic's own iterates over the fields
        return iter(list(self.elements.values()))  # a copy, so that the pile may change during iteration


def _in_order(given: Any) -> Any:
    if not isinstance(given, list | tuple):
        return given
    order = OrderedDict.fromkeys(given)
    if len(order) < len(given):
        raise ValueError("an id is twice in the order")
    return order


class Progression(Element):
    """A named order of unique ids. In JSON it is a list."""

    name: str | None = None
    order: Annotated[
        OrderedDict[UUID, None],
        BeforeValidator(_in_order),
        PlainSerializer(lambda order: list(map(str, order)), return_type=list[str]),
    ] = Field(default_factory=OrderedDict)

    def append(self, id: UUID) -> None:  # noqa: A002
        """Append an id. Raises BadRequest for a duplicate."""
        if id in self.order:
            raise BadRequest(f"{id} is in {self.name!r} already")
        self.order[id] = None

    def popleft(self) -> UUID | None:
        """Remove and return the first id."""
        return self.order.popitem(last=False)[0] if self.order else None

    def remove(self, id: UUID) -> bool:  # noqa: A002
        """Remove an id; return whether it was there."""
        if id not in self.order:
            return False
        del self.order[id]
        return True

    def __contains__(self, element: object) -> bool:
        return (element.id if isinstance(element, Element) else element) in self.order

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[UUID]:  # type: ignore[override]
        return iter(list(self.order))


class Flow[T: Element, P: Progression](Element):
    """Items, and named progressions of them. An item may be in several progressions, or in none."""

    name: str | None = None
    items: Pile[T] = Field(default_factory=Pile[T])
    progressions: Pile[P] = Field(default_factory=Pile[P])
    _named: dict[str | None, P] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> Self:
        self._named = {progression.name: progression for progression in self.progressions}
        if len(self._named) < len(self.progressions):
            raise ValueError("two progressions have the same name")
        for progression in self.progressions:
            for id_ in progression:
                if id_ not in self.items:
                    raise ValueError(f"{progression.name!r} has {id_} in its order, which is not an item")
        return self

    def add_progression(self, progression: P) -> None:
        """Add a progression. Raises BadRequest for a duplicate name, or an id without an item."""
        if progression.name in self._named:
            raise BadRequest(f"there is a progression {progression.name!r} already")
        for id_ in progression:
            if id_ not in self.items:
                raise BadRequest(f"{progression.name!r} has {id_} in its order, which is not an item")
        self.progressions.add(progression)
        self._named[progression.name] = progression

    def drop_progression(self, name: str | None) -> P | None:
        """Remove a progression; its items stay."""
        progression = self._named.pop(name, None)
        return None if progression is None else self.progressions.pop(progression.id)

    def get_progression(self, name: str | None) -> P | None:
        """Return the progression of this name."""
        return self._named.get(name)

    def add_item(self, item: T, progression: str | None = None) -> None:
        """Add an item, at the end of a progression if one is named.

        Raises BadRequest for a duplicate item or an unknown progression.
        """
        order = self._named.get(progression)
        if progression is not None and order is None:
            raise BadRequest(f"there is no progression {progression!r}")
        self.items.add(item)
        if order is not None:
            order.append(item.id)

    def list_items(self, progression: str) -> list[T]:
        """Return the items of a progression in their order; empty for an unknown one."""
        order = self._named.get(progression)
        return [] if order is None else [self.items[id_] for id_ in order]

    def take_first(self, progression: str) -> T | None:
        """Remove the first item of a progression from it and from the pile."""
        order = self._named.get(progression)
        id_ = None if order is None else order.popleft()
        return None if id_ is None else self.items.pop(id_)

    def take(self, progression: str, id: UUID) -> T | None:  # noqa: A002
        """Remove an item of a progression from it and from the pile."""
        order = self._named.get(progression)
        return self.items.pop(id) if order is not None and order.remove(id) else None
