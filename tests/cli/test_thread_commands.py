"""`mail thread list` and `show`, against a server whose crew works on beads."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.processes.server import ServerProcess
from support.processes.terminal import Terminal

from mail.cli.threads import asks_in, reply
from mail.cli.views.questions import Question
from mail.client import MAILClient
from mail.errors import MAILError


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with a task that is completed, and one that waits for its owner."""
    with ServerProcess(tmp_path_factory.mktemp("crew"), "--swarm-name", "crew") as server:
        server.ask("a-1: an easy one\na-2: a limit", task_id="done")
        server.ask("p-1: a price", task_id="waiting")
        yield server


@pytest.fixture
def mail(crew: ServerProcess) -> Any:
    """What a command prints."""
    return crew.prints


def rows(text: str) -> dict[str, list[str]]:
    return {cells[0]: cells[1:] for cells in (line.split("\t") for line in text.splitlines()[1:])}


def test_inbox(mail: Any) -> None:
    listed = rows(mail("thread", "list", "--limit", "100"))
    assert listed["a-1"][:3] == ["done", "worker-1", "-"]
    assert listed["a-1"][4:] == ["done", "an easy one"]
    assert listed["done"][:3] == ["completed", "-", "-"]
    assert listed["done"][4] == "-", "the id is not repeated"
    assert listed["done"][5] not in ("-", "")
    assert listed["p-1"][:3] == ["stuck", "worker-1", "2 pending"]
    answer = json.loads(mail("thread", "list", "--json", "--limit", "100"))
    assert [each["thread_id"] for each in answer["threads"]] == list(listed)


def test_choosing(mail: Any) -> None:
    assert set(rows(mail("thread", "list", "--pending"))) == {"p-1"}
    assert rows(mail("thread", "list", "--overdue")) == {}
    late = rows(mail("thread", "list", "--overdue", "--ack-within", "0"))
    assert late["p-1"][2] == "2 pending, 2 overdue"
    assert set(rows(mail("thread", "list", "--bead", "a-2"))) == {"a-2"}
    assert set(rows(mail("thread", "list", "--task", "done"))) == {"a-1", "a-2", "done"}
    assert set(rows(mail("thread", "list", "--open"))) == {"p-1", "waiting"}
    page = json.loads(mail("thread", "list", "--limit", "1", "--json"))
    assert [(each["thread_id"], each["task_ids"]) for each in page["threads"]] == [("waiting", ["waiting"])]
    rest = rows(mail("thread", "list", "--cursor", page["next_cursor"]))
    assert set(rest) == {"p-1", "done", "a-1", "a-2"}


def test_thread(mail: Any) -> None:
    lines = mail("thread", "show", "a-2").splitlines()
    facts, tree = lines[: lines.index("")], lines[lines.index("") + 1 :]
    assert {
        "thread      a-2",
        "tasks       done",
        "bead        a-2 a limit",
        "state       done",
        "worker      worker-2",
        "progress    2 of 3: goes well",
    } < set(facts)
    assert tree[0].startswith("orchestrator → worker-2  [a-2] SPAWN_REQUEST | Issue: a-2")
    help_request = next(n for n, line in enumerate(tree) if "HELP_REQUEST" in line)
    assert tree[help_request].startswith("worker-2 → orchestrator  [a-2] HELP_REQUEST | Bead: a-2")
    assert tree[help_request + 1] == "  orchestrator → worker-2  [a-2] HELP_RESPONSE | The shorter one."
    record = json.loads(mail("thread", "show", "a-2", "--task", "done", "--json"))
    assert len(record["conversation"]) == len(tree)


def test_messages_in_full(mail: Any) -> None:
    lines = mail("thread", "show", "p-1", "--full").splitlines()
    start = lines.index("worker-1 → orchestrator (pending) [p-1] HELP_REQUEST")
    assert lines[start + 1] == "  Bead: p-1"
    assert lines[lines.index("  ## Question", start) + 1] == "  Which currency are the prices in?"


def test_what_waits_is_marked(mail: Any) -> None:
    shown = mail("thread", "show", "p-1")
    assert "question    Which currency are the prices in?" in shown
    assert "orchestrator → user  (pending) [p-1] HELP_REQUEST" in shown
    assert "(overdue) [p-1] HELP_REQUEST" in mail("thread", "show", "p-1", "--ack-within", "0")


def test_a_reply_resumes_the_task(mail: Any, crew: ServerProcess) -> None:
    crew.ask("q-1: a price", task_id="asked")
    crew.ask("r-1: a price", task_id="asked-too")
    answer = mail("thread", "show", "q-1", "--reply", "Euros.")
    assert answer.startswith("q-1: worker-1 has done it in ")
    assert crew.task("asked")["status"] == "completed"
    done = json.loads(mail("thread", "show", "r-1", "--reply", "Crowns.", "--task", "asked-too", "--json"))
    assert done["task_id"] == "asked-too"
    mail("thread", "show", "q-1", "--reply", "Pounds.", fails="no task waits for your answer in thread 'q-1'")


