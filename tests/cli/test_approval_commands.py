"""`mail task approve` and `mail task reject`, against a server; it is killed while a task waits."""

import json
import signal
from collections.abc import Iterator

import pytest
from support.processes.approval_swarm import Bank
from support.processes.terminal import Terminal


@pytest.fixture(scope="module")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bank]:
    with Bank(tmp_path_factory.mktemp("bank")) as running:
        yield running


def test_the_server_is_killed_and_the_call_is_approved_with_other_arguments(bank: Bank) -> None:
    (call,) = bank.post("pay 5000", task_id="edited").json()["pending_tool_calls"]
    assert call == {
        "call_id": call["call_id"],
        "agent": "payer",
        "name": "pay",
        "arguments": {"to": "bob", "amount": 5000},
        "arguments_text": '{"to": "bob", "amount": 5000}',
        "needs_approval": True,
    }
    bank.process.send_signal(signal.SIGKILL)
    bank.process.wait()
    bank.start()
    before = len(bank.paid)
    waits = bank.mail("task", "watch", "edited")
    assert waits.returncode == 4
    assert "mail task approve edited" in waits.stdout
    wrong = bank.mail("task", "approve", "edited", "--arguments", '{"to": "bob"}')
    assert wrong.returncode == 1
    assert "pay does not take these arguments: amount" in wrong.stderr
    other = bank.mail("task", "approve", "edited", "--shown", "0" * 16)
    assert other.returncode == 2
    assert "no call that waits has the arguments that were shown" in other.stderr
    shown = bank.prints(
        "task", "approve", "edited", "--call", call["call_id"], "--arguments", '{"to": "eve", "amount": 1}'
    )
    assert shown.endswith("Result: paid 1 to eve\n")
    assert bank.paid[before:] == ["eve 1"]


def test_one_call_is_rejected_and_then_the_others_are_approved(bank: Bank) -> None:
    before = len(bank.paid)
    calls = bank.post("pay 50 200 300", task_id="several").json()["pending_tool_calls"]
    assert bank.paid[before:] == ["bob 50"]  # it needs no approval
    first, second = (call["call_id"] for call in calls)
    assert (
        f"mail task approve several --call {first} --shown " in bank.mail("task", "watch", "several").stdout
    )
    unclear = bank.mail("task", "approve", "several")
    assert (unclear.returncode, f'{second}: pay with {{"to": "bob", "amount": 300}}' in unclear.stderr) == (
        1,
        True,
    )
    half = bank.mail("task", "reject", "several", "--call", second, "--reason", "too much")
    assert half.returncode == 4
    decide = next(line for line in half.stdout.splitlines() if "mail task approve several" in line)
    assert [call.get("decision") for call in bank.task("several")["pending_tool_calls"]] == [None, "reject"]
    answer = json.loads(bank.prints("task", "approve", "several", "--json", *decide.split()[4:]))
    assert answer["response"].endswith(
        "SUCCESS: paid 200 to bob | ERROR: a person has rejected this call, and it was not run: too much"
    )
    assert bank.paid[before:] == ["bob 50", "bob 200"]
    assert first in {
        event["data"]["extra_data"].get("tool_call_id")
        for event in answer["events"]
        if "extra_data" in event["data"]
    }


def test_a_task_that_waits_for_nothing(bank: Bank) -> None:
    bank.ask("pay 1", task_id="small")
    refused = bank.mail("task", "approve", "small")
    assert refused.returncode == 1
    assert "no call of task 'small' waits for approval" in refused.stderr


def test_the_prompt_says_how_to_decide(bank: Bank) -> None:
    lines = ("message 'pay 700' --task-id prompted", "task-reject prompted --reason no")
    done = bank.mail("client", *(word for line in lines for word in ("-c", line)))
    assert "task-approve prompted" in done.stdout, done.stderr
    assert "it was not run: no" in done.stdout


