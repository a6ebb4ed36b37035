"""Several `mail server` processes on one PostgreSQL database, over real HTTP; some are killed."""

import json
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from support.engines.postgres import PASSWORD, borrow_database, has_postgres, postgres_server, return_database
from support.processes.server import TIMEOUT, ServerProcess, eventually, run_mail

pytestmark = pytest.mark.skipif(not has_postgres(), reason="PostgreSQL is not installed")

Start = Callable[..., ServerProcess]


@pytest.fixture
def url() -> Iterator[str]:
    lent = borrow_database()
    yield lent
    return_database(lent)


@pytest.fixture
def start(slow_folder: Path, url: str) -> Iterator[Start]:
    """Starts one more server on the database, with a log of its own and the tokens of the first."""
    started: list[ServerProcess] = []
    with ExitStack() as stack:

        def start_one(*flags: str, swarm: str = "slow") -> ServerProcess:
            folder = slow_folder / f"server-{len(started)}"
            folder.mkdir()
            for name in ("slow_agents.py", "swarms.json"):
                shutil.copy(slow_folder / name, folder)
            for name in ("go", "turns.txt"):
                (folder / name).symlink_to(slow_folder / name)
            server = ServerProcess(
                folder, "--swarm-name", swarm, *flags, env={"DATABASE_URL": url, "PYTHONUNBUFFERED": "1"}
            )
            stack.enter_context(server)
            server.tokens = {**(started[0].tokens if started else {}), **server.tokens}
            started.append(server)
            return server

        yield start_one


class Watcher(threading.Thread):
    """Reads a stream to its end.

    Attributes:
        seen: the events, each as its id and kind.
    """

    def __init__(self, server: ServerProcess, task_id: str) -> None:
        super().__init__()
        self._server = server
        self._task_id = task_id
        self.seen: list[tuple[int, str]] = []
        self.start()

    def run(self) -> None:
        with (
            self._server.client() as client,
            client.stream("GET", "/task/stream", params={"task_id": self._task_id}) as stream,
        ):
            number = 0
            for line in stream.iter_lines():
                name, _, value = line.partition(": ")
                if name == "id":
                    number = int(value)
                elif name == "event" and value != "ping":
                    self.seen.append((number, value))

    @property
    def kinds(self) -> list[str]:
        return [kind for _, kind in self.seen]


def begin(server: ServerProcess, task_id: str) -> None:
    accepted = server.post("work", task_id=task_id, headers={"Prefer": "respond-async"})
    assert accepted.status_code == 202, accepted.text


def test_a_task_that_is_posted_at_one_server_is_watched_at_the_other(slow_folder: Path, start: Start) -> None:
    one, two = start(), start()
    begin(one, "t")
    watcher = Watcher(two, "t")
    eventually((slow_folder / "turns.txt").exists, "the worker is in the middle of its turn")
    eventually(lambda: watcher.seen, "the other server shows what has happened so far")
    (slow_folder / "go").touch()
    watcher.join(TIMEOUT)
    assert watcher.kinds[-1] == "task_complete"
    assert [number for number, _ in watcher.seen] == list(range(1, len(watcher.seen) + 1))
    assert two.ask("again", task_id="u")
    assert tasks(one).keys() == {"t", "u"}
    assert tasks(one) == tasks(two)


def tasks(server: ServerProcess) -> dict[str, Any]:
    with server.client() as client:
        return dict(client.get("/tasks").json())


def test_kill_9_in_the_middle_of_a_turn_and_the_other_takes_it_up(slow_folder: Path, start: Start) -> None:
    one = start()
    begin(one, "t")
    eventually((slow_folder / "turns.txt").exists, "the first server is in the middle of the worker's turn")
    two = start()
    watcher = Watcher(two, "t")
    one.kill()
    turns = slow_folder / "turns.txt"
    eventually(lambda: len(turns.read_text().splitlines()) == 2, "the other has taken the turn up")
    (slow_folder / "go").touch()
    watcher.join(TIMEOUT)
    assert watcher.kinds.count("task_complete") == 1
    assert watcher.kinds.count("new_message") == 4
    assert "is gone; its tasks are taken over" in two.errors


