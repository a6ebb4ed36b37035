"""`mail client` with commands from a pipe, against a server."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support.processes.server import MAIL, TIMEOUT, ServerProcess, environment


class Piped:
    """Runs the client over lines, as one of the roles."""

    def __init__(self, server: ServerProcess, folder: Path) -> None:
        self.server = server
        self.folder = folder

    def __call__(
        self, *lines: str, role: str = "user", flags: tuple[str, ...] = (), **variables: str
    ) -> subprocess.CompletedProcess[str]:
        given = "\n".join(lines)
        return self.server.mail("client", *flags, role=role, cwd=self.folder, given=given, **variables)

    def json(self, *lines: str, **settings: Any) -> list[Any]:
        """What the lines print as JSON; all of them must work."""
        done = self(*lines, flags=("--json",), **settings)
        assert (done.returncode, done.stderr) == (0, "")
        return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def piped(server: ServerProcess, tmp_path: Path) -> Piped:
    return Piped(server, tmp_path)


def test_text_for_people(piped: Piped) -> None:
    done = piped("ping", "health", "whoami", "health --verbose", "help ping", "?")
    lines = done.stdout.splitlines()
    assert lines[:3] == [
        "mail (protocol 1.3) is running: swarm example-no-proxy 1.3.0",
        "example-no-proxy is healthy",
        "user (user)",
    ]
    assert lines[3:5] == ["{", '  "status": "healthy",']
    assert "Usage: ping [OPTIONS]" in lines
    assert any(line.startswith("  message-stream ") for line in lines)
    assert "\x1b" not in done.stdout


def test_a_message_and_its_task(piped: Piped) -> None:
    answer, events, task, listed = piped.json(
        "message 6*7 --task-id piped",
        "message 'and 2**3' --task-id piped --show-events",
        "task piped",
        "tasks --limit 1 --status completed",
    )
    assert answer == {
        "response": "6*7 = 42.",
        "task_id": "piped",
        "status": "completed",
        "events": None,
    }
    assert events["events"][0]["event"] == "new_message"
    assert (task["task_id"], task["generation"]) == ("piped", 2)
    assert list(listed) == ["piped"]


def test_a_message_as_text_names_its_new_task(piped: Piped) -> None:
    done = piped("message 6*7", "task", "task -e")
    answer, named, *rest = done.stdout.splitlines()
    assert answer == "6*7 = 42."
    assert rest[0] == f"task        {named.removeprefix('task ')}"
    assert "user → supervisor  6*7" in rest
    assert "  supervisor → math  6*7" in rest
    assert "    math → supervisor  Re: 6*7 | 6*7 = 42." in rest
    timeline = [line.split(maxsplit=4) for line in rest if " ms  " in line or " s  " in line]
    assert [words[3] for words in timeline] == [
        "new_message", "await_message", "new_message", "action", "new_message", "task_complete",
    ]  # fmt: skip
    assert timeline[3][4].split(maxsplit=1) == ["math", 'calculate_expression {"expression": "6*7"} → 42']
    ids = [int(words[0]) for words in timeline]
    assert ids == sorted(set(ids))
    assert "::" not in done.stdout


def test_a_stream_and_watching_it_again(piped: Piped) -> None:
    *events, one = piped.json("message-stream 1+1 --task-id streamed", "task-watch streamed --after 14")
    assert [event["id"] for event in events] == [str(n + 1) for n in range(len(events))]
    assert events[-1] == one
    assert (one["event"], one["data"]["response"]) == ("task_complete", "1+1 = 2.")


def test_errors_do_not_stop_it_but_are_told_in_the_end(piped: Piped) -> None:
    done = piped("mesage hi", "task no-such-task", "message --what", "", "# no command", "whoami")
    assert (done.returncode, done.stdout) == (1, "user (user)\n")
    lines = done.stderr.splitlines()
    assert [line.startswith("mail: ") for line in lines] == [True] * 3
    assert ["did you mean message?" in lines[0], "no-such-task" in lines[1]] == [True, True]


def test_a_quote_that_is_never_closed(piped: Piped) -> None:
    done = piped("whoami", "message 'open")
    assert (done.returncode, done.stdout) == (1, "user (user)\n")
    assert "not complete" in done.stderr


def test_login_and_logout(piped: Piped) -> None:
    admin = piped.server.tokens["admin"]
    done = piped("login $ADMIN", "login nonsense", "whoami", "logout", "whoami", "login", ADMIN=admin)
    assert done.stdout.splitlines() == ["admin (admin)", "admin (admin)", "logged out"]
    assert [line.startswith("mail: ") for line in done.stderr.splitlines()] == [True] * 3
    assert admin not in done.stdout + done.stderr


def test_what_only_admins_may(piped: Piped) -> None:
    updated, dumped = piped.json("health-update under repair", "swarm-dump", role="admin")
    assert updated["status"] == "under repair"
    assert piped("health").stdout == "example-no-proxy is under repair\n"
    (restored,) = piped.json("health-update healthy", role="admin")
    assert restored["status"] == "healthy"
    assert dumped["status"] == "dumped"
    refused = piped("health-update ill")
    assert (refused.returncode, refused.stdout) == (1, "")


def test_other_swarms(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        (registered,) = Piped(server, tmp_path).json(
            "swarm-register other http://127.0.0.1:9 --auth-token $KEY --volatile "
            """--metadata '{"public": true}'""",
            role="admin",
            KEY="for-them",
        )
        assert (registered["status"], registered["swarm_name"]) == ("registered", "other")
        done = Piped(server, tmp_path)(
            "message-interswarm hi '[\"a@nobody\"]' $KEY", KEY=server.tokens["user"]
        )
        assert "swarm 'nobody' is not registered here" in done.stderr
        as_documented = "swarm-register another http://127.0.0.1:9 $KEY"
        (again,) = Piped(server, tmp_path).json(as_documented, role="admin", KEY="for-them")
        assert again["swarm_name"] == "another"
        assert any("the token is forgotten when" in note for note in again["notes"]), "it has the token"
        twice = Piped(server, tmp_path)(f"{as_documented} --auth-token b", KEY="a")
        assert (twice.returncode, "give the token once" in twice.stderr) == (1, True)


def test_another_swarm_is_loaded_from_a_file(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        piped = Piped(server, tmp_path)
        (dumped,) = piped.json("swarm-dump", role="admin")
        swarm = {**dumped["swarm"], "description": "another one"}
        (tmp_path / "swarm.json").write_text(json.dumps(swarm), encoding="utf-8")
        (loaded,) = piped.json("swarm-load-from-json @swarm.json", role="admin")
        assert loaded == {"status": "success", "swarm_name": "example-no-proxy"}


def test_responses_need_a_server_for_debugging(piped: Piped) -> None:
    done = piped("responses hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert "endpoint" in done.stderr


@pytest.mark.parametrize("command", ["message", "message-stream"])
@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("1+1", "completed", 0),
        ("1+1 --kwargs '{\"timeout\": 0.0001}'", "failed", 3),
        ("'ask a human: may I?'", "paused", 4),
    ],
)
def test_the_exit_code_tells_how_the_task_has_ended(
    piped: Piped, command: str, text: str, status: str, code: int
) -> None:
    done = piped("whoami", flags=("--json", "-c", f"{command} {text}", "-c", "whoami"))
    assert (done.returncode, done.stderr) == (code, "")
    *_, answer, whoami = map(json.loads, done.stdout.splitlines())
    assert whoami["id"] == "user", "the commands behind it are performed"
    if command == "message":
        assert (answer["status"], answer["events"]) == (status, None)


def test_a_message_to_a_swarm_that_is_not_there_has_failed(piped: Piped) -> None:
    piped("swarm-register nowhere http://127.0.0.1:9", role="admin")
    done = piped("message-interswarm hi foo@nowhere", flags=("--json",))
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["status"]) == (3, "failed")
    assert answer["response"]["message"]["subject"] == "::task_error::"
    assert piped.server.task(answer["task_id"])["status"] == "failed"


@pytest.mark.parametrize("sends", ["message 6*7", "message-interswarm 6*7 supervisor"])
def test_a_message_with_a_key_counts_once(piped: Piped, sends: str) -> None:
    line = f"{sends} --idempotency-key {sends.split(maxsplit=1)[0]}-1"
    first, again = (piped.json(line)[0] for _ in range(2))
    assert first == again
    assert piped.server.task(first["task_id"])["generation"] == 1
    done = piped(f"{line} --subject other")
    assert (done.returncode, "Idempotency-Key" in done.stderr) == (1, True)


@pytest.mark.parametrize("command", ["message {}", "message-stream {}", "message-interswarm {} supervisor"])
def test_a_message_for_a_task_as_it_was(piped: Piped, command: str) -> None:
    task_id = f"as-it-was-{command.split(maxsplit=1)[0]}"
    line = f"{command.format('1+1')} --task-id {task_id}"
    done = piped(line, f"{line} --generation 1", f"{line} --generation 1", flags=("--json",))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "generation" in done.stderr
    assert piped.server.task(task_id)["generation"] == 2


def test_a_task_that_was_paused_and_goes_on_is_not_paused_in_the_end(piped: Piped) -> None:
    kwargs = '\'{"breakpoint_tool_call_result": "yes"}\''
    done = piped(
        "message 'ask a human: may I?' --task-id goes-on",
        f"message '' --task-id goes-on --resume-from breakpoint_tool_call --kwargs {kwargs}",
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "goes-on has failed" not in done.stdout


def test_a_command_that_fails_counts_for_more_than_a_task_that_does(piped: Piped) -> None:
    done = piped("message 1+1 --kwargs '{\"timeout\": 0.0001}' --task-id late", "nonsense")
    assert done.returncode == 1
    assert "task late has failed" in done.stdout


def test_commands_as_flags_are_each_whole_by_themselves(piped: Piped) -> None:
    done = piped(flags=("-c", "message don't", "-c", "whoami"))
    assert (done.returncode, done.stdout) == (1, "user (user)\n")
    assert done.stderr.count("the line is not complete") == 1
    assert "double quotes" in done.stderr
    done = piped(flags=("-c", "message don't", "-c", "message can't"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.count("not complete") == 2


def test_a_task_s_id_is_quoted_where_that_is_needed(piped: Piped) -> None:
    done = piped("message 'ask a human: may I?' --task-id \"it's mine\"")
    advice = done.stdout.splitlines()[-1].strip()
    assert piped(advice).stdout.splitlines() == ["your answer"]
    assert piped.server.task("it's mine")["status"] == "completed"


def test_a_message_to_a_question_says_how_to_answer_it_or_to_drop_it(piped: Piped) -> None:
    lines = ("message 'ask a human: may I?' --task-id asked", "message 'you may' --task-id asked")
    done = piped(flags=("-c", lines[0], "-c", lines[1]))
    assert done.returncode != 0
    assert "task asked waits for an answer: the swarm asks: may I?" in done.stderr
    assert '/reply asked "your answer"' in done.stderr
    assert "--drop-question" in done.stderr
    assert "2+2 = 4" in piped("message '2+2' --task-id asked --drop-question").stdout


@pytest.mark.parametrize("command", ["message", "message-stream"])
def test_a_misspelt_option_is_told(piped: Piped, command: str) -> None:
    done = piped(f"""{command} '2+2' --kwargs '{{"max_step": 3}}'""")
    warning = "warning: the unknown field 'kwargs.max_step' was ignored. Did you mean 'max_steps'?"
    assert warning in done.stdout


def test_times_are_those_since_the_task_began_wherever_they_are_shown(piped: Piped) -> None:
    piped("message 1+1 --task-id timed")
    for command in ("message-stream 2+2", "message 3+3 --show-events"):
        shown = piped(f"{command} --task-id timed").stdout.splitlines()
        lines = [line for line in shown if " ms  " in line or " s  " in line]
        assert len(lines) > 5
        assert lines == piped("task timed -e").stdout.splitlines()[-len(lines) :]
    watched = piped("task-watch timed --after 3").stdout.splitlines()
    assert watched[0] == next(
        line for line in piped("task timed -e").stdout.splitlines() if line == watched[0]
    )


def test_a_refused_message_leaves_no_task_behind(piped: Piped) -> None:
    done = piped("message 1+1 --task-id good", "message hi --entrypoint nobody", "task")
    assert done.stderr.count("mail: ") == 1
    assert "task        good" in done.stdout


def test_bytes_that_are_no_text_are_an_error_of_ours(piped: Piped) -> None:
    done = subprocess.run(
        [*MAIL, "client", piped.server.url, "--api-key", piped.server.tokens["user"], "-c", b"message \xff"],
        cwd=piped.folder,
        env=environment(),
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(b"mail: POST /message can't be encoded")


def test_commands_as_flags(piped: Piped) -> None:
    done = piped("ping", flags=("-c", "whoami", "--command", "health"))
    assert (done.returncode, done.stdout) == (0, "user (user)\nexample-no-proxy is healthy\n")
    assert piped(flags=("-c", "nonsense", "-c", "whoami")).returncode == 1


def test_requests_are_logged_where_somebody_wants_that(piped: Piped) -> None:
    assert piped("whoami").stderr == ""
    assert "INFO mail.client: GET /whoami: 200 in " in piped("whoami", flags=("--verbose",)).stderr
    assert "DEBUG mail.client: GET /whoami: 200 in " in piped("whoami", MAIL_LOG_LEVEL="debug").stderr
    wrong = piped("whoami", MAIL_LOG_LEVEL="loud")
    assert (wrong.returncode, "MAIL_LOG_LEVEL" in wrong.stderr) == (2, True)


def test_a_timeout(waiting: ServerProcess, tmp_path: Path) -> None:
    done = Piped(waiting, tmp_path)("message hello", "whoami", flags=("--timeout", "0.5"))
    assert (done.returncode, done.stdout) == (1, "user (user)\n")
    assert "no answer in 0.5 s" in done.stderr


def test_a_reader_that_goes_away_ends_it(piped: Piped) -> None:
    many = "help\n" * 3000
    with subprocess.Popen(
        [*MAIL, "client", piped.server.url],
        cwd=piped.folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        try:
            process.stdin.write(many)
            process.stdin.close()
        except BrokenPipeError:
            pass
        assert process.wait(TIMEOUT) == 141
        assert process.stderr.read() == ""


def test_output_holds_nothing_that_a_terminal_obeys(waiting: ServerProcess, tmp_path: Path) -> None:
    code = (waiting.folder / "waiting_agent.py").read_text(encoding="utf-8")
    waiting.stop()
    (waiting.folder / "waiting_agent.py").write_text(
        code.replace('"gone"', '"\\x1b]0;owned\\x07 \\x9b31m red"'), encoding="utf-8"
    )
    (waiting.folder / "go").touch()
    waiting.start()
    done = Piped(waiting, tmp_path)(
        "message hi --task-id t", "task t", "task t -e", "message-stream hi", "tasks"
    )
    assert done.returncode == 0, done.stderr
    assert "owned" in done.stdout
    assert not {"\x1b", "\x07", "\x9b"} & set(done.stdout)
