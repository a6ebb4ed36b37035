"""Lines at the prompt: how they are cut, understood, completed and kept."""

import json
import random
import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mail.cli.command import Command
from mail.cli.connection import connect
from mail.cli.output import Output
from mail.cli.repl.commands import COMMANDS, PROMPT, begin
from mail.cli.repl.shell import PlainLines
from mail.cli.repl.terminal import candidates, history_file, holds_secret, open_history
from mail.cli.repl.words import Scanned, scan, split
from mail.cli.session import Session, UsageError, reveal

# --------------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ('message "a b" c', ["message", "a b", "c"]),
        ("a \\\n  b", ["a", "b"]),
        ("a\\\nb", ["ab"]),
        ("'a\\\nb'", ["a\\\nb"]),
        ('"a\\\nb\nc"', ["ab\nc"]),
        ("""'{"x": "{\\"y\\": 1}"}'""", ['{"x": "{\\"y\\": 1}"}']),
        ("it\\'s", ["it's"]),
        ("  ", []),
    ],
)
def test_words_are_cut_as_a_shell_does(typed: str, words: list[str]) -> None:
    assert split(typed) == words
    assert scan(typed).is_whole


@pytest.mark.parametrize("typed", ['a "b', "a 'b", "a \\", "'a\\", '"a\\"'])
def test_what_is_not_whole_goes_on(typed: str) -> None:
    assert not scan(typed).is_whole
    with pytest.raises(ValueError, match="No "):
        split(typed)


def test_words_are_cut_as_the_standard_library_cuts_them() -> None:
    """`shlex` takes quadratic time, and knows nothing of lines that go on; else they agree."""
    chance = random.Random(0)
    for _ in range(5_000):
        typed = "".join(chance.choices("ab '\"\\\t", k=chance.randrange(12)))
        try:
            expected = shlex.split(typed)
        except ValueError:
            assert not scan(typed).is_whole, typed
            continue
        assert scan(typed).is_whole, typed
        assert split(typed) == expected, typed


@pytest.mark.soak(on="backslashes")
@pytest.mark.parametrize(
    "typed",
    ["x", "message '{}'", 'message "{}"', "a 'b'\"c\" ", "\\x"],
    ids=["a word", "single quotes", "double quotes", "many words", "backslashes"],
)
def test_words_are_cut_in_time_in_proportion_to_the_length(typed: str) -> None:
    """Sixteen times the length takes sixteen times as long and not 256 times; the shortest of some runs is no
    accident.
    """

    def seconds(length: int) -> float:
        line = typed.format("x" * length) if "{}" in typed else typed * (length // len(typed))
        runs = []
        for _ in range(5):
            begun = time.thread_time()
            split(line)
            scan(line)
            runs.append(time.thread_time() - begun)
        return min(runs)

    seconds(1_000)  # compiled, and in the cache
    assert seconds(320_000) < 64 * max(seconds(20_000), 1e-4)


def test_lines_that_go_on_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scanned = []

    def count(typed: str, *rest: str) -> Scanned:
        scanned.append(len(typed))
        return scan(typed, *rest)

    monkeypatch.setattr("mail.cli.repl.shell.scan", count)
    lines = ["message 'begun\n", *(f"line {n}\n" for n in range(1_000)), "and ended'\n", "whoami"]
    one, two = read_all(lines)
    assert (split(one)[1].count("\n"), two) == (1_001, "whoami")
    assert sum(scanned) <= sum(map(len, lines))


def test_a_byte_order_mark_is_no_part_of_a_command() -> None:
    assert list(read_all(["\ufeff# a comment\n", "whoami\n"])) == ["whoami\n"]
    assert list(read_all(["\ufeffwhoami"])) == ["whoami"]


def read_all(lines: list[str]) -> Iterator[str]:
    plain = PlainLines(lines)
    while (typed := plain.read()) is not None:
        yield typed


def test_piped_lines_are_joined_and_comments_left_out() -> None:
    lines = ["# a comment\n", "a \\\n", "# no comment\n", "\n", "b 'c\n", "d'\n", "e"]
    assert [split(typed) for typed in read_all(lines)] == [
        ["a", "#", "no", "comment"],
        [],
        ["b", "c\nd"],
        ["e"],
    ]
    assert list(read_all([])) == []
    assert list(read_all(["a 'b\n"])) == ["a 'b\n"]


# ------------------------------------------------------------------------------------------------ commands


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_help(
    command: Command, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    assert begin([f"/{command.name}", "--help"], session) is None
    shown = capsys.readouterr().out
    assert shown.startswith(f"Usage: /{command.name} [OPTIONS]")
    assert command.summary.split()[0] in shown


def given_by(*words: str) -> dict[str, Any]:
    """What the arguments of a line are parsed to."""
    return PROMPT.commands[words[0]].make_context(words[0], list(words[1:])).params


def test_arguments_of_a_message() -> None:
    kwargs = '{"max_steps": 3}'
    given = given_by("message", "hello", "there", "--task-id", "t", "--kwargs", kwargs, "--show-events")
    assert (given["body"], given["task_id"], given["settings"]) == ("hello there", "t", {"max_steps": 3})
    assert (given["show_events"], given["entrypoint"], given["resume_from"]) == (True, None, None)


def test_an_id_alone_is_of_a_turn_of_the_last_task() -> None:
    given = given_by("task-turn", "5")
    assert (given["task_id"], given["seq"], given["limit"]) == ("", 5, None)
    assert given_by("task-turn", "trip", "5")["task_id"] == "trip"


def test_targets_are_a_list_or_one() -> None:
    for targets in ('["a@b", "c@d"]', "a@b"):
        given = given_by("message-interswarm", "hi", targets, "$KEY")
        assert given["targets"] == (json.loads(targets) if "[" in targets else [targets])
        assert given["token"] == "$KEY"


def test_json_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "swarm.json"
    file.write_text('[{"role": "user"}]', encoding="utf-8")
    assert given_by("swarm-load-from-json", f"@{file}")["json_str"] == '[{"role": "user"}]'
    assert given_by("responses", f"@{file}")["input"] == [{"role": "user"}]
    plain = given_by("responses", "plain text")
    assert (plain["input"], plain["tools"], plain["parallel_tool_calls"]) == ("plain text", [], None)


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("mesage hi", "did you mean message?"),
        ("zzz", "help lists them"),
        ("and 2**17", 'message "…"'),
        ("message", "'TEXT...'; see help message"),
        ("/reply trip", "'TEXT...'; see /help reply"),
        ("message hi --task", "--task"),
        ("message hi --kwargs {", "not JSON"),
        ("message hi --kwargs []", "not a JSON object"),
        ("message hi --resume-from nowhere", "user_response"),
        ("message-interswarm hi '[1]'", "not a list of texts"),
        ("responses hi {}", "not a JSON list"),
        ("swarm-load-from-json @/nowhere/x.json", "can't be read"),
        ("tasks --limit many", "--limit"),
    ],
)
def test_what_is_wrong_is_said(session: Session, typed: str, told: str) -> None:
    with pytest.raises(UsageError) as trouble:
        begin(split(typed), session)
    assert told in trouble.value.detail


