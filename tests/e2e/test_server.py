"""`mail server` in a process of its own, over real HTTP."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.processes.server import ServerProcess, environment, eventually, run_mail

from mail.local_aws.processes import free_port


def has_text(file: Path) -> bool:
    """Whether a line was written: a file is there before its text is."""
    return file.exists() and file.stat().st_size > 0


def test_first_run_prints_a_token_per_role_once(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        assert set(server.tokens) == {"user", "agent"}, "an admin's is in no log"
        for role in ("admin", "user"):
            with server.client(role) as client:
                assert client.get("/whoami").json() == {"id": role, "role": role}
        assert server.stop() == 0
        server.start()
        assert "mail_" not in server.output
        assert server.ask("12*(3+4)") == "12*(3+4) = 84."


def test_every_run_listens_on_loopback_unless_told_otherwise(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:  # without a mail.toml the host is 0.0.0.0
        for _ in range(2):
            assert server.url.startswith("http://127.0.0.1:")
            assert "Only programs on this machine can connect" in server.output
            assert "add --host 0.0.0.0, or set host in mail.toml" in server.output
            server.stop()
            server.start()
    (tmp_path / "mail.db").unlink()
    (tmp_path / "mail.toml").write_text('[server]\nhost = "0.0.0.0"\n', encoding="utf-8")
    with ServerProcess(tmp_path) as server:
        assert server.tokens
        assert server.url.startswith("http://localhost:")
        assert "Only programs on this machine" not in server.output
    (tmp_path / "mail.toml").unlink()
    services = {"AUTH_ENDPOINT": "http://127.0.0.1:9/login", "TOKEN_INFO_ENDPOINT": "http://127.0.0.1:9/info"}
    with ServerProcess(tmp_path, env=services) as server:
        assert server.url.startswith("http://localhost:"), "the documented default, for others"


def test_what_was_accepted_survives_kill_minus_9(slow_folder: Path) -> None:
    turns = slow_folder / "turns.txt"
    with ServerProcess(slow_folder, "--swarm-name", "slow") as server:
        accepted = server.post("work", task_id="t", headers={"Prefer": "respond-async"})
        assert accepted.status_code == 202
        eventually(lambda: has_text(turns), "the worker is in the middle of its turn")
        server.kill()
        (slow_folder / "go").touch()
        server.start()
        eventually(lambda: server.task("t")["completed"], "the restarted server finishes the task by itself")
        assert turns.read_text().splitlines() == ["turn", "turn"]
        events = [event["event"] for event in server.task("t")["events"]]
        assert events.count("task_complete") == 1
        assert events.count("new_message") == 4


@pytest.mark.parametrize("number", [2, 15], ids=["SIGINT", "SIGTERM"])
def test_stops_gracefully(slow_folder: Path, number: int) -> None:
    """Streams end, waiting clients get an address to look at, a turn that can't end is run again after a start."""
    env = {"PYTHONUNBUFFERED": "1"}
    with ServerProcess(slow_folder, "--swarm-name", "slow", env=env) as server, server.client() as client:
        waiting = subprocess.Popen(
            [sys.executable, "-c", WAIT_FOR_ANSWER, server.url, server.tokens["user"]],
            stdout=subprocess.PIPE,
            text=True,
        )
        eventually(lambda: has_text(slow_folder / "turns.txt"), "the worker is in the middle of its turn")
        with client.stream("GET", "/task/stream", params={"task_id": "t"}) as stream:
            lines = stream.iter_lines()
            next(lines)
            server.process.send_signal(number)
            assert "event: task_complete" not in list(lines)
        answered = json.loads(waiting.communicate(timeout=30)[0])
        assert answered["status"] == 202
        assert answered["body"]["task_id"] == "t"
        (slow_folder / "go").touch()  # within its grace the turn can end, and is stored
        assert server.process.wait(30) == 0
        assert "Traceback" not in server.errors
        assert server.output.splitlines()[-1].startswith("Stopped")
        server.start()
        eventually(lambda: server.task("t")["completed"], "the task is finished after the restart")
        assert (slow_folder / "turns.txt").read_text().splitlines() == ["turn"]


WAIT_FOR_ANSWER = """
import json, sys, httpx2
url, token = sys.argv[1:]
headers = {"Authorization": f"Bearer {token}"}
answer = httpx2.post(f"{url}/message", json={"body": "work", "task_id": "t"}, headers=headers, timeout=60)
print(json.dumps({"status": answer.status_code, "body": answer.json()}))
"""


def test_exports_what_it_runs_with(slow_folder: Path) -> None:
    (slow_folder / "go").touch()
    toml = '[server.swarm]\nname = "slow"\nregistry = "kept/here/slow.json"\n'
    (slow_folder / "other.toml").write_text(toml)
    with ServerProcess(slow_folder, "--config", "other.toml") as server:
        assert json.loads(server.ask("work")) == {
            "SWARM_NAME": "slow",
            "SWARM_SOURCE": "swarms.json",
            "SWARM_REGISTRY_FILE": "kept/here/slow.json",
            "BASE_URL": server.url,
            "MAIL_CONFIG_PATH": "other.toml",
        }
        assert (slow_folder / "kept" / "here").is_dir()


