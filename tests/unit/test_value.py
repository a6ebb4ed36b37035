"""`@value` makes what `@dataclass` makes, but for code that is compiled for each class."""

from dataclasses import dataclass, field, replace
from inspect import signature
from typing import Any

import pytest
from pydantic import TypeAdapter

from mail.core.protocol.values import value


def define(decorate: Any) -> Any:
    @decorate
    class Point:
        x: int
        y: int = 0
        note: str = field(default="", compare=False)
        secret: str = field(default="", repr=False)

    return Point


OURS, THEIRS = define(value), define(dataclass(slots=True, unsafe_hash=True))


def test_it_shows_compares_and_hashes_as_a_dataclass_does() -> None:
    one, other = OURS(1, 2, "a", "key"), THEIRS(1, 2, "a", "key")
    assert repr(one) == repr(other)
    assert hash(one) == hash(other)
    assert one == OURS(1, 2, "b", "key") != OURS(1, 2, "a", "other")
    assert one != other
    assert one != (1, 2, "key")


@pytest.mark.parametrize("count", [0, 1])
def test_fields_may_be_few(count: int) -> None:
    made = value(type("Few", (), {"__annotations__": {"x": int} if count else {}}))
    given = (1,) * count
    assert made(*given) == made(*given)
    assert hash(made(*given)) == hash(made(*given))


def test_a_value_within_itself_can_be_shown() -> None:
    items: list[Any] = []
    point = OURS(items)
    items.append(point)
    assert "..." in repr(point)


def test_methods_of_the_class_stay() -> None:
    @value
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

    assert repr(Named("n")) == "n"


def define_two(decorate: Any) -> tuple[Any, Any]:
    @decorate
    class Base:
        x: int
        names: list[str] = field(default_factory=list)
        seen: int = field(default=0, init=False)

        def __post_init__(self) -> None:
            self.seen += self.x

    @decorate
    class Derived(Base):
        y: int = 2

    return Base, Derived


@pytest.mark.parametrize("decorate", [value, dataclass(slots=True, unsafe_hash=True)])
def test_it_inherits_and_is_made_as_a_dataclass_is(decorate: Any) -> None:
    """Its `__init__` is compiled when it is first used, also when that of a subclass calls it."""
    base, derived = define_two(decorate)

    class Own(derived):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__(5, y=6)

    own = Own()
    assert (own.x, own.y, own.seen, own.names) == (5, 6, 5, [])
    assert derived(1).names is not derived(1).names
    assert replace(derived(1, ["a"]), y=3) == derived(1, ["a"], 3)
    for _ in range(2):
        with pytest.raises(
            TypeError, match=r"Base\.__init__\(\) missing 1 required positional argument: 'x'"
        ):
            base()


def test_its_arguments_can_be_seen_before_there_is_a_value() -> None:
    ours, theirs = define_two(value), define_two(dataclass(slots=True, unsafe_hash=True))
    assert list(map(signature, ours)) == list(map(signature, theirs))


def test_its_class_has_no_defaults_which_would_make_access_to_attributes_slow() -> None:
    point = define(value(slots=False))
    assert TypeAdapter(point).validate_python({"x": 1}) == point(1)
    assert not {"y", "note", "secret"} & vars(point).keys()