def test_a_task_that_is_paused_by_a_beads_question_may_be_named(mail: Any, crew: ServerProcess) -> None:
    crew.ask("aa-1: a price", task_id="AA")
    mail(
        "thread", "show", "AA", "--reply", "", fails="body must not be empty: it is the answer to a question"
    )
    assert crew.task("AA")["status"] == "paused"
    assert mail("thread", "show", "AA", "--reply", "Euros.").startswith("aa-1: worker-1 has done it in ")


def test_another_question_is_shown(mail: Any, crew: ServerProcess) -> None:
    crew.ask("ab-1: a price\nab-2: a price", task_id="twice")
    (call,) = crew.task("twice")["pending_tool_calls"]
    first, second = ("ab-1", "ab-2") if call["arguments"]["bead_id"] == "ab-1" else ("ab-2", "ab-1")
    mail(
        "thread",
        "show",
        second,
        "--reply",
        "No.",
        fails=f"no task waits for your answer in thread {second!r}",
    )
    assert mail("thread", "show", first, "--reply", "Euros.", code=4).splitlines() == [
        f"thread      {second}",
        "question    Which currency are the prices in?",
        "Answer with",
        f"  mail thread show {second} --task twice --reply TEXT",
    ]
    done = json.loads(mail("thread", "show", second, "--reply", "Crowns.", "--json"))
    assert (done["task_id"], done["status"]) == ("twice", "completed")


def test_one_bead_that_waits_in_two_tasks(mail: Any, crew: ServerProcess) -> None:
    for task in ("one", "two"):
        crew.ask("ac-1: a price", task_id=task)
    mail(
        "thread", "show", "ac-1", "--reply", "Euros.",
        fails="several tasks wait for an answer in thread 'ac-1': two, one; choose with --task",
    )  # fmt: skip
    assert {crew.task(task)["status"] for task in ("one", "two")} == {"paused"}
    mail("thread", "show", "ac-1", "--reply", "Euros.", "--task", "one")
    assert [crew.task(task)["status"] for task in ("one", "two")] == ["completed", "paused"]
    mail("thread", "show", "ac-1", "--reply", "Euros.")
    assert crew.task("two")["status"] == "completed"


async def test_of_two_replies_at_once_one_counts(crew: ServerProcess) -> None:
    crew.ask("ad-1: a price", task_id="both")
    async with MAILClient(crew.url, crew.tokens["user"]) as client:
        replies = await asyncio.gather(
            *(reply(client, "ad-1", text) for text in ("Euros.", "Pounds.")), return_exceptions=True
        )
    (refused,) = [each for each in replies if isinstance(each, MAILError)]
    assert refused.detail == "no task waits for your answer in thread 'ad-1'"
    assert crew.task("both")["generation"] == 2


def test_a_question_that_was_dropped_is_marked(mail: Any, crew: ServerProcess) -> None:
    crew.ask("ae-1: a price", task_id="dropped")
    crew.ask("ae-2: an easy one", task_id="dropped", drop_question=True)
    assert "orchestrator → user  (closed) [ae-1] HELP_REQUEST" in mail("thread", "show", "ae-1")
    assert rows(mail("thread", "list", "--bead", "ae-1"))["ae-1"][2] == "-"
    mail("thread", "show", "ae-1", "--reply", "x", fails="no task waits for your answer in thread 'ae-1'")


def test_other_calls_that_wait_are_no_questions() -> None:
    call = Question("c", "book")
    question = Question("c", "book", asks={"routing_info": {"thread_id": "b-1"}})
    assert [asks_in(each, "t", "t") for each in (call, question)] == [False, True]
    assert [asks_in(question, thread_id, "t") for thread_id in ("b-1", "b-2", "")] == [True, False, False]


def test_what_there_is_not(mail: Any) -> None:
    mail(
        "thread",
        "show",
        "none",
        fails="there is no thread 'none' in your newest 100 tasks; if it belongs to an older task, name the task",
    )


def test_in_the_client(crew: ServerProcess) -> None:
    crew.ask("s-1: a price", task_id="of-the-client")
    lines = [
        "threads --pending --bead s-1",
        "threads --task done",
        "thread a-1",
        "thread s-1 --reply 'Euros.'",
        "task",
    ]
    done = crew.mail("client", *(word for line in lines for word in ("-c", line)), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    pending, inbox, thread, reply, task = map(json.loads, done.stdout.splitlines())
    assert [each["thread_id"] for each in pending["threads"]] == ["s-1"]
    assert len(inbox["threads"]) == 3
    assert thread["summary"]["bead_id"] == "a-1"
    assert reply["response"].startswith("s-1: worker-1 has done it")
    assert task["task_id"] == "of-the-client"


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("thread", "list", "--pending"), "thread  state  worker"),
        (("thread", "show", "a-2"), "└── orchestrator → worker-2"),
    ],
)
def test_at_a_terminal(crew: ServerProcess, tmp_path: Path, arguments: tuple[str, ...], shown: str) -> None:
    with Terminal(*arguments, cwd=tmp_path, env=crew.caller()) as terminal:
        terminal.expect(shown)
        assert terminal.end() == 0
