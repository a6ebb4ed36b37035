"""Actions: made in every documented way, declared in both styles, and run with checked arguments."""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from functools import partial
from typing import Any

import pytest
from pydantic import BaseModel, Field

from mail import MAILAction, action
from mail.api import idempotency_key
from mail.core.decisions.approvals import GivenApproval
from mail.core.protocol.calls import AgentToolCall
from mail.core.protocol.json_schema import model_of
from mail.core.protocol.tool_schemas import pydantic_model_to_tool
from mail.core.task.swarm import ActionCore, History, ToolChoice
from mail.errors import ConfigurationError, ToolCallFault
from mail.factories.rules import output
from mail.swarms_json.build import build_action
from mail.swarms_json.references import resolver
from mail.swarms_json.specs import ActionSpec
from mail.testing.agents import View, build_swarm, call, complete, turns
from mail.testing.rig import Rig

HERE = __name__


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Paint(BaseModel):
    """Paint a wall."""

    wall: str = Field(description="Which wall")
    colour: Colour = Colour.RED
    coats: int = Field(default=1, ge=1, le=3)


WALL = {
    "type": "object",
    "properties": {"wall": {"type": "string"}, "coats": {"type": "integer", "minimum": 1}},
    "required": ["wall"],
}


async def paint(arguments: dict[str, Any]) -> str:
    return json.dumps(arguments)


def paint_slowly(arguments: dict[str, Any]) -> str:
    return f"{threading.current_thread() is threading.main_thread()} {idempotency_key()}"


@action(description="Repaint a wall.", idempotent=True)
async def repaint(order: Paint) -> str:
    return f"{order.wall} is {order.colour.value}, {order.coats} coats"


class TestDecorator:
    async def test_model_from_the_annotation(self) -> None:
        assert isinstance(repaint, MAILAction)
        assert (repaint.name, repaint.description, repaint.idempotent) == ("repaint", "Repaint a wall.", True)
        assert repaint.parameters["required"] == ["wall"]
        assert repaint.parameters["properties"]["wall"] == {"description": "Which wall", "type": "string"}
        assert await repaint({"wall": "north", "coats": 2}) == "north is red, 2 coats"
        assert await repaint(Paint(wall="west", colour=Colour.BLUE)) == "west is blue, 1 coats"

    async def test_annotation_as_text(self) -> None:
        def later(order: "Paint") -> str:
            """Paint later."""
            return order.wall

        made = action(later)
        assert (made.name, made.description) == ("later", "Paint later.")
        assert await made({"wall": "east"}) == "east"

    async def test_model_beside_a_function_that_takes_a_dictionary(self) -> None:
        made = action(name="p", description="d", model=Paint)(paint)
        assert json.loads(await made({"wall": "north"})) == {"wall": "north", "colour": "red", "coats": 1}

    async def test_parameters(self) -> None:
        made = action(description="d", parameters=WALL)(paint)
        assert made.name == "paint"
        assert json.loads(await made({"wall": "north", "more": 1})) == {"wall": "north", "more": 1}

    async def test_nothing_to_tell(self) -> None:
        @action
        def ping() -> str:
            """Answer."""
            return "pong"

        assert ping.parameters == {"type": "object", "properties": {}}
        assert await ping({}) == "pong"

    def test_style_is_the_same_schema(self) -> None:
        styles = [
            action(description="d", model=Paint, style=style)(paint) for style in ("responses", "completions")
        ]
        assert styles[0].parameters == styles[1].parameters

    @pytest.mark.parametrize(
        ("options", "complaint"),
        [
            ({}, "give it a description"),
            ({"description": "d"}, "annotate its argument"),
            ({"description": "d", "model": Paint, "parameters": WALL}, "not both"),
            (
                {"description": "d", "model": Paint, "retries": 2},
                "retries would repeat .* declare the action idempotent",
            ),
            ({"description": "d", "model": Paint, "read_only": True, "retries": 11}, "from 0 to 10"),
            (
                {"description": "d", "model": Paint, "timeout": 0},
                "timeout must be a number of seconds above 0",
            ),
        ],
    )
    def test_what_is_missing(self, options: dict[str, Any], complaint: str) -> None:
        with pytest.raises(ConfigurationError, match=f"action 'paint': .*{complaint}"):
            action(**options)(paint)