@pytest.mark.soak
def test_postgresql_starts_anew_under_running_servers(slow_folder: Path, start: Start) -> None:
    """Leases that could not be given back are freed, waiting clients get an answer, and turns continue or are run
    again.
    """
    one, two = start(), start()
    begin(one, "t")
    eventually((slow_folder / "turns.txt").exists, "the worker is in the middle of its turn")
    postgres_server().stop()
    with one.client() as client:
        assert client.get("/task", params={"task_id": "t"}).status_code == 503
    postgres_server().start()
    (slow_folder / "go").touch()
    eventually(lambda: is_done(two, "t"), "the task is finished")
    eventually(lambda: is_done(one, "t"), "the other server is back as well")
    for server in (one, two):
        assert PASSWORD not in server.errors + server.output
        assert server.stop() == 0


def is_done(server: ServerProcess, task_id: str) -> bool:
    with server.client() as client:
        response = client.get("/task", params={"task_id": task_id})
    return response.status_code == 200 and response.json()["completed"] is True


def test_swarms_of_different_names_share_a_database(slow_folder: Path, start: Start) -> None:
    """Each works on the tasks of its own."""
    (slow_folder / "go").touch()
    swarms = json.loads((slow_folder / "swarms.json").read_text())
    (slow_folder / "swarms.json").write_text(json.dumps([*swarms, {**swarms[0], "name": "other"}]))
    one = start()
    (one.folder / "turns.txt").unlink()
    other = start(swarm="other")
    for _ in range(3):
        assert other.ask("work")
    assert not (one.folder / "turns.txt").exists()
    assert tasks(one) == {}


class TestCommands:
    def test_db_init_and_tokens(self, tmp_path: Path, url: str) -> None:
        env = {"DATABASE_URL": url}
        for _ in range(2):
            done = run_mail("db-init", cwd=tmp_path, env=env)
            assert done.returncode == 0, done.stderr
            assert "tasks" in done.stdout
            assert f"@127.0.0.1:{postgres_server().port}" not in done.stdout
            assert done.stdout.rstrip().endswith("is ready")
        text = run_mail("token", "create", "--role", "user", "--id", "ann", cwd=tmp_path, env=env).stdout
        assert text.startswith("mail_user_")
        listed = json.loads(run_mail("token", "list", "--json", cwd=tmp_path, env=env).stdout)
        assert [(each["role"], each["id"]) for each in listed] == [("user", "ann")]
        number = listed[0]["number"]
        assert run_mail("token", "revoke", number, cwd=tmp_path, env=env).returncode == 0
        assert json.loads(run_mail("token", "list", "--json", cwd=tmp_path, env=env).stdout) == []

    def test_by_mail_toml(self, tmp_path: Path, url: str) -> None:
        (tmp_path / "mail.toml").write_text(f"[server.storage]\ndatabase = {json.dumps(url)}\n")
        done = run_mail("db-init", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        name = url.rpartition("@")[2]
        assert json.loads(done.stdout)["database"] == f"postgresql://{name}"

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda url: url.rpartition("/")[0] + "/nowhere", '"nowhere" does not exist'),
            (lambda url: url.replace("s3cret", "wr0ng"), "password authentication failed"),
            (lambda _: "postgresql://u:s3cret@127.0.0.1:1/d", "can't be reached"),
            (lambda _: "postgresql://u:s3cret/x@127.0.0.1/d", "percent-encoded"),
            (lambda _: "postgresql://u:s3cret@x@127.0.0.1/d", "percent-encoded"),
            (lambda _: "postgresql://127.0.0.1:1/d?password=s3cret@x", "postgresql://… can't be reached"),
        ],
        ids=["database", "password", "address", "slash", "at", "option"],
    )
    def test_what_is_wrong_is_one_line_without_a_password(
        self, tmp_path: Path, url: str, change: Callable[[str], str], says: str
    ) -> None:
        self.refuses(tmp_path, change(url), says, "db-init")

    @pytest.mark.parametrize("command", [["token", "list"], ["server", "--port", "0"]])
    def test_so_it_is_for_each_command(self, tmp_path: Path, command: list[str]) -> None:
        self.refuses(tmp_path, "postgresql://u:s3cret@127.0.0.1:1/d", "can't be reached", *command)

    @staticmethod
    def refuses(folder: Path, url: str, says: str, *command: str) -> None:
        done = run_mail(*command, cwd=folder, env={"DATABASE_URL": url})
        assert done.returncode == 2
        assert says in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert "s3cret" not in done.stderr + done.stdout
        assert "wr0ng" not in done.stderr + done.stdout
