"""`@action` on functions with type hints: their schema, their calls, their results and their context."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic_core import to_json

from mail import ActionContext, MAILAction, action
from mail.errors import ConfigurationError, ToolCallFault
from mail.swarms_json.build import build_action
from mail.swarms_json.references import resolver
from mail.swarms_json.specs import ActionSpec


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Point:
    x: int
    y: int = 0


class Order(BaseModel):
    drink: str
    day: date | None = None


@dataclass
class Deps:
    prices: dict[str, int]


@action
async def search(query: str, limit: int = 3, site: str | None = None) -> str:
    """Search the web.

    Finds pages, the best first.

    Args:
        query: What to look
            for.
        limit (int): How many pages.
        site: Only pages of this site.

    Returns:
        The pages.
    """
    return f"{limit} of {query} at {site}"


def everything(
    sizes: list[Size],
    at: Point,
    order: Order,
    kind: Literal["a", "b"] = "a",
    note: Annotated[str, "A note."] = "",
    level: Annotated[int, Field(ge=1, description="A level.")] = 1,
    depth: int = Field(2, le=3, description="A depth."),
) -> Any:
    """Take everything."""
    return {
        "sizes": sizes,
        "at": at,
        "order": order,
        "kind": kind,
        "note": note,
        "level": level,
        "depth": depth,
    }


def price(ctx: ActionContext[Deps], drink: str) -> int:
    """Return a price."""
    return ctx.deps.prices[drink]


DOCSTRINGS = {
    "google": "Do it.\n\nArgs:\n    city: Which city.\n",
    "numpy": "Do it.\n\nParameters\n----------\ncity : str\n    Which city.\n",
    "sphinx": "Do it.\n\n:param city: Which city.\n:returns: text\n",
}


def properties(made: MAILAction) -> dict[str, Any]:
    found: dict[str, Any] = made.parameters["properties"]
    return found


def test_the_schema_of_a_function() -> None:
    assert (search.name, search.description) == ("search", "Search the web.\n\nFinds pages, the best first.")
    assert search.parameters["required"] == ["query"]
    assert properties(search)["query"] == {"type": "string", "description": "What to look for."}
    assert properties(search)["limit"] == {"type": "integer", "default": 3, "description": "How many pages."}
    assert properties(search)["site"]["description"] == "Only pages of this site."
    assert search.to_tool_dict()["parameters"] == search.parameters


@pytest.mark.parametrize("style", DOCSTRINGS)
def test_styles_of_docstrings(style: str) -> None:
    def act(city: str) -> str:
        return city

    act.__doc__ = DOCSTRINGS[style]
    made = action(act)
    assert (made.description, properties(made)["city"]["description"]) == ("Do it.", "Which city.")


def test_a_docstring_without_arguments_stays() -> None:
    def act(city: str) -> str:
        """Do it.

        Note:
            Only in summer.
        """
        return city

    assert "Only in summer." in action(act).description


async def test_arguments_arrive_as_their_types() -> None:
    made = action(everything)
    found = properties(made)
    assert [found[name]["description"] for name in ("note", "level", "depth")] == [
        "A note.",
        "A level.",
        "A depth.",
    ]
    assert (found["level"]["minimum"], found["depth"]["maximum"], found["depth"]["default"]) == (1, 3, 2)
    assert made.parameters["required"] == ["sizes", "at", "order"]
    given = {"sizes": ["small"], "at": {"x": 1}, "order": {"drink": "tea", "day": "2026-01-02"}, "kind": "b"}
    assert json.loads(await made(given)) == {
        "sizes": ["small"],
        "at": {"x": 1, "y": 0},
        "order": {"drink": "tea", "day": "2026-01-02"},
        "kind": "b",
        "note": "",
        "level": 1,
        "depth": 2,
    }


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({}, "query: Field required"),
        ({"query": "x", "limit": "many"}, "limit: Input should be a valid integer"),
        ({"query": "x", "limt": 3}, "limt: Extra inputs are not permitted"),
    ],
)
async def test_wrong_arguments_are_explained_to_the_agent(arguments: dict[str, Any], problem: str) -> None:
    with pytest.raises(
        ToolCallFault, match=f"search was not run, its arguments are wrong: {problem}.*Expected"
    ):
        await search(arguments)


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("text", "text"),
        (Size.SMALL, '"small"'),
        (3, "3"),
        (None, "null"),
        ({"a": [1]}, '{"a":[1]}'),
        (Point(1), '{"x":1,"y":0}'),
        (Order(drink="tea"), '{"drink":"tea","day":null}'),
    ],
)
async def test_results_are_text_or_json(result: Any, text: str) -> None:
    @action
    def act(n: int) -> Any:
        """Act."""
        return result

    assert await act({"n": 1}) == text


async def test_a_result_that_json_can_t_express() -> None:
    @action
    def act() -> object:
        """Act."""
        return object()

    with pytest.raises(TypeError, match="act must return text or what JSON can express, but returned object"):
        await act({})


async def test_a_unit_test_calls_the_function() -> None:
    assert await search("MAIL", limit=1) == "1 of MAIL at None"
    assert await search({"query": "MAIL"}) == "3 of MAIL at None"
    priced = action(price)
    assert priced(ActionContext(deps=Deps({"tea": 2})), "tea") == 2
    with pytest.raises(TypeError, match="takes one dictionary of arguments, or their model"):
        MAILAction("a", "b", {"type": "object", "properties": {}}, lambda _: "x")("tea")


async def test_the_context_is_not_an_argument() -> None:
    made = action(price)
    assert list(properties(made)) == ["drink"]
    assert await made.with_deps(Deps({"tea": 2}))({"drink": "tea"}) == "2"
    with pytest.raises(ConfigurationError, match="'price' needs dependencies of type Deps, not NoneType"):
        made.with_deps(None)


async def test_the_context_of_documented_forms() -> None:
    @action(description="Order.")
    async def order(ctx: ActionContext[Deps], wish: Order) -> str:
        return f"{wish.drink} for {ctx.deps.prices[wish.drink]}"

    @action(description="Order.", parameters=order.parameters)
    async def order_by_dict(arguments: dict[str, Any], ctx: ActionContext[Deps]) -> str:
        return f"{arguments['drink']} for {ctx.deps.prices[arguments['drink']]}"

    for made in (order, order_by_dict):
        assert list(properties(made)) == ["drink", "day"]
        assert await made.with_deps(Deps({"tea": 2}))({"drink": "tea"}) == "tea for 2"


def test_bound_arguments_are_not_shown() -> None:
    def act(city: str, key: str) -> str:
        """Act."""
        return city + key

    made = action(name="act", description="Act.")(partial(act, key="secret"))
    assert list(properties(made)) == ["city"]


async def test_any_name_and_any_keyword() -> None:
    @action
    def act(schema: str, _hidden: int = 1, **more: Any) -> Any:
        """Act."""
        return [schema, _hidden, more]

    assert await act({"schema": "s", "_hidden": 2, "colour": "red"}) == '["s",2,{"colour":"red"}]'


def listed(*cities: str) -> None:
    """Act."""


def untyped(city, limit: int = 3) -> None:
    """Act."""


def unresolved(city: Missing) -> None:  # type: ignore[name-defined]  # noqa: F821
    """Act."""


def opaque(thing: Opaque) -> None:
    """Act."""


class Checked(BaseModel):
    """A model that compares by Python's `re`."""

    model_config = ConfigDict(regex_engine="python-re")
    words: str = Field(pattern=r"^(\w+\s?)*$")