def test_a_reviewer_lists_shows_and_decides(bank: Bank) -> None:
    before = len(bank.paid)
    assert "SUCCESS: paid 5 to bob" in bank.post("wire 5", task_id="wired-small").text
    (paused,) = bank.post("wire 500", task_id="wired").json()["pending_tool_calls"]
    assert paused["reviewers"] == ["admin", "user:eve"]
    (seen,) = json.loads(bank.mail("approvals", "list", "--json", role="admin").stdout)["approvals"]
    listed = bank.mail("approvals", "list").stdout
    assert f"{seen['id']}\tadmin, user:eve\t" in listed
    assert "payer: wire(to: bob, amount: 500)" in listed
    assert "wired" not in bank.mail("approvals", "list", role="admin").stdout
    env = bank.caller("admin", COLUMNS="80")
    with Terminal("approvals", cwd=bank.folder, env=env) as terminal:
        assert terminal.end() == 0
    assert f"{seen['id'][:12]}.0  you  " in terminal.shown
    assert terminal.shown.splitlines()[1].endswith("  payer: wire(to: bob, amount: 500)")
    refused = bank.mail("approvals", "approve", seen["id"])
    assert refused.returncode == 1
    assert "may decide on it" in refused.stderr
    assert seen["id"] in bank.mail("client", bank.url, "-c", "approvals", role="admin").stdout
    shown = bank.mail("approvals", "show", seen["id"][:12], role="admin").stdout
    assert bank.mail("approvals", "reject", seen["id"][:11], role="admin").returncode == 1
    assert '{"to": "bob", "amount": 500}' in shown
    assert seen["arguments_sha256"] in shown
    assert "wired" not in shown
    differs = bank.mail("approvals", "approve", seen["id"], "--sha256", "0" * 64, role="admin")
    assert differs.returncode == 1
    bank.prints("approvals", "approve", seen["id"], "--arguments", '{"to": "eve", "amount": 2}', role="admin")
    watched = bank.mail("task", "watch", "wired")
    assert "paid 2 to eve" in watched.stdout
    assert bank.paid[before:] == ["bob 5", "eve 2"]
    assert json.loads(bank.mail("approvals", "list", "--json", role="admin").stdout)["approvals"] == []


def test_a_reviewer_answers_a_question(bank: Bank) -> None:
    bank.post("consult lawyers", task_id="asked")
    (seen,) = json.loads(bank.mail("approvals", "list", "--json", role="admin").stdout)["approvals"]
    assert (
        "payer asks with consult for user:" in bank.mail("approvals", "show", seen["id"], role="admin").stdout
    )
    assert "mail approvals list" in bank.mail("task", "watch", "asked").stdout
    wrong = bank.mail("approvals", "approve", seen["id"], role="admin")
    assert (wrong.returncode, "is one of: answer, reject" in wrong.stderr) == (1, True)
    assert bank.mail("approvals", "answer", seen["id"], "ask them").returncode == 1
    bank.prints("approvals", "answer", seen["id"], "ask them", role="admin")
    assert "ask them" in bank.mail("task", "watch", "asked").stdout


def test_calls_of_one_pause_are_told_apart_by_short_ids(bank: Bank) -> None:
    bank.post("pay 600 700", task_id="two")
    ids = [each["id"] for each in json.loads(bank.mail("approvals", "--json").stdout)["approvals"]]
    short = [f"{each[:12]}.{number}" for number, each in enumerate(ids)]
    with Terminal("approvals", "list", cwd=bank.folder, env=bank.caller("user", COLUMNS="80")) as terminal:
        assert terminal.end() == 0
    rows = [line.split() for line in terminal.shown.splitlines()[1:]]
    assert [(row[0], row[-1]) for row in rows] == [(short[0], "600)"), (short[1], "700)")]
    bank.prints("approvals", "reject", short[1])
    (left,) = json.loads(bank.mail("approvals", "list", "--json").stdout)["approvals"]
    assert left["arguments"]["amount"] == 600
    bank.prints("approvals", "reject", left["id"])


def test_the_list_has_the_tasks_that_need_their_owner_too(bank: Bank) -> None:
    bank.post("wire 500", task_id="reviewed")
    failed = bank.post("pay 1", task_id="late", kwargs={"timeout": 0.001})
    assert failed.status_code == 200
    listed = bank.mail("approvals", "list").stdout.splitlines()
    rows = {cells[0]: cells[1:] for cells in (line.split("\t") for line in listed)}
    assert rows["reviewed"][0] == "waits for others"
    assert rows["late"][0] == "has failed"
    assert "time" in rows["late"][2]
    assert bank.mail("task", "cancel", "reviewed").returncode == 0
