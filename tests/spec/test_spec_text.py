"""The tables of SPEC.md are those of the code."""

import re

import pytest
import yaml
from spec_folder import SPEC

from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.message import PAYLOAD_TYPES, MAILBroadcast, MAILInterrupt, MAILRequest, MAILResponse
from mail.core.protocol.values import Value
from mail.core.task.events import TERMINAL, EventKind
from mail.core.task.live import LiveKind
from mail.core.task.task import LIFECYCLE, TaskStatus, Transition
from mail.errors import Subject

TEXT = (SPEC / "SPEC.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\d+) [^\n]+\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))

KILOBYTES = 42
"""The help tool gives the whole text to an agent, so it must not fill its context."""


def rows(section: str) -> list[list[str]]:
    """The rows of the section's tables, without their heads."""
    tables = re.findall(r"(?:^\|.*\n)+", SECTIONS[section], re.MULTILINE)
    return [line.strip("| ").split(" | ") for table in tables for line in table.splitlines()[2:]]


def code(cell: str) -> list[str]:
    """The words in `code` of a cell, with the question mark that may follow."""
    return [name + mark for name, mark in re.findall(r"`([^`]+)`(\??)", cell)]


def test_the_text_has_its_sections_and_is_short() -> None:
    assert list(SECTIONS) == [str(number) for number in range(1, 12)]
    assert len(TEXT.encode()) <= KILOBYTES * 1024


def test_the_table_of_messages() -> None:
    shapes: list[type[Value]] = [MAILRequest, MAILResponse, MAILBroadcast, MAILInterrupt]
    common = set.intersection(*(set(shape.model_fields) for shape in shapes))
    table = {kind: (row[1], code(row[2])) for row in rows("3") for kind in code(row[0])}
    assert table.keys() == PAYLOAD_TYPES.keys()
    for kind, (shape, own) in table.items():
        fields = PAYLOAD_TYPES[kind].model_fields
        marked = {name if fields[name].is_required() else f"{name}?" for name in fields.keys() - common}
        assert (shape, set(own)) == (PAYLOAD_TYPES[kind].__name__, marked)
    assert all(f"`{name}`" in SECTIONS["3"] for name in common)


def test_the_table_of_tools() -> None:
    table = {code(row[0])[0]: code(row[1]) for row in rows("6")}
    assert table == {
        name: [field if info.is_required() else f"{field}?" for field, info in tool.arguments().items()]
        for name, tool in MAIL_TOOLS.items()
    }


def test_the_table_of_events() -> None:
    table = [kind for row in rows("9") for kind in code(row[0])]
    assert sorted(table) == sorted(kind.value for kind in (*EventKind, *LiveKind))
    terminal = {kind for row in rows("9") for kind in code(row[0]) if "terminal" in row[1]}
    assert terminal == {kind.value for kind in TERMINAL}


def test_the_life_of_a_task() -> None:
    words = set(re.findall(r"[a-z]+", SECTIONS["5"].split("```")[0].split("**")[0]))
    assert words >= {state.value for state in TaskStatus} | {each.value for each in Transition}
    assert len(LIFECYCLE) == 9


def test_the_fields_of_the_wrapper() -> None:
    assert all(f"`{field}`" in SECTIONS["7"] for field in MAILInterswarmMessage.model_fields)


@pytest.mark.parametrize("subject", sorted(set(re.findall(r"::[a-z_]+::", TEXT))))
def test_a_subject_is_one_of_the_runtime(subject: str) -> None:
    assert subject in {each.value for each in Subject}


def test_the_table_of_routes_has_every_route_of_the_server() -> None:
    paths = yaml.safe_load((SPEC / "openapi.yaml").read_text(encoding="utf-8"))["paths"]
    missing = [
        f"{method.upper()} {path}"
        for path, operations in paths.items()
        for method in operations
        if not any(f"`{path}`" in row[0] and method.upper() in row[0] for row in rows("8"))
    ]
    assert not missing