class Opaque:
    pass


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (listed, r"agents can't use \*cities; take a list instead"),
        (untyped, "annotate its argument 'city' with a type"),
        (unresolved, "the annotation 'Missing' of 'city' can't be evaluated"),
        (opaque, "its arguments have no JSON Schema"),
    ],
)
def test_what_agents_can_t_use(function: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=f"action '{function.__name__}': {problem}"):
        action(function)


def compiled(words: Annotated[str, Field(pattern=re.compile(r"^(\w+\s?)*$"))]) -> str:
    """Act."""
    return words


def nested(orders: list[Checked]) -> str:
    """Act."""
    assert all(isinstance(each, Checked) for each in orders)
    return orders[0].words


def takes_model(given: Checked) -> str:
    """Act."""
    assert isinstance(given, Checked)
    return given.words


class Deferred(BaseModel):
    """A model whose validator is built on first use."""

    model_config = ConfigDict(defer_build=True)
    order: Checked


def deferred(given: Deferred) -> str:
    """Act."""
    return given.order.words


@pydantic_dataclass
class Words:
    """A dataclass of pydantic that compares by Python's `re`."""

    words: Annotated[str, Field(pattern=re.compile(r"(\w+\s?)*$"))]


def in_dataclass(order: Words) -> str:
    """Act."""
    assert isinstance(order, Words)
    return order.words


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (compiled, lambda words: {"words": words}),
        (nested, lambda words: {"orders": [{"words": words}]}),
        (takes_model, lambda words: {"words": words}),
        (deferred, lambda words: {"order": {"words": words}}),
        (in_dataclass, lambda words: {"order": {"words": words}}),
    ],
)
async def test_patterns_of_python_are_checked_in_bounded_time(function: Any, arguments: Any) -> None:
    """Python's `re` would take years for 60 letters and an exclamation mark."""
    made = action(function)
    assert r"(\\w+\\s?)*$" in to_json(made.parameters).decode()
    assert await made(arguments("two words")) == "two words"
    with pytest.raises(ToolCallFault, match="should match pattern"):
        await made(arguments("a" * 60 + "!"))


