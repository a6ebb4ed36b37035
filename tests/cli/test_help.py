"""The help of every command: its summary fits, and its examples can be typed."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from mail.cli.app import app
from mail.cli.examples import EXAMPLES
from mail.cli.help import SECTIONS

WIDTH = 80
ROOT: Any = typer.main.get_command(app)


def commands(group: Any = ROOT, name: str = "") -> Iterator[tuple[str, Any]]:
    """All commands, with their names; groups too."""
    for word, command in group.commands.items():
        full = f"{name} {word}".strip()
        yield full, command
        if hasattr(command, "commands"):
            yield from commands(command, full)


def help_of(command: Any, name: str) -> str:
    with command.make_context(f"mail {name}", [], resilient_parsing=True, terminal_width=WIDTH) as context:
        return str(command.get_help(context))


@pytest.mark.parametrize(("name", "group"), [("", ROOT), *commands()])
def test_summaries_fit_in_the_width(name: str, group: Any) -> None:
    listed = [line for line in help_of(group, name).splitlines() if line.endswith("...")]
    assert [line for line in listed if not line.startswith("Usage:")] == []


def test_the_help_lists_every_command_in_one_section() -> None:
    assert sorted(name for names in SECTIONS.values() for name in names) == sorted(ROOT.commands)
    assert help_of(ROOT, "").index("Start:\n  demo ") < help_of(ROOT, "").index(
        "Administer a server:\n  token "
    )


SINGLE = {name: command for name, command in commands() if not hasattr(command, "commands")}


def test_every_command_has_examples() -> None:
    assert EXAMPLES.keys() == SINGLE.keys()


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("task list", ["--limit", "0"], "must be greater than or equal to 1"),
        ("task turn", ["trip", "first"], "must be a valid integer"),
        ("usage", ["--by", "year"], "'year' is not one of 'agent', 'model', 'caller', 'day', 'task'."),
        ("token create", ["--role", "boss", "--id", "x"], "'boss' is not one of 'admin', 'user', 'agent'."),
    ],
)
def test_help_and_errors_name_no_types_of_python(name: str, given: list[str], told: str) -> None:
    with pytest.raises(typer.BadParameter) as wrong:
        SINGLE[name].make_context(f"mail {name}", given)
    assert wrong.value.message == told
    assert "<str>" not in help_of(SINGLE[name], name)


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
