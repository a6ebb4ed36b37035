"""The stored form of tasks and checkpoints: `tests/fixtures` has one of every kind, as it is read and stored again."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

from mail.adapters.shared.codec import decode_events
from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.core.engine.documents import ServerDocuments
from mail.core.protocol.values import Value
from mail.core.task.documents import IN_MEMORY, Document, Kind, LoadedSwarm
from mail.core.task.interswarm import OpenRequest, Peer, PeerHealth, PeerRecord
from mail.core.task.stored import (
    FORM,
    TaskEncoder,
    read_checkpoint,
    read_message,
    read_task,
    write_checkpoint,
    write_task,
)
from mail.core.task.task import Generation, Task, TaskStatus
from mail.core.task.turn_state import Breakpoint, Decision, PausedCall, Receipt, Resumption
from mail.core.task.webhooks import WebhookRecord
from mail.errors import WrittenLater

STORED = Path(__file__).parent.parent / "fixtures"
ROOT = STORED.parent.parent


def load(name: str) -> list[Any]:
    documents: list[Any] = json.loads((STORED / name).read_text())
    return documents


TASKS = load("tasks.json")


@pytest.mark.parametrize("stored", TASKS, ids=[f"{n}-{each['status']}" for n, each in enumerate(TASKS)])
def test_a_task_comes_back_as_it_was_stored(stored: dict[str, Any]) -> None:
    task = read_task(json.dumps(stored))
    assert json.loads(write_task(task)) == stored
    assert read_task(write_task(task)) == task


def test_an_encoder_forgets_no_change_of_a_field_that_few_turns_change() -> None:
    encoder, tasks = TaskEncoder(), [read_task(json.dumps(stored)) for stored in TASKS]
    requests = [replace(tasks[-1], requests=tasks[-1].requests * n) for n in range(3)]
    titled = [replace(tasks[0], title="one", seq=n) for n in range(1, 3)]
    noted = [replace(tasks[0], generation=replace(tasks[0].generation, notes={"n": n})) for n in range(2)]
    for task in (*tasks, *requests, *titled, *noted, tasks[0]):
        encoded = encoder.encode(task)
        assert read_task(encoded) == task
        always = {
            "pending": {},
            "histories": {},
            "stored_bytes": 0,
            "history_bytes": 0,
            "steps": 0,
            "turns": 0,
        }
        assert json.loads(encoded) == {**always, **json.loads(write_task(task))}


@pytest.mark.parametrize("stored", load("checkpoints.json"))
def test_a_checkpoint_comes_back_as_it_was_stored(stored: dict[str, Any]) -> None:
    checkpoint = read_checkpoint(json.dumps(stored))
    assert json.loads(write_checkpoint(checkpoint)) == stored
    assert read_checkpoint(write_checkpoint(checkpoint)) == checkpoint


def test_the_stored_tasks_have_every_field_and_every_status() -> None:
    names = {field.name for field in (*fields(Task), *fields(Generation)) if field.init}
    assert names - {"generation"} == set().union(*TASKS)
    assert {each["status"] for each in TASKS} == {status.value for status in TaskStatus}
    full = next(task for task in TASKS if "beta" in task.get("peers", ()))
    assert {field.name for field in fields(Peer)} >= full["peers"]["beta"].keys()
    assert {field.name for field in fields(OpenRequest)} == full["requests"][0].keys()


def test_a_checkpoint_has_only_the_timings_that_are_known() -> None:
    checkpoint = read_checkpoint(json.dumps(load("checkpoints.json")[-1]))
    timed = checkpoint.with_receipt(
        0, Receipt(state=Receipt.State.DONE, content="ok", after=0.5, seconds=0.25)
    )
    assert json.loads(write_checkpoint(timed))["receipts"] == [
        {"state": "done", "content": "ok", "after": 0.5, "seconds": 0.25},
        {"state": "started", "content": ""},
        None,
    ]
    assert read_checkpoint(write_checkpoint(timed)) == timed


def test_resumptions_and_approved_calls_come_back() -> None:
    task = read_task(json.dumps(TASKS[-1]))
    call = PausedCall(
        call_id="c1",
        name="pay",
        arguments={"to": "bob"},
        needs_approval=True,
        approve_within=60.0,
        approve_by=1.5,
        approval=Decision(is_approved=True, by="user:ann@example", arguments={"to": "eve"}),
    )
    waiting = Breakpoint(agent="supervisor", tool_format="responses", calls=(call,), woken_by=7)
    resumed = replace(
        task,
        resumptions=(Resumption(seq=7, agent="supervisor", portions=2),),
        approved_calls=(waiting,),
    )
    assert read_task(write_task(resumed)) == resumed


def test_an_output_schema_comes_back() -> None:
    task = read_task(json.dumps(TASKS[-1]))
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    typed = replace(task, generation=replace(task.generation, output_schema=schema))
    assert read_task(write_task(typed)) == typed


def test_what_a_newer_version_stores_besides_is_left_alone() -> None:
    task = read_task(json.dumps({**TASKS[-1], "news": {"of": "tomorrow"}}))
    assert task == read_task(json.dumps(TASKS[-1]))


@pytest.mark.parametrize("later", [{"form": FORM + 1}, {"status": "asleep"}, {"limits": {"steps": "many"}}])
def test_a_task_that_only_a_later_version_can_read_is_refused_in_words(later: dict[str, Any]) -> None:
    with pytest.raises(WrittenLater, match="go forward to that version, or restore the database"):
        read_task(json.dumps({**TASKS[-1], **later}))


def test_events_and_messages_of_a_later_version_are_refused() -> None:
    with pytest.raises(WrittenLater):
        decode_events('[[1, "task_dreamt", "2026-01-31T08:00:00Z", "", {}, null]]')
    with pytest.raises(WrittenLater):
        read_message('{"id": "1", "msg_type": "thought"}')
    with pytest.raises(WrittenLater):
        read_checkpoint('{"calls": []}')


CHANGES = """\
from dataclasses import replace

