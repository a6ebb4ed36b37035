"""The commands besides `mail server`, each in a process of its own."""

import json
import socket
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.processes.server import ServerProcess, run_mail

from mail.local_aws.processes import free_port

TWO_WORKERS = [  # what `mail demo` asks by default: the order of SPEC, section 9, with a second worker side by side
    *["new_message", "await_message", "new_message", "new_message"],
    *["action", "new_message"] * 2,
    *["await_message", "task_complete"],
]
ONE_WORKER = ["new_message", "await_message", "new_message", "action", "new_message", "task_complete"]


def timeline(output: str) -> list[str]:
    """The kinds of the events that a demo has shown, in order."""
    columns = [line.split() for line in output.splitlines()]
    return [words[3] for words in columns if words[2:3] in (["ms"], ["s"]) and words[3] in TWO_WORKERS]


def test_version(tmp_path: Path) -> None:
    done = run_mail("version", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines() == ["MAIL implementation 1.3.0", "MAIL protocol 1.3"]
    as_json = run_mail("version", "--json", cwd=tmp_path)
    assert json.loads(as_json.stdout) == {"implementation": "1.3.0", "protocol": "1.3"}
    assert run_mail("--version", cwd=tmp_path).stdout == done.stdout
    assert "--version" in run_mail("--help", cwd=tmp_path).stdout


def test_ping_a_server(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        done = run_mail("ping", server.url, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "✓ example-no-proxy is healthy\n")
        as_json = json.loads(run_mail("ping", f"{server.url}/", "--json", cwd=tmp_path).stdout)
        assert as_json["reachable"] is True
        assert as_json["swarm_name"] == "example-no-proxy"
        with server.client("admin") as client:
            client.post("/health", json={"status": "draining"})
        assert run_mail("ping", server.url, cwd=tmp_path).stdout == "✓ example-no-proxy is draining\n"
        host = server.url.removeprefix("http://")
        assert run_mail("ping", host, cwd=tmp_path).stdout == "✓ example-no-proxy is draining\n"
        wrong = f"https://{host}"
        hint = f"annot connect to {wrong}, but {server.url} answers\n"
        assert run_mail("ping", wrong, cwd=tmp_path).stdout == f"✗ C{hint}"
        assert run_mail("task", "list", "--server", wrong, cwd=tmp_path).stderr.endswith(f"c{hint}")


def test_ping_nobody(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = run_mail("ping", url, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, f"✗ Cannot connect to {url}\n")
    as_json = run_mail("ping", url, "--json", "--timeout", "1", cwd=tmp_path)
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["reachable"] is False


def test_ping_a_server_that_keeps_silent(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        done = run_mail("ping", url, "--timeout", "0.2", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, f"✗ Cannot connect to {url}\n")


def test_db_init_can_be_repeated_while_a_server_runs(tmp_path: Path) -> None:
    first = run_mail("db-init", cwd=tmp_path)
    assert first.returncode == 0
    assert " OK\n" in first.stdout
    assert run_mail("db-init", "--database", "sqlite:///mail.db", cwd=tmp_path).stdout == first.stdout
    with ServerProcess(tmp_path) as server:
        assert server.tokens, "empty tables are as good as none"
        assert run_mail("db-init", cwd=tmp_path).stdout == first.stdout


@pytest.mark.soak
def test_a_backup_of_a_running_server_is_restored(tmp_path: Path) -> None:
    backup = tmp_path / "kept.db"
    with ServerProcess(tmp_path) as server, server.client("user") as client:
        client.post("/message", json={"body": "2**10", "task_id": "kept"})
        done = run_mail("backup", "kept.db", "--json", cwd=tmp_path)
        assert json.loads(done.stdout) == {
            "database": "mail.db",
            "backup": "kept.db",
            "bytes": backup.stat().st_size,
        }
        assert backup.stat().st_mode & 0o777 == 0o600
        again = run_mail("backup", "kept.db", cwd=tmp_path)
        assert (again.returncode, again.stdout) == (2, "")
        assert "kept.db exists already; name a new file" in again.stderr
        client.post("/message", json={"body": "2**11", "task_id": "later"})
        refused = run_mail("restore", "kept.db", cwd=tmp_path)
        assert refused.returncode == 2
        assert "another server or program works with mail.db; stop it" in refused.stderr
        assert client.get("/task", params={"task_id": "later"}).status_code == 200
    done = run_mail("restore", "kept.db", "--json", cwd=tmp_path)
    replaced = json.loads(done.stdout)["replaced"]
    assert (tmp_path / replaced).is_file()
    with ServerProcess(tmp_path) as restored:
        restored.tokens = server.tokens  # which the backup has, too
        with restored.client("user") as client:
            assert client.get("/task", params={"task_id": "kept"}).status_code == 200
            assert client.get("/task", params={"task_id": "later"}).status_code == 404


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("backup",), "there is no database mail.db"),
        (("backup", "--database", "none"), "there is no database :memory:"),
        (("backup", "--database", "postgresql://ann:secret@host/mail"), "use pg_dump"),
        (("backup", "--database", "dynamodb://mail"), "restore-table-to-point-in-time"),
        (("restore", "nowhere.db"), "there is no database nowhere.db"),
        (("restore", "notes.txt"), "notes.txt can't be used for a backup: file is not a database"),
        (("restore", "other.db"), "other.db is not a database of MAIL"),
    ],
)
def test_backups_that_are_refused(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    (tmp_path / "notes.txt").write_text("not a database, by any means" * 100, encoding="utf-8")
    with closing(sqlite3.connect(tmp_path / "other.db")) as other:
        other.execute("CREATE TABLE tasks (id)")
    before = sorted(tmp_path.iterdir())
    done = run_mail(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert "secret" not in done.stderr
    assert sorted(tmp_path.iterdir()) == before


def test_token_of_a_running_server_works_at_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        done = run_mail("token", "create", "--role", "admin", "--id", "alice", cwd=tmp_path)
        assert done.returncode == 0
        server.tokens["admin"] = done.stdout.strip()
        with server.client("admin") as client:
            assert client.get("/whoami").json() == {"id": "alice", "role": "admin"}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--role", "user", "--id", "a:b"],
        ["--role", "user", "--id", "a@b"],
        ["--role", "user", "--id", ""],
        ["--role", "root", "--id", "a"],
        ["--role", "user"],
        ["--role", "user", "--id", "a", "--database", "none"],
    ],
)
def test_token_create_refuses(tmp_path: Path, arguments: list[str]) -> None:
    done = run_mail("token", "create", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "mail.db").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["serv"], "server"),
        (["server", "--prt", "1"], "--port"),
        (["server", "--print-llm-streams", "maybe"], "true"),
        (["token", "remove"], "remove"),
        (["ping", "example.com"], "http"),
        ([], "Usage"),
    ],
)
def test_wrong_command_lines(tmp_path: Path, arguments: list[str], told: str) -> None:
    done = run_mail(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stdout + done.stderr


def test_demo_shows_the_events_in_order(tmp_path: Path) -> None:
    (tmp_path / "mail.toml").write_text("this is not TOML", encoding="utf-8")  # the demo is nobody's server
    done = run_mail("demo", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    kinds = timeline(done.stdout)
    assert sorted(kinds) == sorted(TWO_WORKERS)
    assert kinds[:4] == TWO_WORKERS[:4]
    assert kinds[-1] == TWO_WORKERS[-1]
    assert "Answer: The weather in Tokyo" in done.stdout
    assert "12*(3+4) = 84." in done.stdout
    assert "mail server" in done.stdout.partition("Answer: ")[2]
    assert list(tmp_path.iterdir()) == [tmp_path / "mail.toml"], "it leaves nothing behind"


def test_demo_of_one_worker_is_in_wires_order(tmp_path: Path) -> None:
    done = run_mail("demo", "weather in Paris", cwd=tmp_path)
    assert timeline(done.stdout) == ONE_WORKER


def test_demo_without_a_message(tmp_path: Path) -> None:
    assert run_mail("demo", " ", cwd=tmp_path).returncode == 2
