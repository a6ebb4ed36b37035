"""The base class of values on the wire, and the decorator of values that stay inside."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, Self, dataclass_transform, overload

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema

_SLOTS = ("__dict__", "__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
"""What a model of pydantic consists of (see `BaseModel.model_construct`)."""

_OF_EACH_CLASS = ("__dict__", "__weakref__")
"""Attributes that Python adds to a class when it makes it."""

_names_of: dict[type[BaseModel], set[str]] = {}
"""The names of the fields of a class, which its trusted values share: nothing can set or unset a field of them."""

_set_fields, _set_names, _set_extra, _set_private = (vars(BaseModel)[slot].__set__ for slot in _SLOTS)


class Value(BaseModel):  # noqa: PLW1641  # pydantic adds the hash
    """A frozen value, validated where it enters the system and trusted from then on.

    Its validator is built on first use: a process needs few of them to start.

    Fields can be read as attributes or, as programs written for MAIL's typed dictionaries do, by
    subscript: ``response["message"]["body"]``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    @classmethod
    def _trusted(cls, fields: dict[str, Any]) -> Self:
        """Return a value of fields that are valid: all of them, in their order.

        For subclasses, which give it a signature. It does what `model_construct` does, without a look at each field,
        which would cost 7 % of a turn.
        """
        made = cls.__new__(cls)
        names = _names_of.get(cls)
        if names is None:
            names = _names_of[cls] = set(fields)
        _set_fields(made, fields)
        _set_names(made, names)
        _set_extra(made, None)
        _set_private(made, None)
        return made

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    def __getitem__(self, field: str) -> Any:
        if field in self.__pydantic_fields__:
            return getattr(self, field)
        raise KeyError(field)

    def __contains__(self, field: object) -> bool:
        return field in self.__pydantic_fields__

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # pydantic's has the values as well
        return iter(self.__pydantic_fields__)

    def get(self, field: str, default: Any = None) -> Any:
        """Return the field's value, or `default` for an unknown field, like `dict.get`."""
        return self[field] if field in self else default

    def items(self) -> Iterator[tuple[str, Any]]:
        """Return the fields with their values, like `dict.items`."""
        return iter((field, self[field]) for field in self.keys())

    def keys(self) -> Iterator[str]:
        """Return the names of the fields, so that `dict(value)` works."""
        return iter(self)


def fill(cls: Any, source: object, **others: Any) -> dict[str, Any]:
    """Return the values of a class's fields: `others`, and what `source` has under the names of further ones.

    For the copies from one form of a thing to another. Fields that neither has are left out.
    """
    names = getattr(cls, "__pydantic_fields__", None) or cls.__dataclass_fields__
    return {
        name: others[name] if name in others else getattr(source, name)
        for name in names
        if name in others or hasattr(source, name)
    }


def is_none(value: object) -> bool:
    """Return whether a value is None.

    As `exclude_if` of a field that was added later, it keeps the JSON of a model without the field, and the digest of
    that, as they were.
    """
    return value is None


@overload
def value[T](cls: type[T], /) -> type[T]: ...


@overload
def value[T](*, kw_only: bool = False, slots: bool = True) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True)
def value[T](
    cls: type[T] | None = None, /, *, kw_only: bool = False, slots: bool = True
) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a dataclass whose fields no code may change, which mypy enforces.

    For values that every turn makes: `dataclass(frozen=True)` calls a function for each field that it sets. It also
    compiles seven methods for each class; this compiles `__init__` alone, when it is first used: a
    function on AWS starts with few values of 200 classes, and a method of each class takes 6 % of its start.
    """
    own = partial(dataclass, kw_only=kw_only, slots=slots, repr=False, eq=False)

    def decorate(cls: Any) -> Any:
        given = {name: each for name, each in vars(cls).items() if name not in _OF_EACH_CLASS}
        made = own(init=False)(cls)
        if not slots:
            _remove_defaults(made)
            made.__get_pydantic_core_schema__ = classmethod(_core_schema)
        init = _Init(made, lambda: own()(type(cls.__name__, cls.__bases__, given)))
        for name, method in (("__init__", init), *_methods_of(made)):
            if name not in given:
                setattr(made, name, method)
        return made

    return decorate if cls is None else decorate(cls)


class _Init:
    """Stands for the `__init__` of a class until somebody calls or inspects it; then it is that of a twin."""

    def __init__(self, made: Any, make_twin: Callable[[], Any]) -> None:
        self._made, self._make_twin = made, make_twin

    def __get__(self, instance: object, owner: type) -> Callable[..., None]:
        """Return the method, which the class has from now on."""
        self._made.__init__ = self._make_twin().__init__
        method: Callable[..., None] = self._made.__init__
        return method if instance is None else method.__get__(instance, owner)


def _remove_defaults(cls: Any) -> None:
    """Remove the defaults of fields from a class, where each makes every access to its attribute slow."""
    for each in fields(cls):
        if each.name in vars(cls):
            delattr(cls, each.name)


def _core_schema(cls: Any, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
    """Return pydantic's schema of a dataclass, for which it has put the defaults back on the class."""
    schema = handler(source)
    _remove_defaults(cls)
    return schema


def _methods_of(cls: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the methods of a dataclass that need no code of their own: they behave as those of `dataclass` do."""
    shown = [field.name for field in fields(cls) if field.repr]
    compared = [field.name for field in fields(cls) if field.compare]
    # attrgetter of one name returns no tuple, and there is none of no names
    read: Callable[[Any], Any] = attrgetter(*compared) if compared else lambda _: ()

    @recursive_repr()
    def show(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def equals(self: Any, other: object) -> bool:
        return read(self) == read(other) if other.__class__ is self.__class__ else NotImplemented

    def digest(self: Any) -> int:
        return hash(read(self))

    yield "__repr__", show
    yield "__eq__", equals
    yield "__hash__", digest