class TestFromPydanticModel:
    async def test_closure(self) -> None:
        walls: list[str] = []

        async def remember(known: list[str], payload: dict[str, Any]) -> str:
            known.append(payload["wall"])
            return f"{len(known)} walls"

        made = MAILAction.from_pydantic_model(model=Paint, function=partial(remember, walls), name="remember")
        assert (made.name, made.description) == ("remember", "Paint a wall.")
        assert await made({"wall": "north"}) == "1 walls"
        assert walls == ["north"]

    async def test_import_string(self) -> None:
        for made in (
            MAILAction.from_pydantic_model(Paint, f"{HERE}:paint"),
            MAILAction.from_pydantic_model(Paint, function_str=f"python::{HERE}:paint", name="Paint"),
        ):
            assert made.name == "Paint"
            assert json.loads(await made({"wall": "n"}))["wall"] == "n"

    def test_no_function(self) -> None:
        with pytest.raises(ConfigurationError, match="name its function"):
            MAILAction.from_pydantic_model(Paint)
        with pytest.raises(ConfigurationError, match="is not a function"):
            MAILAction.from_pydantic_model(Paint, f"{HERE}:WALL")

    async def test_a_function_that_wants_the_model(self) -> None:
        def coats(order: Paint) -> str:
            return str(order.coats)

        assert await MAILAction.from_pydantic_model(Paint, coats)({"wall": "n", "coats": 3}) == "3"

    async def test_a_function_that_wants_another_model(self) -> None:
        class Short(BaseModel):
            wall: str

        def wall(order: Short) -> str:
            return type(order).__name__

        assert await MAILAction.from_pydantic_model(Paint, wall)({"wall": "n"}) == "Short"


class TestFromSwarmJson:
    async def test_round(self) -> None:
        entry = {
            "name": "paint",
            "description": "d",
            "parameters": WALL,
            "function": f"python::{HERE}:paint",
            "idempotent": True,
        }
        made = MAILAction.from_swarm_json(json.dumps(entry))
        assert (made.name, made.description, made.parameters, made.idempotent) == ("paint", "d", WALL, True)
        assert json.loads(await made({"wall": "n"})) == {"wall": "n"}

    async def test_decorated_function(self) -> None:
        entry = {"name": "r", "function": f"python::{HERE}:repaint"}
        assert await MAILAction.from_swarm_json(json.dumps(entry))({"wall": "n"}) == "n is red, 1 coats"

    async def test_left_to_the_user(self) -> None:
        made = MAILAction.from_swarm_json('{"name": "ask"}')
        with pytest.raises(ToolCallFault, match="the user gives the result"):
            await made({})

    @pytest.mark.parametrize("text", ["", "[]", '{"name": ""}', '{"name": "a", "functon": "x:y"}'])
    def test_wrong(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match=r"^action: "):
            MAILAction.from_swarm_json(text)

    def test_allowed_prefixes(self) -> None:
        entry = json.dumps({"name": "a", "function": "os:system"})
        with pytest.raises(ConfigurationError, match="may not be imported"):
            MAILAction.from_swarm_json(entry, allowed_prefixes=["mail.stdlib"])


