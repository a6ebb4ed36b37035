"""`mail chat`: what somebody types at a terminal or pipes in, and sees."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes.approval_swarm import Bank
from support.processes.server import ServerProcess, eventually
from support.processes.terminal import Terminal

PROMPT = "you>"


def open_chat(server: ServerProcess, folder: Path, command: str = "chat", *flags: str) -> Terminal:
    env = server.caller(XDG_STATE_HOME=str(folder / "state"), HOME=str(folder))
    return Terminal(command, server.url, *flags, cwd=folder, env=env)


@pytest.fixture
def chat(server: ServerProcess, tmp_path: Path) -> Iterator[Terminal]:
    with open_chat(server, tmp_path) as terminal:
        terminal.expect(PROMPT)
        yield terminal


def tasks_of(server: ServerProcess) -> dict[str, object]:
    with server.client() as client:
        return dict(client.get("/tasks", params={"fields": "summary"}).json())


def test_text_begins_a_task_and_continues_it(chat: Terminal, server: ServerProcess) -> None:
    before = tasks_of(server).keys()
    chat.type("what's the weather in Oslo\r")
    chat.expect("· 2 messages, 1 action")  # folded: no line of a message is left
    chat.expect("The weather in Oslo today")
    chat.expect(PROMPT)
    chat.type("2**10\r")
    chat.expect("2**10 = 1024.")
    (begun,) = tasks_of(server).keys() - before
    assert server.task(begun)["generation"] == 2
    chat.type("/new\r")
    chat.expect("The next message starts a new task.")
    chat.type("//tasks\r")  # text that begins with a slash
    chat.expect(PROMPT)
    eventually(lambda: len(tasks_of(server).keys() - before) == 2, "a second task")
    chat.type(f"/open {begun}\r")
    chat.expect(f"task {begun[:8]} is completed")
    chat.type("/help\r")
    assert "/open" in chat.expect("Every other line is a message")
    chat.type("/tsks\r")
    chat.expect("did you mean /tasks?")
    chat.type("/exit\r")
    assert chat.end() == 0


def test_a_wrong_key_is_asked_for_again(server: ServerProcess, tmp_path: Path) -> None:
    env = {"MAIL_API_KEY": "wrong", "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    with Terminal("chat", server.url, cwd=tmp_path, env=env) as chat:
        chat.expect("API key: ")
        assert "key" in chat.shown
        assert PROMPT not in chat.shown
        chat.type("wrong, too\r")
        chat.expect("API key: ")
        chat.type(f"{server.tokens['user']}\r")
        chat.expect("You are user (user).")
        chat.expect(PROMPT)
        chat.type("2**10\r")
        chat.expect("2**10 = 1024.")


@pytest.mark.parametrize("leave", ["\r", "\x04"], ids=["empty line", "end of input"])
def test_without_a_key_or_a_server_nobody_can_chat(server: ServerProcess, tmp_path: Path, leave: str) -> None:
    env = {"MAIL_API_KEY": "", "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    with Terminal("chat", server.url, cwd=tmp_path, env=env) as chat:
        chat.expect("or set MAIL_API_KEY\n")
        chat.expect("An empty line or Ctrl+C leaves.\nAPI key: ")
        chat.type(leave)
        chat.expect("mail: no API key was given")
        assert chat.end() == 1
    with Terminal("chat", "http://127.0.0.1:9", cwd=tmp_path, env=env) as chat:
        assert chat.end() == 1
        assert "cannot connect to http://127.0.0.1:9" in chat.shown
        assert PROMPT not in chat.shown


def test_a_question_is_answered_by_typing(chat: Terminal) -> None:
    chat.type("ask a human: isn't it?\r")
    chat.expect("supervisor asks: isn't it?\nType your answer.")
    chat.expect(PROMPT)
    chat.type("it's fine\r")
    chat.expect("\nit's fine\n")


def test_calls_are_approved_edited_and_rejected_in_words(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank") as bank, open_chat(bank, tmp_path) as chat:
        chat.expect(PROMPT)
        chat.type("pay 200 300 400\r")
        chat.expect("payer wants to run pay(to: bob, amount: 200)")
        chat.expect("Type approve, reject REASON, or edit NAME=VALUE")
        chat.expect(PROMPT)
        chat.type("well\r")
        chat.expect("\npayer wants to run pay(to: bob, amount: 200). Type approve")
        chat.type("edit amount=lots\r")  # the server refuses it, and the question stays
        chat.expect('- amount: 200\n+ amount: "lots"\n')
        chat.expect(PROMPT)
        chat.type("edit amount=5\r")
        chat.expect("- amount: 200\n+ amount: 5\n")
        chat.expect("amount: 300)\n")
        chat.expect(PROMPT)
        chat.type("no, it's too much\r")
        chat.expect("amount: 400)\n")
        chat.expect(PROMPT)
        chat.type("yes\r")
        chat.expect("it was not run: it's too much")
        chat.expect("paid 400 to bob")
        assert bank.paid == ["bob 5", "bob 400"]


def test_approvals_come_before_questions_whose_answers_are_sent_together(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank") as bank:
        given = "ask who ask when pay 500\nyes\nann\nat noon\n"
        done = bank.mail("chat", "--task-id", "mixed", given=given)
        assert done.stdout.splitlines()[-1] == "ann | at noon | SUCCESS: paid 500 to bob"
        assert (done.returncode, bank.paid) == (0, ["bob 500"])


def test_what_reviewers_answer_is_not_asked_of_the_owner(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank") as bank:
        given = "consult lawyers ask who\nann\n"
        done = bank.mail("chat", "--task-id", "mixed", given=given)
        assert "Type your answer." in done.stdout
        assert "payer waits for admin to answer consult(question: lawyers)" in done.stdout
        assert done.stderr == ""
        done = bank.mail("chat", "--task-id", "theirs", given="consult lawyers\n")
        assert "approvals list" in done.stdout
        assert "Type your answer." not in done.stdout
        reply = bank.mail("reply", "theirs", "x")
        assert (reply.returncode, "approvals list" in reply.stderr) == (2, True)


def test_plain_text_streams_as_the_answer(waiting: ServerProcess, tmp_path: Path) -> None:
    with open_chat(waiting, tmp_path) as chat:
        chat.expect(PROMPT)
        chat.type("plainly\r")
        chat.expect("half of an answer")
        (waiting.folder / "go").touch()
        chat.expect("gone plainly\n")
        assert "waiter: half" not in chat.shown
    (task_id,) = tasks_of(waiting)
    for shown in (("-e",), ()):
        done = waiting.mail("task", "show", "last", *shown)
        assert task_id in done.stdout
        assert "gone plainly" in done.stdout
        assert "text" not in done.stdout


def test_text_streams_and_ctrl_c_leaves_the_task_running(waiting: ServerProcess, tmp_path: Path) -> None:
    with open_chat(waiting, tmp_path) as chat:
        chat.expect(PROMPT)
        chat.type("hello\r")
        chat.expect("half of an answer")
        chat.expect("waiter: house/model")
        chat.type("\x03")
        (task_id,) = tasks_of(waiting)
        stopped = chat.expect(f"task {task_id[:8]} keeps running. Come back with /task-watch {task_id[:8]}")
        assert stopped.rindex("half of an answer") > stopped.rfind("waiter: house/model")  # it stays
        chat.expect(PROMPT)
        (waiting.folder / "go").touch()
        chat.type("/task-watch\r")
        chat.expect("Answer:\ngone")
        chat.expect(f"task {task_id[:8]}\n{PROMPT}")
        chat.type("\x03")
        chat.expect(
            f"Ctrl+C again leaves.\n{PROMPT}"
        )  # before it, the key would be a signal, and the exit code 130
        chat.type("\x03")
        assert chat.end() == 0


def test_text_at_the_prompt_of_the_client(server: ServerProcess, tmp_path: Path) -> None:
    with open_chat(server, tmp_path, "client") as client:
        client.expect("mail>")
        client.type("isn't it 7*6?\r")
        client.expect("42")
        client.expect("mail>")
        client.type("/whoami\r")
        client.expect("user (user)")
        client.type("mesage hi\r")
        client.expect("did you mean message? (to send the line as text, begin with: message)")
        client.type("status\r")
        client.expect("active_users")


def test_a_pipe_gets_plain_lines(server: ServerProcess) -> None:
    def run(given: str, *flags: str) -> subprocess.CompletedProcess[str]:
        return server.mail("chat", "--task-id", "chatted", *flags, given=given)

    done = run("it's the weather in Rome, isn't it?\n/nosuch\n# 2**10\nask a human: may I?\n")
    assert done.returncode == 1  # of /nosuch
    lines = done.stdout.splitlines()
    assert lines[0].startswith("  supervisor → weather  ")
    assert "2**10 = 1024." in lines
    assert lines[-2:] == ["supervisor asks: may I?", "Type your answer."]
    assert "\x1b" not in done.stdout
    (answer,) = (json.loads(line) for line in run("you may\n", "--json").stdout.splitlines())
    assert answer == {"response": "you may", "task_id": "chatted", "status": "completed"}