def test_the_url_is_known_while_the_swarm_is_imported(slow_folder: Path) -> None:
    port = str(free_port())
    with (slow_folder / "slow_agents.py").open("a") as agents:
        agents.write('\nPath("imported.txt").write_text(str(os.environ.get("BASE_URL")))\n')
    with ServerProcess(slow_folder, "--swarm-name", "slow", "--host", "127.0.0.1", "--port", port) as server:
        assert (slow_folder / "imported.txt").read_text() == server.url == f"http://127.0.0.1:{port}"


def test_runs_as_a_module(tmp_path: Path) -> None:
    class AsModule(ServerProcess):
        command = (sys.executable, "-m", "mail.server")

    with AsModule(tmp_path) as server:
        assert httpx2.get(f"{server.url}/health", timeout=60).json()["status"] == "healthy"
        assert server.stop() == 0


def test_runs_under_a_uvicorn_of_ones_own(tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "--factory", "mail.server:create_app", "--port", str(port)]
    with (tmp_path / "stdout.txt").open("wb") as stdout:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environment(), stdout=stdout, stderr=subprocess.STDOUT
        )
    try:
        eventually(
            lambda: run_mail("ping", f"http://127.0.0.1:{port}", cwd=tmp_path).returncode == 0, "it runs"
        )
    finally:
        process.terminate()
        process.wait(30)
    assert "mail_user_" in (tmp_path / "stdout.txt").read_text()


@pytest.mark.soak
def test_reload_starts_anew_when_code_changes(slow_folder: Path) -> None:
    (slow_folder / "go").touch()
    with ServerProcess(slow_folder, "--swarm-name", "slow", "--reload") as server:
        eventually(lambda: "mail_user_" in server.output, "the first process runs")
        server.tokens["user"] = server.output.partition("user   ")[2].split()[0]
        assert "SWARM_NAME" in server.ask("work")
        agents = slow_folder / "slow_agents.py"
        agents.write_text(agents.read_text().replace('"supervisor", seen', '"supervisor", "changed"'))
        eventually(lambda: _answer(server) == "changed", "the next process runs the new code")
        swarms = slow_folder / "swarms.json"
        swarms.write_text(swarms.read_text().replace('"1.0.0"', '"1.0.1"'))
        eventually(lambda: _version(server) == "1.0.1", "the next process runs the new swarm")
        assert server.stop() == 0


def _version(server: ServerProcess) -> Any:
    try:
        with server.client() as client:
            return client.get("/").json()["swarm"]["version"]
    except httpx2.TransportError:
        return None


def _answer(server: ServerProcess) -> Any:
    try:
        return server.ask("work")
    except httpx2.TransportError:
        return None


# ---------------------------------------------------------------------------------------- starts that fail


def refused(cwd: Path, *flags: str, env: dict[str, str] | None = None) -> tuple[int, str]:
    """The exit code of a server that can't start, and what it says: one line on stderr."""
    done = run_mail("server", *flags, cwd=cwd, env=env)
    assert done.stdout == ""
    assert done.stderr.startswith("mail: ")
    assert done.stderr.count("\n") == 1
    return done.returncode, done.stderr


def test_a_server_that_is_open_to_the_network_says_whom_it_does_not_call(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        assert "allow_private_addresses" not in server.output
    with ServerProcess(tmp_path, "--host", "0.0.0.0") as server:
        assert "set allow_private_addresses = true in [server.interswarm]" in server.output
    (tmp_path / "mail.toml").write_text(
        "[server.interswarm]\nallow_private_addresses = true\n", encoding="utf-8"
    )
    with ServerProcess(tmp_path, "--host", "0.0.0.0") as server:
        assert "allow_private_addresses" not in server.output


def test_second_server_on_a_database_is_refused(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        code, told = refused(tmp_path, "--port", "0")
        assert code == 2
        assert "another server or program works with mail.db" in told
        assert server.ask("1+1") == "1+1 = 2."


def test_taken_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, told = refused(tmp_path, "--port", str(taken.getsockname()[1]))
    assert code == 1
    assert "in use" in told
    assert "--port" in told


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--config", "none.toml"], "none.toml"),
        (["--swarm-name", "nobody"], "nobody"),
        (["--swarm-source", "none.json"], "none.json"),
        (["--database", "postgresql://x"], "PostgreSQL"),
        (["--database", "/dev/null/mail.db"], "mail.db"),
    ],
)
def test_wrong_configuration_is_told(tmp_path: Path, flags: list[str], named: str) -> None:
    code, told = refused(tmp_path, "--port", "0", *flags)
    assert code == 2
    assert named in told


def test_unknown_log_level_is_told(tmp_path: Path) -> None:
    code, told = refused(tmp_path, env={"MAIL_LOG_LEVEL": "loud"})
    assert code == 2
    assert "MAIL_LOG_LEVEL" in told
