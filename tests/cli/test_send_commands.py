"""`mail send`, `mail reply` and `mail agents`, and the ids that a shell completes."""

import json
from pathlib import Path

import pytest
from support.processes.approval_swarm import Bank
from support.processes.server import ServerProcess, eventually
from support.processes.terminal import Terminal


def test_send_prints_the_answer_alone(server: ServerProcess) -> None:
    done = server.mail("send", "what's", "2**10", "--task-id", "sent", "--to", "supervisor")
    assert (done.returncode, done.stdout, done.stderr) == (0, "2**10 = 1024.\n", "")
    again = server.mail("send", "2**11", "--task-id", "sent", "--json")
    assert json.loads(again.stdout) == {
        "response": "2**11 = 2048.",
        "task_id": "sent",
        "status": "completed",
    }
    refused = server.mail("send", "hi", "--to", "superviser")
    assert (refused.returncode, "superviser" in refused.stderr) == (1, True)


def test_send_need_not_wait(waiting: ServerProcess) -> None:
    done = waiting.mail("send", "hello", "--no-wait")
    task_id = done.stdout.strip()
    assert (done.returncode, waiting.task(task_id)["status"]) == (0, "running")
    shown = waiting.mail("task", "show", task_id).stdout
    assert "working     waiter since " in shown
    (waiting.folder / "go").touch()
    eventually(lambda: waiting.task(task_id)["status"] == "completed", "the task continues by itself")


def test_ctrl_c_says_how_to_come_back(waiting: ServerProcess) -> None:
    words = ("send", "hello", "--task-id", "held")
    with Terminal(*words, cwd=waiting.folder, env=waiting.caller()) as terminal:
        terminal.expect("half of an answer")
        terminal.type("\x03")
        terminal.expect("mail: stopped; task held keeps running. Come back with mail task watch held")
        assert terminal.end() == 130


def test_reply_answers_a_question_and_continues_a_task(server: ServerProcess) -> None:
    asked = server.mail("send", "ask a human: may I?", "--task-id", "replied")
    assert asked.returncode == 4
    question, *hint = asked.stdout.splitlines()
    assert (question, hint) == (
        "supervisor asks: may I?",
        ["Answer with", '  mail reply replied "your answer"'],
    )
    assert server.mail("reply", "replied", "it's ok").stdout == "it's ok\n"
    assert server.mail("reply", "replied", "2**3").stdout == "2**3 = 8.\n"


def test_reply_takes_an_answer_for_each_question(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank") as bank:
        asked = bank.mail("send", "ask who ask when", "--task-id", "both")
        assert asked.stdout.splitlines()[-1] == '  mail reply both "your answer" "your answer"'
        short = bank.mail("reply", "both", "ann")
        assert (short.returncode, short.stdout) == (2, "")
        assert short.stderr.splitlines()[1:] == ["  1. payer asks: who", "  2. payer asks: when"]
        assert bank.mail("reply", "both", "ann", "at noon").stdout == "ann | at noon\n"


def test_reply_names_the_commands_that_decide(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank") as bank:
        bank.mail("send", "pay 500", "--task-id", "costly")
        refused = bank.mail("reply", "costly", "yes")
        assert refused.returncode == 2
        assert "payer wants to run pay(to: bob, amount: 500)" in refused.stderr
        assert "mail task approve costly" in refused.stderr
        assert bank.paid == []


def test_agents(server: ServerProcess) -> None:
    lines = server.mail("agents").stdout.splitlines()
    assert lines[0] == "agent\ttakes messages\twrites to\tactions"
    assert lines[1] == "supervisor\tby default\tweather, math\task_human"
    assert lines[2] == "weather\tno\tsupervisor\tget_weather_forecast"


@pytest.mark.parametrize(
    ("words", "found"),
    [("task show known", {"known-one"}), ("send hi --to s", {"supervisor"}), ("reply no-", set())],
)
def test_a_shell_completes_what_the_server_knows(server: ServerProcess, words: str, found: set[str]) -> None:
    server.ask("hi", task_id="known-one")
    shell = {"_MAIL_COMPLETE": "bash_complete", "COMP_WORDS": f"mail {words}"}
    shell["COMP_CWORD"] = str(len(words.split()))
    done = server.mail(**shell)
    assert set(done.stdout.split()) == {f"plain,{each}" for each in found}
    shell["MAIL_SERVER"] = "http://127.0.0.1:9"
    silent = server.mail(**shell)
    assert (silent.stdout.strip(), silent.stderr) == ("", "")