class TestDeclarations:
    def test_styles(self) -> None:
        made = MAILAction("paint", "d", WALL, paint)
        assert made.to_tool_dict("completions") == {
            "type": "function",
            "function": {"name": "paint", "description": "d", "parameters": WALL},
        }
        assert made.to_tool_dict() == made.to_tool_dict("responses")
        assert made.to_tool_dict()["name"] == "paint"

    def test_core(self) -> None:
        core = MAILAction("paint", "d", WALL, paint, idempotent=True).to_core()
        assert isinstance(core, ActionCore)
        assert (core.name, core.idempotent, dict(core.parameters)) == ("paint", True, WALL)

    def test_pydantic_model(self) -> None:
        assert repaint.to_pydantic_model() is Paint
        model = MAILAction("paint", "d", WALL, paint).to_pydantic_model()
        assert model.model_validate({"wall": "n"}).wall == "n"  # type: ignore[attr-defined]
        declared = pydantic_model_to_tool(repaint.to_pydantic_model(for_tools=True), style="responses")
        assert (declared["name"], declared["description"]) == ("repaint", "Repaint a wall.")
        assert declared["parameters"]["required"] == ["wall"]

    @pytest.mark.parametrize(
        ("parts", "complaint"),
        [
            (("", "d", WALL, paint), "needs a name"),
            (("a", "d", {"type": "string"}, paint), "of type 'object'"),
            (("a", "d", WALL, 3), "is not a function"),
            (("a", "d", WALL, "nowhere:x"), "can't be imported"),
        ],
    )
    def test_wrong(self, parts: Any, complaint: str) -> None:
        with pytest.raises(ConfigurationError, match=complaint):
            MAILAction(*parts)


class TestCheckedArguments:
    @pytest.mark.parametrize(
        ("arguments", "complaint"),
        [
            ({}, r"wall: Field required"),
            ({"wall": 3}, r"wall: Input should be a valid string"),
            ({"wall": "n", "coats": "2"}, r"coats: Input should be a valid integer"),
            ({"wall": "n", "coats": True}, r"coats: "),
            ({"wall": "n", "coats": 0}, r"coats: Input should be greater than or equal to 1"),
        ],
    )
    async def test_by_schema(self, arguments: dict[str, Any], complaint: str) -> None:
        made = MAILAction("paint", "d", WALL, paint)
        with pytest.raises(ToolCallFault, match=complaint) as raised:
            await made(arguments)
        assert raised.value.detail.startswith("paint was not run, its arguments are wrong: ")
        assert raised.value.detail.endswith(f"Expected: {json.dumps(WALL)}")

    async def test_by_model(self) -> None:
        with pytest.raises(ToolCallFault, match="colour: Input should be 'red' or 'blue'"):
            await repaint({"wall": "n", "colour": "green"})

    async def test_long_schemas_are_cut(self) -> None:
        huge = {
            "type": "object",
            "properties": {"a": {"type": "string", "description": "x" * 9999}},
            "required": ["a"],
        }
        with pytest.raises(ToolCallFault) as raised:
            await MAILAction("a", "d", huge, paint)({})
        assert len(raised.value.detail) < 2200

    async def test_the_agent_is_told(self) -> None:
        ran: list[Any] = []
        made = MAILAction("paint", "d", WALL, lambda arguments: ran.append(arguments) or "painted")
        swarm = build_swarm(
            {
                "boss": turns(
                    [call("paint", wall=7)],
                    [call("paint", wall="north")],
                    [complete("done")],
                )
            },
            actions={"paint": made.to_core()},
        )
        async with Rig(swarm) as rig:
            outcome = await rig.ask()
            history = await rig.history("boss", outcome.key)
        assert ran == [{"wall": "north"}]
        results = [entry["content"] for entry in history if entry["role"] == "tool"]
        assert results[0].startswith("ERROR: paint was not run, its arguments are wrong: wall: ")
        assert results[1] == "SUCCESS: painted"


