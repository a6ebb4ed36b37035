"""The tables of commands: their rows name operations of the client, and take the parameters of these."""

import inspect
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_help import commands

from mail.cli.app import app
from mail.cli.command import Command
from mail.cli.connection import CommandClient
from mail.cli.repl.commands import COMMANDS


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.operation], ids=lambda command: command.name)
def test_arguments_are_parameters_of_the_operation(command: Command) -> None:
    method = getattr(CommandClient, command.operation)
    parameters = inspect.signature(method).parameters.values()
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
        return
    names = {parameter.name for parameter in parameters} - {"self"}
    assert {param.name for param in command.params} <= names


def test_a_row_has_one_way_to_be_performed() -> None:
    assert all(bool(command.operation) is not bool(command.handler) for command in COMMANDS)


def test_no_name_is_taken_twice() -> None:
    names = [name for command in COMMANDS for name in (command.name, *command.also)]
    assert len(names) == len(set(names))
    shell = [command.shell_name for command in COMMANDS if command.shell_name]
    assert len(shell) == len(set(shell)) > 0


def test_defaults_are_shown() -> None:
    assert "[default: 20;" in CliRunner().invoke(app, ["task", "list", "--help"]).output


# ------------------------------------------------------------------- what docs/cli.md says of all commands, or of some

CLI = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
SINGLE = {name: command for name, command in commands() if not hasattr(command, "commands")}


def options(name: str) -> set[str]:
    return {option for parameter in SINGLE[name].params for option in parameter.opts}


def with_option(option: str) -> set[str]:
    return {name for name in SINGLE if option in options(name)}


def says(pattern: str) -> str:
    """The words between backticks that a sentence of the document has; it must be there."""
    found = re.search(pattern, " ".join(CLI.split()))
    assert found is not None, pattern
    return found[1]


def expand(words: str) -> set[str]:
    """The commands that words in backticks name; a group stands for all of its commands."""
    named = [word.removeprefix("mail ") for word in re.findall(r"`([^`]+)`", words)]
    assert all(any(name == word or name.startswith(f"{word} ") for name in SINGLE) for word in named), named
    return {name for name in SINGLE for word in named if name == word or name.startswith(f"{word} ")}


def test_every_command_that_asks_a_server_names_it_in_the_same_way() -> None:
    asking = expand(says(r"These commands ask a server: (.+?)\. \|"))
    assert with_option("--server") == asking
    keyed = asking - expand(says(r"`--api-key`; (`mail ping`) sends none"))
    assert with_option("--api-key") == keyed | expand(says(r"(`mail check`) takes it for the server of"))
    assert with_option("--timeout") == asking - expand(says(r"`--timeout`, but not for (.+?) \|"))
    assert asking - with_option("--config") == expand(says(r"`--config`, but not for (`mail ping`)"))
    with_url = {
        name
        for name in asking
        if any(p.name == "url" and not p.opts[0].startswith("-") for p in SINGLE[name].params)
    }
    assert with_url - {"webhook register"} == expand(says(r"`--server URL`; (.+?) also take the URL"))


def test_every_command_takes_json_but_those_that_are_named() -> None:
    without = expand(says(r"Every command takes this flag but (.+?), which run")) | expand(
        says(r"and (`mail token revoke`), which prints nothing")
    )
    assert set(SINGLE) - with_option("--json") == without


def test_every_command_is_in_the_table() -> None:
    rows = re.findall(r"^\| (`mail .+?) \| .+ \|$", CLI, re.MULTILINE)
    named = set[str]()
    for row in rows:
        first, *others = re.findall(r"`([^`]+)`", row)
        group = first.removeprefix("mail ").rpartition(" ")[0]
        named.add(first.removeprefix("mail "))
        named |= {
            word.removeprefix("mail ") if word.startswith("mail ") else f"{group} {word}" for word in others
        }
    assert named - {"--version"} == set(SINGLE)


def test_the_server_s_module_takes_the_same_flags() -> None:
    assert "`python -m mail.server` takes the same flags." in CLI
    told = set(
        re.findall(
            r"^\| ((?:`--[\w-]+`?(?: / | or |, )?[^|]*?)) \| ",
            CLI.partition("## mail server")[2].partition("## mail chat")[0],
            re.MULTILINE,
        )
    )
    flags = {flag for row in told for flag in re.findall(r"--[\w-]+", row)}
    declared = {each for p in SINGLE["server"].params for each in (*p.opts, *p.secondary_opts)}
    assert flags == declared - {"--help"}