def words_of(pattern: re.Pattern[str]) -> Any:
    """Return an action that takes a text by a pattern."""

    @action
    def act(words: Annotated[str, Field(pattern=pattern)]) -> str:
        """Act."""
        return words

    return act


@pytest.mark.parametrize(
    ("pattern", "fits", "other"),
    [
        (re.compile("b+", re.IGNORECASE), "Bb", "abb"),  # at the beginning, as pydantic uses `match`
        (re.compile("b+$  # one or more", re.VERBOSE), "bb", "ab"),
        (re.compile("^a.*b$", re.DOTALL | re.MULTILINE), "a\nb", "c\na b"),
    ],
)
async def test_a_pattern_of_python_keeps_its_meaning(pattern: re.Pattern[str], fits: str, other: str) -> None:
    act = words_of(pattern)
    assert await act({"words": fits}) == fits
    with pytest.raises(ToolCallFault):
        await act({"words": other})


@pytest.mark.parametrize("pattern", [re.compile(r"(?=a)\w+"), re.compile(r"\w+", re.ASCII)])
async def test_a_pattern_of_python_that_is_not_checked(
    pattern: re.Pattern[str], caplog: pytest.LogCaptureFixture
) -> None:
    act = words_of(pattern)
    assert await act({"words": "ü"}) == "ü"
    assert caplog.text.count("values aren't checked against the pattern") == 1
    assert properties(act)["words"]["pattern"] == pattern.pattern


Unlike = Annotated[str, Field(pattern=r"^(?!pear)[a-z]+$", max_length=5)]


async def test_a_pattern_with_look_around_is_shown_but_not_checked(caplog: pytest.LogCaptureFixture) -> None:
    @action
    def act(name: Unlike, others: list[Unlike], code: Annotated[str, Field(pattern="^[0-9]+$")] = "1") -> str:
        """Act."""
        return name

    assert properties(act)["name"] == {"type": "string", "pattern": r"^(?!pear)[a-z]+$", "maxLength": 5}
    assert properties(act)["others"]["items"]["pattern"] == r"^(?!pear)[a-z]+$"
    assert await act({"name": "pear", "others": ["ü"]}) == "pear"
    for wrong in ({"name": "apples"}, {"others": ["apples"]}, {"code": "x"}):
        with pytest.raises(ToolCallFault, match="act was not run"):
            await act({"name": "pear", "others": [], **wrong})
    assert [record.levelname for record in caplog.records if "(?!pear)" in record.getMessage()] == ["WARNING"]


@pytest.mark.parametrize("name", ["search", "everything"])
async def test_swarms_json_needs_no_parameters(name: str) -> None:
    entry = ActionSpec(name="act", function=f"python::{__name__}:{name}")
    made = build_action(entry, resolver())
    function = globals()[name]
    plain = function if isinstance(function, MAILAction) else action(function)
    assert (made.parameters, made.description) == (plain.parameters, plain.description)
    with pytest.raises(ToolCallFault, match=r"(act|search) was not run"):
        await made.function({"nothing": 1})


@action(idempotent=True, sequential=True, timeout=5, retries=3)
def restart(host: str) -> str:
    """Restart a host."""
    return f"{host} restarts"


def test_an_action_in_swarms_json_keeps_its_options_unless_the_entry_states_them() -> None:
    function = f"python::{__name__}:restart"
    made = build_action(ActionSpec(name="restart", function=function), resolver())
    assert (made.idempotent, made.sequential, made.timeout, made.retries) == (True, True, 5, 3)
    entry = ActionSpec(name="restart", function=function, idempotent=False, timeout=1.5, retries=0)
    stated = build_action(entry, resolver())
    assert (stated.idempotent, stated.sequential, stated.timeout, stated.retries) == (False, True, 1.5, 0)
    with pytest.raises(ConfigurationError, match="action 'restart': retries would repeat"):
        build_action(ActionSpec(name="restart", function=function, idempotent=False), resolver())


async def takes_a_dictionary(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments)


async def test_swarms_json_still_hands_over_a_dictionary() -> None:
    made = build_action(ActionSpec(name="act", function=f"python::{__name__}:takes_a_dictionary"), resolver())
    assert await made.function({"more": 1}) == '{"more": 1}'