class TestRunning:
    async def test_blocking_functions_run_in_a_thread_and_know_their_call(self) -> None:
        made = MAILAction("paint", "d", WALL, paint_slowly)
        keys: list[str] = []

        async def note(arguments: dict[str, Any]) -> str:
            keys.append(idempotency_key())
            await asyncio.sleep(0)
            return "noted"

        swarm = build_swarm(
            {"boss": turns([call("paint", wall="n"), call("note"), call("note")], [complete("done")])},
            actions={"paint": made.to_core(), "note": note},
        )
        assert idempotency_key() == ""
        async with Rig(swarm) as rig:
            outcome = await rig.ask()
            history = await rig.history("boss", outcome.key)
        results = [entry["content"] for entry in history if entry["role"] == "tool"]
        key = results[0].removeprefix("SUCCESS: False ")
        assert len({key, *keys}) == 3
        assert {len(each) for each in (key, *keys)} == {64}
        assert idempotency_key() == ""

    async def test_models_that_repeat_their_call_ids_get_keys_that_never_repeat(self) -> None:
        """Neither in a turn, nor in the next one, nor in another task or a fork, nor for the call that was approved."""
        keys: list[str] = []

        async def pay(arguments: dict[str, Any]) -> str:
            keys.append(idempotency_key())
            return "paid"

        async def repeat(history: History, choice: ToolChoice) -> tuple[str | None, list[AgentToolCall]]:
            has_paid = len(View(history, choice).results) >= 2
            return None, output([complete("done") if has_paid else call("pay")])

        action = ActionCore("pay", pay)
        swarm = build_swarm({"boss": turns()}, actions={"pay": action})
        boss = replace(swarm.agents["boss"], function=repeat)
        swarm = replace(swarm, agents={"boss": boss})
        async with Rig(swarm) as rig:
            await rig.ask(task_id="first")
            made = await rig.runtime.fork(rig.user, "first", at=1)
            await rig.ask(task_id=made.task.task_id)
            rig.runtime.swarm = replace(swarm, actions={"pay": replace(action, needs_approval=True)})
            await rig.ask(task_id="third")
            await rig.ask("", task_id="third", approvals=(GivenApproval(decision="approve", all=True),))
            await rig.ask("", task_id="third", approvals=(GivenApproval(decision="approve", all=True),))
        assert len(keys) == 6
        assert len(set(keys)) == len(keys)


def check(schema: dict[str, Any]) -> Callable[[Any], bool]:
    """Whether a value is valid as the property `x` of an object."""
    model = model_of("m", {"type": "object", "properties": {"x": schema}, **schema.pop("outside", {})})

    def is_valid(value: Any) -> bool:
        try:
            model.model_validate({"x": value})
        except ValueError:
            return False
        return True

    return is_valid


