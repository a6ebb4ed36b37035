"""What programs read: JSON, exit codes, and the completion of shells."""

import json
import shlex
from pathlib import Path

import pytest
from support.processes.server import ServerProcess, run_mail


def test_tokens_are_listed_and_revoked(tmp_path: Path) -> None:
    create = ("token", "create", "--json", "--role")
    alice = json.loads(run_mail(*create, "user", "--id", "alice", cwd=tmp_path).stdout)
    bob = json.loads(run_mail(*create, "admin", "--id", "bob", cwd=tmp_path).stdout)
    assert (alice["role"], alice["id"]) == ("user", "alice")
    listed = json.loads(run_mail("token", "list", "--json", cwd=tmp_path).stdout)
    assert [(each["role"], each["id"]) for each in listed] == [("user", "alice"), ("admin", "bob")]
    as_text = run_mail("token", "list", cwd=tmp_path).stdout
    assert [line.split("\t") for line in as_text.splitlines()] == [
        ["number", "role", "id", "created", "expires"],
        *([each["number"], each["role"], each["id"], each["created"], "never"] for each in listed),
    ]
    for token in (alice["token"], bob["token"]):
        assert token not in as_text
    done = run_mail("token", "revoke", listed[0]["number"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    again = run_mail("token", "revoke", listed[0]["number"], cwd=tmp_path)
    assert (again.returncode, "mail token list" in again.stderr) == (1, True)
    assert len(json.loads(run_mail("token", "list", "--json", cwd=tmp_path).stdout)) == 1
    with ServerProcess(tmp_path) as server:
        assert server.tokens == {}
        server.tokens = {"user": alice["token"], "admin": bob["token"]}
        assert server.post("1+1").status_code == 401
        with server.client("admin") as client:
            assert client.get("/whoami").json()["id"] == "bob"


@pytest.mark.parametrize("number", ["", "a", "0" * 12])
def test_revoking_needs_the_whole_number(tmp_path: Path, number: str) -> None:
    run_mail("token", "create", "--role", "user", "--id", "alice", cwd=tmp_path)
    assert run_mail("token", "revoke", number, cwd=tmp_path).returncode == 1
    assert len(json.loads(run_mail("token", "list", "--json", cwd=tmp_path).stdout)) == 1


def test_demo(tmp_path: Path) -> None:
    done = run_mail("demo", "2**5", "--json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert [event["id"] for event in events] == [str(n + 1) for n in range(len(events))]
    assert events[-1]["data"]["response"] == "2**5 = 32."


def test_the_demo_says_how_to_answer(tmp_path: Path) -> None:
    done = run_mail("demo", "ask a human: isn't it?", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    send, reply = (line for line in done.stdout.splitlines() if "asked" in line)
    with ServerProcess(tmp_path) as server:
        env = {"MAIL_SERVER": server.url, "MAIL_API_KEY": server.tokens["user"]}
        sent, answered = (run_mail(*shlex.split(line)[1:], cwd=tmp_path, env=env) for line in (send, reply))
    assert (sent.returncode, sent.stdout.splitlines()[0]) == (4, "supervisor asks: isn't it?")
    assert (answered.returncode, answered.stdout, answered.stderr) == (0, "your answer\n", "")


def test_register(tmp_path: Path) -> None:
    done = run_mail("register", "--steps", "macos", "--json", cwd=tmp_path)
    told = json.loads(done.stdout)
    assert (told["registered"], told["platform"]) == (False, "macos")
    assert told["steps"] == run_mail("register", "--steps", "macos", cwd=tmp_path).stdout.rstrip("\n")


def test_tables(tmp_path: Path) -> None:
    done = json.loads(run_mail("db-init", "--json", cwd=tmp_path).stdout)
    assert "tasks" in done["tables"]
    assert done["database"].endswith("mail.db")


def test_ping_takes_its_server_from_the_environment(server: ServerProcess, tmp_path: Path) -> None:
    done = run_mail("ping", "--json", cwd=tmp_path, env={"MAIL_SERVER": server.url})
    assert json.loads(done.stdout)["url"] == server.url


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("mail ta", ["task"]),
        ("mail task ", ["list", "show", "turn", "watch", "cancel", "approve", "reject", "fork"]),
        ("mail task list --st", ["--status"]),
        ("mail task list --status pa", ["paused"]),
    ],
)
def test_shells_complete(tmp_path: Path, typed: str, offered: list[str]) -> None:
    words = typed.split(" ")
    env = {"_MAIL_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    assert run_mail(cwd=tmp_path, env=env).stdout.split() == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_printed(tmp_path: Path, shell: str) -> None:
    env = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # it would find the shell that runs the tests
    done = run_mail("--show-completion", shell, cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stderr
    assert "_MAIL_COMPLETE" in done.stdout
