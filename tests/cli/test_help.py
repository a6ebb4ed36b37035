"""The help of every command: its summary fits, and its examples can be typed."""

import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest

from mail.cli.app import SECTIONS, app
from mail.cli.examples import EXAMPLES

WIDTH = 80
ROOT: Any = app


def commands(group: Any = ROOT, name: str = "") -> Iterator[tuple[str, Any]]:
    """All commands, with their names; groups too."""
    for word in group.list_commands(click.Context(group)):
        full, command = f"{name} {word}".strip(), group.get_command(click.Context(group), word)
        yield full, command
        if isinstance(command, click.Group):
            yield from commands(command, full)


def help_of(command: Any, name: str) -> str:
    with command.make_context(f"mail {name}", [], resilient_parsing=True, terminal_width=WIDTH) as context:
        return str(command.get_help(context))


@pytest.mark.parametrize(("name", "group"), [("", ROOT), *commands()])
def test_summaries_fit_in_the_width(name: str, group: Any) -> None:
    listed = [line for line in help_of(group, name).splitlines() if line.endswith("...")]
    assert [line for line in listed if not line.startswith("Usage:")] == []


def test_the_help_lists_every_command_in_one_section() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(
        ROOT.list_commands(click.Context(ROOT))
    )
    assert help_of(ROOT, "").index("Start:\n  demo ") < help_of(ROOT, "").index(
        "Administer a server:\n  token "
    )


SINGLE = {name: command for name, command in commands() if not hasattr(command, "commands")}


def test_every_command_has_examples() -> None:
    assert EXAMPLES.keys() == SINGLE.keys()


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("task list", ["--limit", "0"], "0 is not in the range 1<=x<=1000."),
        ("task turn", ["trip", "first"], "'first' is not a valid integer."),
        (
            "usage",
            ["--by", "year"],
            "'year' is not one of 'agent', 'model', 'caller', 'day', 'version', 'task'.",
        ),
        ("token create", ["--role", "boss", "--id", "x"], "'boss' is not one of 'admin', 'user', 'agent'."),
    ],
)
def test_errors_say_what_a_value_must_be(name: str, given: list[str], told: str) -> None:
    with pytest.raises(click.BadParameter) as wrong:
        SINGLE[name].make_context(f"mail {name}", given)
    assert wrong.value.message == told


@pytest.mark.parametrize("name", SINGLE)
def test_examples_are_shown_and_parse(name: str) -> None:
    command, shown = SINGLE[name], help_of(SINGLE[name], name)
    for line in EXAMPLES[name]:
        assert f"\n    {line}\n" in f"{shown}\n"
        words = shlex.split(line.partition(" < ")[0])
        assert " ".join(words[:2]) == f"mail {name.split(maxsplit=1)[0]}"
        given = words[1 + len(name.split()) :]
        with command.make_context(f"mail {name}", given):
            pass
