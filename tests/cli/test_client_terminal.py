"""`mail client` at a terminal: what somebody types, and sees."""

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes.server import ServerProcess, eventually
from support.processes.terminal import Terminal

PROMPT = "mail>"


@pytest.fixture
def state(tmp_path: Path) -> dict[str, str]:
    """The environment of somebody with a home of their own."""
    return {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path)}


@pytest.fixture
def terminal(server: ServerProcess, tmp_path: Path, state: dict[str, str]) -> Iterator[Terminal]:
    """The client at its first prompt, as a user."""
    with open_client(server, tmp_path, state) as running:
        running.expect(PROMPT)
        yield running


def open_client(server: ServerProcess, folder: Path, state: dict[str, str], *flags: str) -> Terminal:
    return Terminal("client", server.url, *flags, cwd=folder, env=server.caller(**state))


def test_says_who_is_there(terminal: Terminal, server: ServerProcess) -> None:
    assert server.url in terminal.shown
    assert "swarm example-no-proxy" in terminal.shown
    assert "user (user)" in terminal.shown


def test_a_message_over_two_lines(terminal: Terminal) -> None:
    terminal.type('message "weather \\\rin Oslo" \\\r')
    terminal.expect("..")
    terminal.type("--entrypoint supervisor\r")
    terminal.expect("The weather in Oslo today")
    terminal.expect(PROMPT)


def test_completes_commands_flags_and_tasks(terminal: Terminal) -> None:
    terminal.type("message-st\t")
    terminal.expect("message-stream")
    terminal.type(" hi --task-i\t")
    terminal.expect("--task-id")
    terminal.type(" completed-by-tab\r")
    terminal.expect("task completed-by-tab")
    terminal.type("task completed-\t")
    terminal.expect("by-tab")
    terminal.type(" --eve\t")
    terminal.expect("--events")
    terminal.type("\r")
    assert "new_message" in terminal.expect("task_complete")


def test_errors_do_not_leave(terminal: Terminal) -> None:
    terminal.type("mesage hi\r")
    terminal.expect("did you mean message?")
    terminal.type("message --task-id\r")
    terminal.expect("requires an argument")
    terminal.type("health-update ill\r")
    terminal.expect("this endpoint is for the role admin")
    terminal.type("whoami\r")
    terminal.expect("user (user)")


def test_ctrl_c_returns_to_the_prompt_and_ctrl_d_leaves(
    waiting: ServerProcess, tmp_path: Path, state: dict[str, str]
) -> None:
    with open_client(waiting, tmp_path, state) as terminal:
        terminal.expect(PROMPT)
        terminal.type("message half a li")
        terminal.type("\x03")
        terminal.expect(PROMPT)
        terminal.type("message-stream hello --task-id held\r")
        terminal.expect("new_message")
        terminal.type("\x03")
        terminal.expect("stopped; task held keeps running. Come back with task-watch held, or in a shell: ")
        terminal.expect(PROMPT)
        (waiting.folder / "go").touch()
        terminal.type("task-watch held\r")
        terminal.expect("Answer:\ngone\n")
        terminal.expect(f"task held\n{PROMPT}")
        terminal.type("\x04")
        assert terminal.end() == 0


def test_a_message_that_nobody_waits_for_any_more_is_the_last_task(
    waiting: ServerProcess, tmp_path: Path, state: dict[str, str]
) -> None:
    with open_client(waiting, tmp_path, state) as terminal:
        terminal.expect(PROMPT)
        terminal.type("message first --task-id one\r")
        (waiting.folder / "go").touch()
        terminal.expect(f"task one\n{PROMPT}")
        (waiting.folder / "go").unlink()
        terminal.type("message a second question\r")
        eventually(lambda: len(list_tasks(waiting)) == 2, "the second message has arrived")
        terminal.type("\x03")
        terminal.expect("keeps running")
        terminal.expect(PROMPT)
        terminal.type("task\r")
        terminal.expect("user → waiter  a second question")
        (waiting.folder / "go").touch()
        terminal.type("task-watch\r")
        assert "a second question" in terminal.expect("Answer:\ngone")
        terminal.type("exit\r")
        assert terminal.end() == 0


def list_tasks(server: ServerProcess) -> dict[str, object]:
    with server.client() as client:
        return dict(client.get("/tasks").json())


def test_ctrl_c_ends_a_client_that_nobody_types_to(
    waiting: ServerProcess, tmp_path: Path, state: dict[str, str]
) -> None:
    flags = ("-c", "message-stream hello", "-c", "whoami")
    with open_client(waiting, tmp_path, state, *flags) as terminal:
        terminal.expect("new_message")
        terminal.type("\x03")
        assert terminal.end() == 130
        assert "user (user)" not in terminal.shown


def test_history_lasts_but_never_holds_a_key(
    server: ServerProcess, tmp_path: Path, state: dict[str, str]
) -> None:
    with open_client(server, tmp_path, state) as first:
        first.expect(PROMPT)
        first.type("message 1+1\r")
        first.expect("1+1 = 2.")
        first.type(f"login {server.tokens['admin']}\r")
        first.expect("admin (admin)")
        first.type("login\r")
        first.expect("API key: ")
        first.type(f"{server.tokens['user']}\r")
        assert server.tokens["user"] not in first.expect("user (user)")
        first.type("quit\r")
        assert first.end() == 0
    file = tmp_path / "state" / "mail" / "client_history"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    kept = file.read_text(encoding="utf-8")
    assert "message 1+1" in kept
    for token in server.tokens.values():
        assert token not in kept
    with open_client(server, tmp_path, state) as second:
        second.expect(PROMPT)
        second.type("\x1b[A\x1b[A\x1b[A")  # up: quit, login, message
        second.expect("message 1+1")
        second.type("\r")
        second.expect("1+1 = 2.")


def test_a_server_that_is_not_there_is_no_reason_to_leave(tmp_path: Path, state: dict[str, str]) -> None:
    with Terminal("client", "http://127.0.0.1:9", cwd=tmp_path, env=state) as terminal:
        terminal.expect("cannot connect to http://127.0.0.1:9")
        terminal.expect(PROMPT)
        terminal.type("exit\r")
        assert terminal.end() == 0


def test_tasks_are_shown_in_colours_and_as_trees(terminal: Terminal) -> None:
    terminal.type("message weather in Rome --task-id rome\r")
    terminal.expect("task rome")
    terminal.type("task rome\r")
    tree = terminal.expect("task_complete")
    assert "├── supervisor → weather" in tree
    assert "\x1b[1;36m" in terminal.raw.decode()
