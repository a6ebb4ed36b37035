"""`mail server` at a terminal: what its operator sees, and what a pipe gets."""

import re
import signal
from pathlib import Path

import httpx2
import pytest
from support.processes.server import ServerProcess, eventually
from support.processes.terminal import Terminal


def test_a_terminal_shows_each_request_and_turn(tmp_path: Path) -> None:
    with Terminal("server", "--port", "0", cwd=tmp_path) as terminal:
        shown = terminal.expect("/ui")
        found = re.search(r"listens on (\S+) .*Ctrl\+C stops it", shown)
        token = re.search(r"user +(mail_\S+)", shown)
        assert found
        assert token
        headers = {"Authorization": f"Bearer {token[1]}"}
        httpx2.post(f"{found[1]}/message", json={"body": "1+1", "task_id": "t"}, headers=headers)
        shown = terminal.expect("POST /message: 200 in ")
        assert re.search(r"^\d\d:\d\d:\d\d task t: turn of supervisor took \d+ ms$", shown, re.MULTILINE)
        terminal.type("\x03")
        terminal.expect("Stopped")
        assert terminal.end() == 0


@pytest.mark.soak
def test_ctrl_c_twice_stops_at_once_and_says_what_resumes(waiting: ServerProcess) -> None:
    assert waiting.post("hello", headers={"Prefer": "respond-async"}).status_code == 202
    waiting.process.send_signal(signal.SIGINT)
    eventually(lambda: not is_reachable(waiting), "it accepts nothing new")
    assert waiting.stop(signal.SIGINT) == 0
    assert waiting.output.splitlines()[-1] == "Stopped; 1 running task resumes at the next start"


def is_reachable(server: ServerProcess) -> bool:
    try:
        return httpx2.get(f"{server.url}/health", timeout=60).is_success
    except httpx2.TransportError:
        return False


def test_a_pipe_gets_no_line_per_request_unless_a_level_is_chosen(tmp_path: Path) -> None:
    for env, is_logged in (({}, False), ({"MAIL_LOG_LEVEL": "info"}, True)):
        with ServerProcess(tmp_path, env=env) as server:
            httpx2.get(f"{server.url}/whoami", timeout=60)
            server.stop()
            assert ("INFO mail.activity.details: GET /whoami: 401 in" in server.errors) is is_logged
