"""Output schemas: which are accepted, and which answers fit."""

from dataclasses import dataclass
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel

from mail.core.protocol.output_schema import (
    MAX_SCHEMA_BYTES,
    answer_tool,
    check_schema,
    fit,
    read_object,
    schema_of,
)
from mail.errors import BadRequest, ToolCallFault


class Finding(BaseModel):
    claim: str
    score: float


class Report(BaseModel):
    title: str
    findings: list[Finding]


@dataclass
class Point:
    x: int


class Named(TypedDict):
    name: str


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (
            Report,
            '{"title":"MAIL","findings":[{"claim":"a","score":1}]}',
            Report(title="MAIL", findings=[Finding(claim="a", score=1)]),
        ),
        (Point, '{"x":1}', Point(1)),
        (Named, '{"name":"a"}', {"name": "a"}),
        (list[int], "[1,2]", [1, 2]),
        ({"type": "object", "required": ["a"]}, '{"a":1}', {"a": 1}),
    ],
)
def test_what_an_output_type_may_be(kind: Any, text: str, value: object) -> None:
    assert fit(schema_of(kind), text) == text
    assert read_object(kind, text) == value


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ('{"title":"t"}', "at /: 'findings' is a required property"),
        (
            '{"title":1,"findings":[{"claim":"a","score":"high"}]}',
            "at /title: 1 is not of type 'string'; at /findings/0/score: 'high' is not of type 'number'",
        ),
        ("I can't.", "it is not JSON"),
        ('"{}"', "is not of type 'object'"),
    ],
)
def test_a_fault_says_where_the_answer_does_not_fit(text: str, where: str) -> None:
    with pytest.raises(ToolCallFault) as fault:
        fit(schema_of(Report), text)
    assert where in fault.value.detail


@pytest.mark.parametrize(
    ("schema", "text", "answer"),
    [
        ({"type": "object"}, '```json\n{"a": 1}\n```', '{"a":1}'),
        ({"type": "object"}, '"{\\"a\\": 1}"', '{"a":1}'),
        ({"type": "string"}, "plain words", '"plain words"'),
        ({}, "[1]", "[1]"),
        ({"uniqueItems": True}, "[1, 2]", "[1,2]"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}, "null", "null"),
    ],
)
def test_what_models_make_of_json(schema: dict[str, Any], text: str, answer: str) -> None:
    assert fit(check_schema(schema), text) == answer


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "strin"}, "at #/type"),
        (
            {"properties": {"a": {"$ref": "https://example.com/a.json"}}},
            "may only refer to the schema itself",
        ),
        ({"$ref": "#/$defs/a"}, "there is no '#/$defs/a'"),
        ({"items": {"pattern": "(?=a)b"}}, "the pattern '(?=a)b' is not supported, at #/items"),
        ({"allOf": [{"patternProperties": {}}]}, "patternProperties is not supported, at #/allOf/0"),
        ({"x": {"unevaluatedItems": False}, "$ref": "#/x"}, "unevaluatedItems is not supported, at #/x"),
        ({"description": "x" * MAX_SCHEMA_BYTES}, "at most 8192 are allowed"),
        ({"const": float("nan")}, "is not JSON"),
        ({"const": object()}, "is not JSON"),
    ],
)
def test_a_schema_that_is_refused(schema: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        check_schema(schema)
    assert problem in refusal.value.detail


def test_a_property_may_be_called_as_a_keyword_that_is_not_supported() -> None:
    check_schema({"properties": {"patternProperties": {"type": "string"}, "$id": {}}})


_DOUBLED = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(30)}


@pytest.mark.soak(on="a billion steps")
@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ({"$ref": "#/$defs/a0", "$defs": {**_DOUBLED, "a30": {}}}, "1"),
        ({"$ref": "#"}, "1"),
        ({"type": "string", "pattern": "^(a+)+$"}, '"' + "a" * 5000 + '!"'),
        ({"uniqueItems": True}, "[" + ",".join(["{}"] * 5000) + "]"),
    ],
    ids=["a billion steps", "no end", "a slow pattern", "many pairs"],
)
def test_no_schema_occupies_the_server(schema: dict[str, Any], text: str) -> None:
    """Unbounded, each of them would take longer than any test may."""
    with pytest.raises(ToolCallFault):
        fit(check_schema(schema), text)


def test_the_argument_of_task_complete_refers_to_its_own_definitions() -> None:
    tree = {
        "$defs": {"leaf": {"type": "integer"}},
        "properties": {"leaf": {"$ref": "#/$defs/leaf"}, "parts": {"items": {"$ref": "#"}}},
    }
    parameters = answer_tool(tree)
    fit(check_schema(parameters), '{"output": {"leaf": 1, "parts": [{"leaf": 2}]}}')
    with pytest.raises(ToolCallFault, match="/output/parts/0/leaf"):
        fit(parameters, '{"output": {"parts": [{"leaf": "no"}]}}')