from mail.core.decisions.submit import Submission
from mail.core.task.draft import Draft
from mail.core.task.task import Task, TaskStatus


def change(task: Task, draft: Draft, submission: Submission) -> None:
    replace(task, dead_letters=(1,))
    replace(task, unherad=True)
    replace(task.generation, steps="many")
    draft.dead_letters = ("first",)
    draft.unherad = True
    submission.evolve(task_id=1)
    submission.evolve(taskid="t")
    task.status = TaskStatus.RUNNING
    task.generation.steps = 1
"""


@pytest.mark.soak
def test_mypy_refuses_a_change_that_is_misspelt_or_of_the_wrong_type_or_made_in_place(tmp_path: Path) -> None:
    (tmp_path / "changes.py").write_text(CHANGES)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", str(tmp_path / "changes.py")],
        cwd=ROOT, capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    lines = [
        int(line.split(":")[1])
        for line in checked.stdout.splitlines()
        if "changes.py" in line and " error:" in line
    ]
    assert lines == [10, 11, 12, 13, 14, 15, 16, 17], checked.stdout + checked.stderr


def objects(stored: Any) -> Iterator[dict[str, Any]]:
    """Yield each object in a JSON document, itself included."""
    if isinstance(stored, dict):
        yield stored
    for inner in stored.values() if isinstance(stored, dict) else stored if isinstance(stored, list) else ():
        yield from objects(inner)


@pytest.mark.parametrize(
    ("read", "documents"), [(read_task, TASKS), (read_checkpoint, load("checkpoints.json"))]
)
def test_fields_that_a_later_version_has_added_anywhere_are_ignored(
    read: Callable[[str], Any], documents: list[Any]
) -> None:
    """As both run at once while an update is rolled out."""
    ignored, refused = 0, set()
    for stored in documents:
        for place in objects(stored):
            place["added_later"] = 1
            try:
                read(json.dumps(stored))
            except WrittenLater as error:  # a map whose values are objects has no fields
                refused |= {each["type"] for each in cast(ValidationError, error.__cause__).errors()}
            else:
                ignored += 1
            del place["added_later"]
    assert ignored > len(documents)
    assert not refused & {"extra_forbidden", "unexpected_keyword_argument"}


async def test_documents_of_a_later_version_are_read_without_what_it_has_added() -> None:
    peer = PeerRecord(name="beta", base_url="https://beta.example")
    health = PeerHealth(is_active=True, last_seen="", latency=0.5)
    webhook = WebhookRecord(url="https://example.com/a", created="2026-01-31T08:00:00+00:00")
    swarm = LoadedSwarm("{}", "2026-01-31T08:00:00+00:00", "0")

    def text(record: Value) -> str:
        return json.dumps({**record.model_dump(mode="json", exclude={"id"}), "added_later": 1})

    stored = {
        Kind.PEER: Document(("beta",), {"record": text(peer), "health": text(health)}),
        Kind.FOUND_PEER: Document(("beta",), {"record": text(peer), "health": text(health)}),
        Kind.WEBHOOK: Document(("user:a@s", webhook.id), {"record": text(webhook)}),
        Kind.LOADED_SWARM: Document((), {**asdict(swarm), "added_later": "1"}),
    }

    class LaterDocuments(SQLiteDocuments):
        """The documents that a server of a later version has stored."""

        async def get(self, kind: Kind, *_: str) -> Document:
            return stored[kind]

        async def find(self, kind: Kind, *_: str) -> list[Document]:
            return [stored[kind]]

    with SQLiteDatabase(IN_MEMORY) as database:
        records = ServerDocuments(LaterDocuments(database))
        assert await records.peers() == ([peer], {"beta": health})
        assert await records.all_webhooks() == [("user:a@s", webhook)]
        assert await records.loaded_swarm() == swarm
