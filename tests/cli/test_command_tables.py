"""The tables of commands: their rows name operations of the client, and take the parameters of these."""

import inspect

import pytest

from mail.cli.command import Command, HelpRequested
from mail.cli.connection import CommandClient
from mail.cli.repl.commands import COMMANDS, parse
from mail.cli.session import UsageError


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.operation], ids=lambda command: command.name)
def test_arguments_are_parameters_of_the_operation(command: Command) -> None:
    method = getattr(CommandClient, command.operation)
    parameters = inspect.signature(method).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = {parameter.name for parameter in parameters} - {"self"}
    assert {argument.key for argument in command.arguments} <= names


def test_a_row_has_one_way_to_be_performed() -> None:
    assert all(bool(command.operation) is not bool(command.handler) for command in COMMANDS)


def test_no_name_is_taken_twice() -> None:
    names = [name for command in COMMANDS for name in (command.name, *command.also)]
    assert len(names) == len(set(names))
    shell = [command.shell_name for command in COMMANDS if command.shell_name]
    assert len(shell) == len(set(shell)) > 0


def test_defaults_are_shown() -> None:
    with pytest.raises(HelpRequested, match=r"\[default: 20\]"):
        parse(["tasks", "--help"])


@pytest.mark.parametrize(("limit", "problem"), [("0", "at least 1"), ("1001", "at most 1000")])
def test_numbers_have_the_same_limits_everywhere(limit: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parse(["tasks", "--limit", limit])
