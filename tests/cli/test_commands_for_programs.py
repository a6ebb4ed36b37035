"""What programs read: JSON, exit codes, and the completion of shells."""

import json
import shlex
from pathlib import Path

import pytest
from support.processes.server import ServerProcess, run_mail
from test_help import commands


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


def test_revoking_needs_the_whole_number(tmp_path: Path) -> None:
    run_mail("token", "create", "--role", "user", "--id", "alice", cwd=tmp_path)
    for number in ("", "a", "0" * 12):
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
        sent, answered = (server.mail(*shlex.split(line)[1:]) for line in (send, reply))
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


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("mail ta", ["task"]),
        ("mail task ", [name.removeprefix("task ") for name, _ in commands() if name.startswith("task ")]),
        ("mail task list --st", ["--status"]),
        ("mail task list --status pa", ["paused"]),
    ],
)
def test_shells_complete(tmp_path: Path, typed: str, offered: list[str]) -> None:
    words = typed.split(" ")
    env = {"_MAIL_COMPLETE": "bash_complete", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    found = run_mail(cwd=tmp_path, env=env).stdout.split()
    assert [each.removeprefix("plain,") for each in found] == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_the_script_for_a_shell_is_printed(tmp_path: Path, shell: str) -> None:
    done = run_mail("--show-completion", shell, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "_MAIL_COMPLETE" in done.stdout


@pytest.mark.parametrize(("shell", "start"), [("bash", ".bashrc"), ("fish", ".config/fish/config.fish")])
def test_completion_is_installed_once(tmp_path: Path, shell: str, start: str) -> None:
    env = {"HOME": str(tmp_path), "SHELL": f"/bin/{shell}"}
    for _ in range(2):
        done = run_mail("--install-completion", cwd=tmp_path, env=env)
        assert done.returncode == 0, done.stderr
    [line] = (tmp_path / start).read_text(encoding="utf-8").split("\n\n")[0].split("\n")[1:-1]
    assert "_MAIL_COMPLETE" in Path(line.removeprefix(". ").strip("'")).read_text(encoding="utf-8")


def test_a_shell_that_completes_nothing_is_refused(tmp_path: Path) -> None:
    done = run_mail("--install-completion", cwd=tmp_path, env={"HOME": str(tmp_path), "SHELL": "/bin/ksh"})
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "ksh is none of bash, zsh, fish, powershell" in done.stderr