def test_a_key_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "secret")
    monkeypatch.delenv("NO_KEY", raising=False)
    assert reveal("$SOME_KEY") == reveal("${SOME_KEY}") == "secret"
    assert reveal("pa$$word") == "pa$$word"
    assert reveal(None) is None
    with pytest.raises(UsageError, match="NO_KEY"):
        reveal("$NO_KEY")


# ---------------------------------------------------------------------------------------------- completion


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A session that has seen two tasks and an agent."""
    monkeypatch.chdir(tmp_path)
    found = Session(connect("http://localhost", "the-key"), Output((tmp_path / "out").open("w")))
    found.memory.add_task("old")
    found.memory.add_task("new")
    address = {"address_type": "agent", "address": "weather"}
    user = {"address_type": "user", "address": "alice"}
    message = {"message": {"sender": user, "recipient": address}}
    found.memory.learn({"task_id": "new", "extra_data": {"full_message": message}})
    yield found
    found.output.stream.close()


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("mess", ["message", "message-stream", "message-interswarm"]),
        ("help swarm-d", ["swarm-dump"]),
        ("message hi --ta", ["--task-id"]),
        ("message hi --task-id ", ["new", "old"]),
        ("message hi --task-id o", ["old"]),
        ("message --entrypoint ", ["weather"]),
        ("message hi --resume-from u", ["user_response"]),
        ("tasks --status p", ["paused"]),
        ("task ", ["new", "old"]),
        ("task -e ", ["new", "old"]),
        ("task old ", []),
        ("task-watch --after 3 ", ["new", "old"]),
        ("message-interswarm hi we", ["weather"]),
        ("login ", []),
        ("nonsense ", []),
        ("message 'hi ta", []),
        ("message hi --task-id new --task", []),
    ],
)
def test_completes_what_comes_next(session: Session, before: str, words: list[str]) -> None:
    begun, found = candidates(before, session)
    assert [candidate.value for candidate in found] == words
    assert all(word.startswith(begun) for word in words)


def test_nothing_typed_completes_to_every_command(session: Session) -> None:
    _, found = candidates("", session)
    names = {command.name for command in COMMANDS if not command.needs_slash}
    assert {candidate.value for candidate in found} > names - {"help"}
    _, found = candidates("/", session)
    assert {candidate.value for candidate in found} >= {f"/{command.name}" for command in COMMANDS}


# ------------------------------------------------------------------------------------------------- history


@pytest.mark.parametrize(
    "typed",
    [
        "login s3cret",
        "login s3cret again",
        "message-interswarm hi a@b s3cret",
        "message-interswarm --what hi a@b s3cret",
        "swarm-register n http://n --auth-token s3cret",
        "swarm-register n http://n s3cret",
        "message 'my key is mail_user_abc'",
        "login 's3cret",
        "logn mail_admin_abc",
        "message the-key",
        "anything swarm://connect?server=a&token=s3cret",
    ],
)
def test_keys_are_not_kept(typed: str) -> None:
    assert holds_secret(typed, "the-key")


@pytest.mark.parametrize(
    "typed",
    [
        "login",
        "login $KEY",
        "message hi",
        "message-interswarm hi a@b",
        "message-interswarm hi a@b ${KEY}",
        "zzz",
        "",
    ],
)
def test_all_else_is_kept(typed: str) -> None:
    assert not holds_secret(typed, "the-key")


def test_the_history_is_its_owners(session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = history_file()
    assert path == tmp_path / "state" / "mail" / "client_history"
    path.parent.mkdir(parents=True)
    path.touch(mode=0o644)
    history = open_history(session)
    for line in ("message hi", "login s3cret"):
        history.append_string(line)
    assert path.stat().st_mode & 0o777 == 0o600
    assert "+message hi" in path.read_text(encoding="utf-8")
    assert "s3cret" not in path.read_text(encoding="utf-8")
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert history_file().is_absolute()


def test_without_a_place_the_history_lasts_for_the_run(session: Session, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    history = open_history(session, tmp_path / "file" / "history")
    history.append_string("message hi")
    assert list(history.get_strings()) == ["message hi"]