class TestSchemas:
    @pytest.mark.parametrize(
        ("schema", "good", "bad"),
        [
            ({"type": "string", "minLength": 2, "pattern": "^a"}, ["ab"], ["a", "ba", 1, None]),
            ({"type": "string", "pattern": "(?<=a)b("}, ["whatever"], [1]),
            ({"type": "string", "pattern": r"^(\w+\s?)*$"}, ["a b"], [f"{'a' * 5000}!"]),
            ({"type": "integer"}, [1, 1.0], [1.5, "1", True]),
            ({"type": "number", "exclusiveMinimum": 0, "multipleOf": 0.5}, [1, 0.5], [0, "1", True, 0.7]),
            ({"type": "boolean"}, [True], [1, "true"]),
            ({"type": "null"}, [None], [0]),
            ({"type": ["string", "null"]}, ["a", None], [1]),
            (
                {"type": "array", "items": {"type": "integer"}, "maxItems": 2},
                [[], [1, 2]],
                [["a"], [1, 2, 3], "a"],
            ),
            ({"type": "array"}, [[1, "a"]], ["a"]),
            ({"type": "object"}, [{"a": 1}], [1, []]),
            ({"type": "object", "additionalProperties": {"type": "integer"}}, [{"a": 1}], [{"a": "b"}]),
            (
                {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
                [{"a": 1}, {"a": 1, "b": 2}],
                [{}, {"a": "1"}],
            ),
            (
                {"type": "object", "properties": {"a": {}}, "additionalProperties": False},
                [{"a": 1}],
                [{"b": 1}],
            ),
            ({"enum": ["a", 1, None]}, ["a", 1, None], ["b", 2]),
            ({"enum": [1.5, [2]]}, [1.5, [2]], [1, 2.5, "a"]),
            ({"const": "a"}, ["a"], ["b"]),
            ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, ["a", 1], [1.5, None]),
            ({"allOf": [{"type": "string"}]}, ["a"], [1]),
            ({"allOf": [{"type": "string"}, {"minLength": 3}]}, ["a", 1], []),
            ({}, [1, "a", None], []),
            ({"enum": [1, 2]}, [1, 2], [True, 1.0, "1", 3]),
            ({"enum": [True, None]}, [True, None], [1, False]),
            ({"enum": [[1], {"a": 1}]}, [[1], {"a": 1}], [[True], {"a": 1.0}, 1]),
        ],
    )
    def test_values(self, schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
        is_valid = check(schema)
        assert [value for value in good if not is_valid(value)] == []
        assert [value for value in bad if is_valid(value)] == []

    def test_references(self) -> None:
        tree = {
            "$ref": "#/$defs/Tree",
            "outside": {
                "$defs": {
                    "Tree": {
                        "type": "object",
                        "properties": {"left": {"$ref": "#/$defs/Tree"}, "n": {"type": "integer"}},
                    }
                }
            },
        }
        is_valid = check(tree)
        assert is_valid({"n": 1, "left": {"n": 2}})
        assert not is_valid({"n": "1"})
        assert check({"$ref": "#/$defs/Nowhere"})(1)

    @pytest.mark.parametrize("place", ["definitions", "a~b"])
    def test_references_to_other_places(self, place: str) -> None:
        ref = f"#/{place.replace('~', '~0')}/Age"
        is_valid = check({"$ref": ref, "outside": {place: {"Age": {"type": "integer"}}}})
        assert is_valid(1)
        assert not is_valid("1")

    def test_names_that_are_no_attributes(self) -> None:
        names = ["from", "x-y", "x_y", "1st", "json", "model_dump", "_hidden", "é", "!"]
        model = model_of("m", {"properties": {name: {"type": "integer"} for name in names}})
        valid = model.model_validate(dict.fromkeys(names, 1))
        assert valid.model_dump() == dict.fromkeys(names, 1)
        assert list(model.model_json_schema()["properties"]) == names

    def test_a_pattern_that_is_not_checked_warns_once(self, caplog: pytest.LogCaptureFixture) -> None:
        for _ in range(2):
            assert check({"type": "string", "pattern": "^(?!secret)"})("secret")
        assert [record.message for record in caplog.records] == [
            "values aren't checked against the pattern '^(?!secret)': it needs look-around, a backreference or "
            "too much memory"
        ]

    def test_what_is_required_needs_no_schema(self) -> None:
        model = model_of("m", {"type": "object", "properties": {"x": {}}, "required": ["player", "x"]})
        model.model_validate({"player": [1], "x": None})
        with pytest.raises(ValueError, match="player"):
            model.model_validate({"x": 1})

    async def test_a_model_that_holds_itself(self) -> None:
        made = MAILAction.from_pydantic_model(Node, lambda node: str(node["n"]))
        assert made.parameters["type"] == "object"
        assert made.parameters["required"] == ["n"]
        root = {"$ref": "#/$defs/Node", "$defs": made.parameters["$defs"]}
        for each in (made, MAILAction("node", "d", root, lambda node: str(node["n"]))):
            assert each.to_tool_dict()["parameters"]["properties"].keys() == {"n", "next"}
            assert await each({"n": 1, "next": {"n": 2}}) == "1"
            with pytest.raises(ToolCallFault, match="n: "):
                await each({"n": "one"})
            with pytest.raises(ToolCallFault, match="next"):
                await each({"n": 1, "next": 2})


class Node(BaseModel):
    """A link of a chain."""

    n: int
    next: "Node | None" = None


def of_x(schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"x": schema}}


