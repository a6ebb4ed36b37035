"""`mail task`, against a server."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from support.processes.server import MAIL, TIMEOUT, ServerProcess, environment, eventually, run_mail
from support.processes.terminal import Terminal


@pytest.fixture(scope="module")
def tasks(server: ServerProcess) -> ServerProcess:
    """The server, with a task that is completed, one that has failed, and one that waits."""
    server.ask("weather in Oslo", task_id="weather-task")
    server.ask("ask a human: may I?", task_id="waiting-task")
    failed = server.post("weather in Ravenna", task_id="failed-task", kwargs={"timeout": 0.001})
    assert failed.status_code == 200
    assert server.task("failed-task")["status"] == "failed"
    return server


def rows(text: str) -> dict[str, list[str]]:
    """The rows of a table without a terminal, by their first cells, without the headings."""
    return {cells[0]: cells[1:] for cells in (line.split("\t") for line in text.splitlines()[1:])}


def test_list(tasks: ServerProcess) -> None:
    listed = rows(tasks.prints("task", "list", "--limit", "1000"))
    assert listed["weather-task"][0] == "completed"
    assert listed["waiting-task"][0::3] == ["paused", "ask a human: may I?"]
    paused = rows(tasks.mail("task", "list", "--status", "paused").stdout)
    assert {cells[0] for cells in paused.values()} == {"paused"}
    one = json.loads(tasks.mail("task", "list", "--limit", "1", "--json").stdout)
    assert len(one) == 1
    assert next(iter(one.values()))["start_time"] == max(cells[1] for cells in listed.values())


def test_list_what_a_search_finds(tasks: ServerProcess) -> None:
    def found(*arguments: str) -> set[str]:
        return rows(tasks.prints("task", "list", *arguments)).keys() - {""}

    eventually(lambda: found("--query", "in ravenna") == {"failed-task"}, "the index is written")
    (cells,) = rows(tasks.mail("task", "list", "-q", "in ravenna").stdout).values()
    assert "Ravenna" in cells[-1]
    assert found("-q", "weather Oslo", "--status", "failed", "--since", "2026-01-01") == set()
    assert found("--since", "7d") >= {"failed-task", "weather-task"}
    assert found("--until", "7d") == set()
    assert "--since: 'soon' is not a time" in tasks.mail("task", "list", "--since", "soon").stderr
    assert found("--query", "weather", "--until", "2026-01-01", "--min-cost", "0") == set()


def test_show(tasks: ServerProcess) -> None:
    lines = tasks.prints("task", "show", "weather-task").splitlines()
    assert lines[0] == "task        weather-task"
    tree = lines[lines.index("") + 1 :]
    assert tree[0] == "user → supervisor  weather in Oslo"
    assert tree[1].startswith("  supervisor → weather")
    assert tree[2].startswith('    weather action  get_weather_forecast {"location": "Oslo"')
    assert " → " in tree[2]
    assert tree[-1].startswith("  task_complete")
    record = json.loads(tasks.mail("task", "show", "weather-task", "--json").stdout)
    assert record["task_id"] == "weather-task"
    events = tasks.mail("task", "show", "weather-task", "--events").stdout
    ids = [line.split()[0] for line in events.splitlines() if re.search(r"\d m?s  ", line)]
    assert set(ids) < {event["id"] for event in record["events"]}
    assert ids[-1] == record["events"][-1]["id"]


def test_show_says_what_a_task_waits_for(tasks: ServerProcess) -> None:
    shown = tasks.mail("task", "show", "waiting-task").stdout
    assert "question    supervisor asks: may I? (call call_" in shown
    assert "paused  supervisor asks: may I?\n" in shown
    assert '{"question"' not in shown


@pytest.mark.parametrize(
    ("task_id", "code", "kind"),
    [
        ("weather-task", 0, "task_complete"),
        ("failed-task", 3, "task_error"),
        ("waiting-task", 4, "task_complete"),
    ],
)
def test_watch_tells_how_it_stopped(tasks: ServerProcess, task_id: str, code: int, kind: str) -> None:
    done = tasks.mail("task", "watch", task_id, "--json")
    assert (done.returncode, done.stderr) == (code, "")
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[-1]["event"] == kind
    assert [event["id"] for event in events] == [str(n + 1) for n in range(len(events))]
    as_text = tasks.mail("task", "watch", task_id)
    assert as_text.returncode == code
    assert ("Answer with" in as_text.stdout) == (code == 4)
    answer = f"Answer: {events[-1]['data']['response']}\n"
    assert ("supervisor asks: may I?\nAnswer with" if code == 4 else answer) in as_text.stdout


def test_watch_says_how_to_answer(tasks: ServerProcess) -> None:
    tasks.ask("ask a human: may I?", task_id="it's asked")
    command = tasks.mail("task", "watch", "it's asked").stdout.splitlines()[-1]
    words = shlex.split(command)
    assert words[:3] == ["mail", "reply", "it's asked"]
    done = tasks.mail(*words[1:])
    assert (done.returncode, done.stdout, done.stderr) == (0, "your answer\n", "")


@pytest.mark.soak
def test_a_reader_that_has_seen_enough(tasks: ServerProcess, tmp_path: Path) -> None:
    env = environment(tasks.caller())
    command = [*MAIL, "task", "list"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.close()
        assert run.wait(TIMEOUT) == 141
        assert run.stderr.read() == b""


def test_watch_goes_on_from_an_event(tasks: ServerProcess) -> None:
    done = tasks.mail("task", "watch", "weather-task", "--after", "3", "--json")
    assert json.loads(done.stdout.splitlines()[0])["id"] == "4"
    wrong = tasks.mail("task", "watch", "weather-task", "--after", "9999")
    assert (wrong.returncode, wrong.stdout) == (1, "")


def test_watch_shows_what_happens_while_it_happens(waiting: ServerProcess) -> None:
    waiting.post("hello", task_id="held", headers={"Prefer": "respond-async"})
    with Terminal("task", "watch", "held", cwd=waiting.folder, env=waiting.caller()) as terminal:
        terminal.expect("hello")
        assert "task_complete" not in terminal.shown
        (waiting.folder / "go").touch()
        terminal.expect("Answer:\ngone")
        assert terminal.end() == 0


def test_ctrl_c_ends_watching_and_not_the_task(waiting: ServerProcess) -> None:
    waiting.post("hello", task_id="held", headers={"Prefer": "respond-async"})
    with Terminal("task", "watch", "held", cwd=waiting.folder, env=waiting.caller()) as terminal:
        terminal.expect("hello")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "Traceback" not in terminal.shown
    assert waiting.task("held")["is_running"] is True
    (waiting.folder / "go").touch()
    eventually(lambda: waiting.task("held")["completed"], "the task is completed")


@pytest.mark.parametrize("command", [["show", "nobody's"], ["watch", "nobody's"]])
def test_a_task_that_is_not_there(server: ServerProcess, command: list[str]) -> None:
    done = server.mail("task", *command)
    assert (done.returncode, done.stdout) == (1, "")
    assert "you have no task" in done.stderr


def refused(folder: Path, *arguments: str, **env: str) -> tuple[int, str]:
    done = run_mail("task", *arguments, cwd=folder, env=env)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_what_is_missing_is_said(server: ServerProcess, tmp_path: Path) -> None:
    shown = " ".join(run_mail("task", "list", "--help", cwd=tmp_path).stdout.split())
    assert (
        "[default: the server that mail.toml configures for this machine, or http://localhost:8000]" in shown
    )
    code, told = refused(tmp_path, "list", "--server", server.url, XDG_STATE_HOME=str(tmp_path))
    assert (code, "requires an API key" in told) == (1, True), "where the server's key isn't found"
    assert refused(tmp_path, "list", "--server", server.url, "--api-key", "nonsense")[0] == 1
    assert refused(tmp_path, "list", "--server", "example")[0] == 2
    assert refused(tmp_path, "list", "--server", server.url, "--status", "lost")[0] == 2
    code, told = refused(tmp_path, "list", "--server", "http://127.0.0.1:9")
    assert (code, told) == (
        1,
        "mail: cannot connect to http://127.0.0.1:9; start a server there with: mail server\n",
    )


def test_the_list_at_a_terminal_fits_it(tasks: ServerProcess, tmp_path: Path) -> None:
    env = tasks.caller(COLUMNS="80")
    tasks.ask("weather in Oslo " + "x" * 200, task_id="long-task")
    with Terminal("task", "list", cwd=tmp_path, env=env) as terminal:
        assert terminal.end() == 0
    assert terminal.shown.splitlines()[0].split() == ["task", "status", "started", "cost", "title"]
    assert all(len(line) <= 80 for line in terminal.shown.splitlines())
    assert "…" in terminal.shown


@pytest.mark.soak
def test_a_strange_server_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "task").write_text("no JSON", encoding="utf-8")
    (tmp_path / "tasks").write_text('{"a": {"b": 1}}', encoding="utf-8")
    command = [MAIL[0], "-u", "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(tmp_path), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as strange:
        try:
            assert strange.stdout is not None
            url = strange.stdout.readline().split()[-2].strip("()")
            done = subprocess.run(
                [*MAIL, "task", "show", "t", "--server", url.rstrip("/")],
                cwd=tmp_path,
                env=environment(),
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
            assert (done.returncode, done.stdout) == (1, "")
            assert "expected JSON" in done.stderr
            assert "Traceback" not in done.stderr
        finally:
            strange.kill()


def test_a_task_is_cancelled(waiting: ServerProcess) -> None:
    waiting.post("hello", task_id="unwanted", headers={"Prefer": "respond-async"})
    done = waiting.mail("task", "cancel", "unwanted", "--reason", "no need", "--wait", "20")
    assert (done.returncode, done.stdout, done.stderr) == (0, "task unwanted is cancelled\n", "")
    again = waiting.mail("task", "cancel", "unwanted", "--json")
    assert json.loads(again.stdout).items() >= {"reason": "no need", "stopped": True}.items()
    watched = waiting.mail("task", "watch", "unwanted")
    assert watched.returncode == 3
    assert "The task was cancelled by user: no need" in watched.stdout
    gone = waiting.mail("task", "cancel", "nobody's")
    assert (gone.returncode, gone.stderr) == (1, 'mail: there is no task "nobody\'s"\n')


def test_a_task_as_it_was(tasks: ServerProcess) -> None:
    then = tasks.mail("task", "show", "weather-task", "--at", "1")
    assert then.returncode == 0, then.stderr
    lines = then.stdout.splitlines()
    assert lines[1].split() == ["status", "running"]
    assert lines[-1] == "user → supervisor  weather in Oslo"
    wrong = tasks.mail("task", "show", "weather-task", "--at", "9999")
    assert wrong.returncode == 1
    assert "has events 1 to" in wrong.stderr


@pytest.mark.soak
def test_a_task_is_named_by_the_beginning_of_its_id(tasks: ServerProcess) -> None:
    generated = "abcd1234-0000-4000-8000-000000000000"
    tasks.ask("weather in Bergen", task_id=generated)
    tasks.ask("weather in Turku", task_id="abcd1234-ffff-4000-8000-000000000000")
    tasks.ask("weather in Espoo", task_id="prefixed-task")
    tasks.ask("weather in Vantaa", task_id="prefixed-task-2")

    def shown(name: str) -> str:
        return tasks.prints("task", "show", name).splitlines()[0].removeprefix("task").strip()

    assert shown("abcd1234-0") == generated
    assert shown("prefixed-task") == "prefixed-task", "an exact id wins"
    assert shown("prefixed-task-") == "prefixed-task-2"
    assert shown("last") == shown("-") == "prefixed-task-2"
    several = tasks.mail("task", "show", "abcd")
    assert several.returncode == 2
    assert several.stderr.splitlines() == [
        "mail: 2 tasks begin with 'abcd'; type more of the id:",
        "  abcd1234-ffff-4000-8000-000000000000",
        f"  {generated}",
    ]
    assert "you have no task 'abc'" in tasks.mail("task", "show", "abc").stderr
    tasks.ask("weather in Lahti", task_id="last")
    tasks.ask("weather in Oulu", task_id="newest-of-all")
    assert (shown("last"), shown("-")) == ("last", "newest-of-all")
    tasks.ask("weather in Kemi", task_id="prefixed-task")
    assert shown("-") == "prefixed-task", "it has changed last"
    watched = tasks.mail("task", "watch", "abcd1234-0")
    assert "Bergen" in watched.stdout
    sent = tasks.mail("send", "--task-id", "abcd1234-0", "weather in Bodo")
    assert "Bodo" in sent.stdout
    assert tasks.task(generated)["generation"] == 2
    fresh = tasks.mail("send", "--task-id", "prefixed-", "weather in Kotka")
    assert "Kotka" in fresh.stdout
    assert tasks.task("prefixed-")["generation"] == 1, "the beginning of a chosen id may be a new task"


def test_a_fork(tasks: ServerProcess) -> None:
    shown = tasks.prints("task", "fork", "weather-task", "--at", "1")
    words = shown.split()
    assert shown == f"task {words[1]} is a fork of weather-task at 1: paused; waiting mail: 1\n"
    titles = rows(tasks.mail("task", "list", "--limit", "1000").stdout)
    assert (titles[words[1]][-1], titles["weather-task"][-1]) == (
        "Fork of weather in Oslo",
        "weather in Oslo",
    )
    again = tasks.mail("task", "fork", words[1], "--json")
    assert tasks.task(json.loads(again.stdout)["task_id"])["title"] == "Fork of weather in Oslo"
    watched = tasks.mail("task", "watch", words[1])
    assert watched.returncode == 4
    assert watched.stdout.splitlines()[-1] == "The task waits for a message."
    resumed = tasks.mail("task", "fork", "weather-task", "-m", "weather in Lima")
    assert resumed.returncode == 0, resumed.stderr
    assert "is a fork of weather-task at" in resumed.stdout.splitlines()[0]
    assert "Lima" in resumed.stdout.splitlines()[-1]
    made = json.loads(tasks.mail("task", "fork", "weather-task", "--at", "1", "--run", "--json").stdout)
    assert (made["status"], made["actions"]) == ("running", "run")
    asks = tasks.mail("task", "fork", "weather-task", "--at", "1", "--actions", "ask")
    assert asks.stdout.endswith(": paused; waiting mail: 1; actions wait for approval\n")
    once = ("fork", "weather-task", "--at", "1", "--idempotency-key", "one-fork", "--json")
    assert json.loads(tasks.mail("task", *once).stdout) == json.loads(tasks.mail("task", *once).stdout)
    refused = tasks.mail("task", "fork", "weather-task", "--run")
    assert refused.returncode == 1
    assert "so its fork can't run by itself" in refused.stderr