BAD_SCHEMAS: list[tuple[Any, str]] = [
    (None, "None is not an object"),
    ([], "is not an object"),
    ("object", "is not an object"),
    ({"type": "array"}, "its type is 'array'"),
    ({"type": ["object"]}, "its type is "),
    ({"type": "object", "properties": ["x"]}, "properties must be an object"),
    ({"type": "object", "properties": None}, "properties must be an object"),
    ({"type": "object", "required": "x"}, "required must be a list of names"),
    ({"type": "object", "required": [1]}, "required must be a list of names"),
    ({"type": "object", "$defs": []}, r"\$defs must be an object"),
    ({"$ref": "#/$defs/X"}, r"\$ref must name the definition"),
    ({"$ref": 3, "$defs": {"X": {}}}, r"\$ref must name the definition"),
    (of_x("string"), "property 'x' must have a schema"),
    (of_x({"type": "strng"}), "x: unknown type 'strng'. Did you mean 'string'"),
    (of_x({"type": 3}), "parameters of 'x'"),
    (of_x({"type": "integer", "minimum": "1"}), "x: minimum can't be '1'"),
    (of_x({"type": "integer", "multipleOf": 0}), "x: multipleOf can't be 0"),
    (of_x({"type": "string", "minLength": -1}), "x: minLength can't be -1"),
    (of_x({"type": "string", "maxLength": "9"}), "x: maxLength can't be '9'"),
    (of_x({"type": "string", "pattern": 3}), "x: pattern can't be 3"),
    (of_x({"enum": "ab"}), "x: enum must be a list"),
    (of_x({"enum": []}), "x: enum must be a list"),
    (of_x({"anyOf": []}), "x: anyOf must be a list of schemas"),
    (of_x({"anyOf": ["string"]}), "x: anyOf must be a list of schemas"),
    (of_x({"allOf": {}}), "x: allOf must be a list of schemas"),
    (of_x({"type": "array", "items": {"type": "int"}}), "x: unknown type 'int'"),
    (of_x({"type": "object", "properties": 3}), "properties must be an object"),
]


class TestBadSchemas:
    @pytest.mark.parametrize(("schema", "complaint"), BAD_SCHEMAS)
    def test_refused_where_the_action_is_made(self, schema: Any, complaint: str) -> None:
        with pytest.raises(ConfigurationError, match=complaint):
            MAILAction("x", "d", schema, paint)
        with pytest.raises(ConfigurationError, match=complaint):
            MAILAction("x", "d", schema, repaint)

    @pytest.mark.parametrize("function", [f"python::{HERE}:paint", None])
    def test_refused_where_a_swarm_is_loaded(self, function: str | None) -> None:
        entry = ActionSpec(name="x", parameters=of_x({"type": "int"}), function=function)
        with pytest.raises(ConfigurationError, match="unknown type 'int'"):
            build_action(entry, resolver(None))

    def test_nested_without_end(self) -> None:
        schema: dict[str, Any] = {}
        for _ in range(5000):
            schema = {"type": "array", "items": schema}
        with pytest.raises(ConfigurationError, match="nested too deep"):
            model_of("x", of_x(schema))


def stops(arguments: dict[str, Any]) -> str:
    raise {"next": StopIteration, "exit": SystemExit, "break": KeyboardInterrupt}[arguments["how"]]("enough")


@pytest.mark.parametrize("how", ["next", "exit", "break"])
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_an_action_that_would_stop_everything_only_fails(how: str) -> None:
    schema = {"type": "object", "properties": {"how": {"type": "string"}}}
    made = MAILAction("stops", "d", schema, stops)
    with pytest.raises(RuntimeError, match="enough") as raised:
        async with asyncio.timeout(60):
            await made({"how": how})
    assert raised.value.__cause__ is not None
