"""Store: a commit is atomic, compares the version, and is durable once acknowledged."""

import asyncio
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from mail.core.protocol.message import Tier
from mail.core.task.approvals import Ask
from mail.core.task.events import Event
from mail.core.task.ports import Store, read_history
from mail.core.task.task import TaskKey, TaskStatus, Transition
from mail.errors import MAILError, TaskNotFound, VersionConflict
from mail.testing.changes import ANN, BOB, Mail, Maker, checkpoint
from mail.testing.contracts import StoreAdapter, committed, everything, first_turn, open_turn

KEY = TaskKey(ANN, "task-1")


async def test_unknown_task_is_none(store: Store) -> None:
    assert await store.load(KEY) is None


@pytest.mark.parametrize(
    "read",
    [
        lambda store: read_history(store, KEY, "alpha"),
        lambda store: store.read_inbox(KEY),
        lambda store: store.read_events(KEY),
        lambda store: store.read_response(KEY, 1),
        lambda store: store.read_commit(KEY, 1),
        lambda store: store.wait_for_change(KEY, after=0, seconds=0),
    ],
)
async def test_reading_of_an_unknown_task_says_so(store: Store, read: Any) -> None:
    with pytest.raises(TaskNotFound):
        await read(store)


async def test_first_commit_creates_the_task_with_its_mail_and_events(store: Store, make: Maker) -> None:
    change = await committed(store, make.begin(KEY, Mail("alpha", Tier.PERSON, "hello")))
    assert await store.load(KEY) == change.task
    assert await store.read_inbox(KEY) == list(change.deliveries)
    assert await store.read_events(KEY) == list(change.events)
    assert await read_history(store, KEY, "alpha") == []
    assert await store.read_response(KEY, 1) is None


async def test_commit_applies_every_part_of_a_turn(store: Store, make: Maker) -> None:
    begun = await committed(store, make.begin(KEY, Mail("alpha", Tier.PERSON)))
    turn = await open_turn(store, KEY, "alpha", make)
    change = make.change(
        turn.task,
        Mail("beta"),
        Mail("gamma", Tier.INTERRUPT),
        turn=turn,
        history=[{"role": "user", "content": "hi"}, {"role": "assistant", "content": None}],
        transition=Transition.COMPLETE,
    )
    await store.commit(change)
    assert await store.load(KEY) == change.task
    assert {entry.mailbox for entry in await store.read_inbox(KEY)} == {"beta", "gamma"}
    assert await store.read_events(KEY) == [*begun.events, *change.events]
    (record,) = change.histories
    assert await read_history(store, KEY, "alpha") == record.entries
    assert await store.read_response(KEY, 1) == change.response
    for event in change.events:
        stored = await store.read_commit(KEY, event.seq)
        assert (stored.task, list(stored.events)) == (change.task, list(change.events))
        assert list(stored.read) == [("alpha", turn.entry.seq)]
    assert not (await store.read_commit(KEY, 1)).read


async def test_commit_without_events_keeps_the_seq(durable: StoreAdapter, make: Maker) -> None:
    store = durable.store
    begun = make.begin(KEY, *(Mail(name, Tier.PERSON) for name in ("alpha", "beta", "gamma")))
    await store.commit(begun)
    for mailbox in ("alpha", "beta"):  # the first commit has consumed no mail, the amended one has
        turn = await open_turn(store, KEY, mailbox, make)
        change = make.change(turn.task, turn=turn, note="")
        assert change.task.seq == begun.task.seq
        await store.commit(change)
        with pytest.raises(MAILError):
            await store.commit(change)
    turn = await open_turn(store, KEY, "gamma", make)
    noted = await committed(store, make.change(turn.task, Mail("alpha"), Mail("beta"), turn=turn))
    turn = await open_turn(store, KEY, "beta", make)
    quiet = await committed(store, make.change(turn.task, turn=turn, note=""))
    for is_reopened in (False, True):
        store = await durable.reopen() if is_reopened else store
        assert await store.load(KEY) == quiet.task
        assert [entry.mailbox for entry in await store.read_inbox(KEY)] == ["alpha"]
        assert await store.read_events(KEY) == [*begun.events, *noted.events]
        assert await store.read_events(KEY, after=noted.task.seq) == []
        assert ("gamma", 3) in (await store.read_commit(KEY, noted.task.seq)).read
    last = await committed(store, make.change(quiet.task))
    assert [event.seq for event in await store.read_events(KEY)] == list(range(1, last.task.seq + 1))
    snapshot = await store.read_snapshot(KEY, last.task.seq)
    assert (snapshot.task, [mailbox for _, _, mailbox in snapshot.waiting]) == (last.task, ["alpha"])


async def test_first_commit_of_a_task_that_exists_conflicts(store: Store, make: Maker) -> None:
    first = await committed(store, make.begin(KEY, title="first"))
    with pytest.raises(VersionConflict) as conflict:
        await store.commit(make.begin(KEY, title="second"))
    assert conflict.value.current in (None, first.task)
    assert await store.load(KEY) == first.task
    assert await store.read_events(KEY) == list(first.events)


async def test_commit_on_a_version_that_has_passed_conflicts_and_writes_nothing(
    store: Store, make: Maker
) -> None:
    begun = await committed(store, make.begin(KEY))
    winner = await committed(store, make.change(begun.task, Mail("beta", body="winner"), history=[{"n": 1}]))
    before = await everything(store, KEY)
    loser = make.change(
        begun.task, Mail("gamma", body="loser"), history=[{"n": 2}], transition=Transition.COMPLETE
    )
    with pytest.raises(VersionConflict) as conflict:
        await store.commit(loser)
    assert conflict.value.current in (None, winner.task)
    assert await everything(store, KEY) == before


async def test_commit_on_a_version_still_to_come_conflicts(store: Store, make: Maker) -> None:
    begun = await committed(store, make.begin(KEY))
    unborn = make.change(begun.task).task
    with pytest.raises(VersionConflict):
        await store.commit(make.change(unborn))
    assert await store.load(KEY) == begun.task


async def test_change_of_a_task_that_does_not_exist_is_refused(store: Store, make: Maker) -> None:
    unborn = make.begin(KEY).task
    with pytest.raises((VersionConflict, TaskNotFound)):
        await store.commit(make.change(unborn))
    assert await store.load(KEY) is None


async def test_conflict_of_a_turn_keeps_its_lease_so_that_it_can_decide_again(
    store: Store, make: Maker
) -> None:
    await store.commit(make.begin(KEY))
    turn = await open_turn(store, KEY, "alpha", make)
    other = await committed(store, make.change(turn.task, Mail("beta")))
    with pytest.raises(VersionConflict):
        await store.commit(make.change(turn.task, turn=turn))
    again = make.change(other.task, turn=turn, history=[{"role": "user", "content": "hi"}])
    await store.commit(again)
    assert await store.load(KEY) == again.task
    assert [entry.mailbox for entry in await store.read_inbox(KEY)] == ["beta"]


class Unwritable:
    """The text of a history, which has none."""

    def decode(self) -> str:
        raise ValueError


async def test_a_change_that_cannot_be_written_leaves_nothing_behind(store: Store, make: Maker) -> None:
    """History that no store can write is found out late in the commit, after mail and state."""
    await store.commit(make.begin(KEY))
    turn = await open_turn(store, KEY, "alpha", make)
    before = await everything(store, KEY)
    sound = make.change(turn.task, Mail("beta"), turn=turn, history=[{"content": "fine"}])
    poison = copy(sound.histories[0])
    poison.entries, poison.encoded = [{"content": object()}], Unwritable()  # type: ignore[misc, assignment]
    poisoned = replace(sound, histories=(poison,))
    with pytest.raises((ValueError, TypeError, MAILError)):
        await store.commit(poisoned)
    assert await everything(store, KEY) == before
    await store.commit(sound)
    assert await store.load(KEY) == sound.task


@pytest.mark.parametrize("is_new", [True, False])
async def test_concurrent_commits_on_one_version_have_one_winner(
    store: Store, make: Maker, is_new: bool
) -> None:
    messages = [Mail("beta", body=f"number {n}") for n in range(8)]
    begun = None if is_new else await committed(store, make.begin(KEY))
    changes = [make.begin(KEY, mail) if begun is None else make.change(begun.task, mail) for mail in messages]
    results = await asyncio.gather(*map(store.commit, changes), return_exceptions=True)
    assert sum(result is None for result in results) == 1
    assert sum(isinstance(result, VersionConflict) for result in results) == 7
    winner = changes[results.index(None)]
    assert await store.load(KEY) == winner.task
    assert [entry.message for entry in await store.read_inbox(KEY)] == [
        *(entry.message for entry in (begun.deliveries if begun else ())),
        *(entry.message for entry in winner.deliveries),
    ]


async def test_the_same_task_id_under_two_instances_is_two_tasks(store: Store, make: Maker) -> None:
    mine, theirs = TaskKey(ANN, "same"), TaskKey(BOB, "same")
    await store.commit(make.begin(mine, Mail("alpha", body="mine"), title="mine"))
    assert await store.load(theirs) is None
    other = await committed(store, make.begin(theirs, Mail("beta", body="theirs"), title="theirs"))
    turn = await open_turn(store, mine, "alpha", make)
    await store.save_checkpoint(turn, checkpoint("mine"))
    await store.commit(
        make.change(turn.task, turn=turn, history=[{"mine": True}], transition=Transition.COMPLETE)
    )
    assert await store.load(theirs) == other.task
    assert await store.read_inbox(theirs) == list(other.deliveries)
    assert await store.read_events(theirs) == list(other.events)
    assert await read_history(store, theirs, "alpha") == []
    assert await store.read_response(theirs, 1) is None
    assert [task.title for task in (await store.list_tasks(ANN)).tasks] == ["mine"]
    assert [task.title for task in (await store.list_tasks(BOB)).tasks] == ["theirs"]


@pytest.mark.parametrize(
    "text",
    [
        "x" * 1_000_000,
        "日本語 🦊 é \N{COMBINING ACUTE ACCENT} ﷽ \u202e\u200d",
        "\x00\x01\t\r\n\x1b[31m \x7f\x85\u2028\ufffe",
        "'; DROP TABLE tasks; -- \" \\ {{}} %s ?1",
        "<incoming_message></body>&amp;<![CDATA[",
        " \n ",
    ],
    ids=["1 MB", "unicode", "control", "sql", "xml", "blank"],
)
async def test_any_text_comes_back_to_the_letter(store: Store, make: Maker, text: str) -> None:
    await store.commit(make.begin(KEY, Mail("alpha", body=text), Mail("beta", body=text), title=text))
    turn = await open_turn(store, KEY, "alpha", make)
    assert turn.entry.message.message.body == text
    await store.save_checkpoint(turn, checkpoint(text))
    await store.commit(
        make.change(
            turn.task,
            turn=turn,
            history=[{"content": text, "deep": [{"er": [text, None, 1.5, True]}]}],
            note=text,
            transition=Transition.COMPLETE,
        )
    )
    task = await store.load(KEY)
    assert task is not None
    assert task.title == text
    assert [entry.message.message.body for entry in await store.read_inbox(KEY)] == [text]
    assert (await store.read_events(KEY))[2].text == text
    assert await read_history(store, KEY, "alpha") == [
        {"content": text, "deep": [{"er": [text, None, 1.5, True]}]}
    ]
    response = await store.read_response(KEY, 1)
    assert response is not None
    assert response.message.body.endswith(text)


async def test_strange_names_are_kept_apart(store: Store, make: Maker) -> None:
    """Keys hold whatever a task id may hold; none of it may run together with its neighbours."""
    keys = [
        TaskKey(ANN, task_id)
        for task_id in (
            "a",
            "A",
            "a ",
            "a/b",
            "a%",
            "a_",
            "ä",
            "a\u0308",
            "1",
            "01",
            "user:x@y",
            "🦊",
            "a" * 256,
        )
    ]
    for number, key in enumerate(keys):
        await store.commit(make.begin(key, title=f"title {number}"))
    for number, key in enumerate(keys):
        task = await store.load(key)
        assert task is not None
        assert (task.task_id, task.title) == (key.task_id, f"title {number}")


async def test_everything_committed_is_there_after_reopening(durable: StoreAdapter, make: Maker) -> None:
    store = durable.store
    turn = await first_turn(
        store, KEY, "alpha", make, Mail("alpha", Tier.PERSON), Mail("alpha", Tier.INTERRUPT)
    )
    await store.commit(make.change(turn.task, Mail("beta"), turn=turn, history=[{"turn": 1}]))
    turn = await open_turn(store, KEY, "alpha", make)
    await store.commit(
        make.change(turn.task, turn=turn, history=[{"turn": 2}], transition=Transition.COMPLETE)
    )
    before = await everything(store, KEY)
    store = await durable.reopen()
    assert await everything(store, KEY) == before
    assert [task.task_id for task in (await store.list_tasks(ANN)).tasks] == ["task-1"]


async def test_work_goes_on_after_reopening(durable: StoreAdapter, make: Maker) -> None:
    await durable.store.commit(make.begin(KEY))
    for n in range(1, 4):
        store = await durable.reopen()
        turn = await open_turn(store, KEY, "alpha", make)
        assert len(await read_history(store, KEY, "alpha")) == n - 1
        await store.commit(make.change(turn.task, Mail("alpha"), turn=turn, history=[{"turn": n}]))
    store = await durable.reopen()
    assert [event.seq for event in await store.read_events(KEY)] == list(range(1, 8))


async def test_a_paused_task_resumes_with_what_was_left_in_its_mailboxes(store: Store, make: Maker) -> None:
    turn = await first_turn(store, KEY, "alpha", make, Mail("alpha"), Mail("beta", body="stashed"))
    paused = await committed(store, make.change(turn.task, turn=turn, transition=Transition.PAUSE))
    await store.commit(make.change(paused.task, Mail("alpha"), transition=Transition.RESUME))
    turn = await open_turn(store, KEY, "beta", make)
    assert turn.entry.message.message.body == "stashed"
    finished = await committed(store, make.change(turn.task, turn=turn, transition=Transition.COMPLETE))
    assert await store.read_response(KEY, 1) == paused.response
    assert await store.read_response(KEY, 2) == finished.response
    assert await store.read_response(KEY, 3) is None
    assert finished.task.status is TaskStatus.COMPLETED


async def test_a_timeline_is_read_in_slices(store: Store, make: Maker) -> None:
    """Each slice ends with the commit with which it reaches the size, so that every slice moves on."""
    change = await committed(store, make.begin(KEY, Mail("alpha", body="x" * 1000)))
    events = list(change.events)
    for body in ("y" * 1000, "short", "z" * 5000):
        change = make.change(change.task, Mail("alpha", body=body), Mail("beta", body=body))
        await store.commit(change)
        events += change.events
    assert await store.read_events(KEY, max_bytes=10**9) == events
    read: list[Event] = []
    while batch := await store.read_events(KEY, after=len(read), max_bytes=2500):
        assert len(batch) < len(events)
        read += batch
    assert read == events
    assert await store.read_events(KEY, max_bytes=10**9, limit=2) == events[:2]


async def test_mail_is_read_in_slices(store: Store, make: Maker) -> None:
    mail = [Mail(agent, body="x" * 1000) for agent in ("alpha", "beta", "alpha", "alpha")]
    await store.commit(make.begin(KEY, *mail, Mail("beta", Tier.PERSON, "first")))
    everything = await store.read_inbox(KEY)
    assert everything[0].message.message.body == "first"
    assert await store.read_inbox(KEY, max_bytes=10**9) == everything
    read = await store.read_inbox(KEY, max_bytes=1500)
    assert 2 <= len(read) <= 3
    while batch := await store.read_inbox(KEY, after=read[-1], max_bytes=1):
        assert len(batch) == 1
        read += batch
    assert read == everything


async def test_large_mail_and_checkpoints_come_back_as_they_were(store: Store, make: Maker) -> None:
    """A store may keep short texts in memory only."""
    body = "ü" * 100_000
    turn = await first_turn(store, KEY, "alpha", make, Mail("alpha", body=body))
    assert turn.entry.message.message.body == body
    done = checkpoint(body)
    await store.save_checkpoint(turn, done)
    await store.release(turn)
    turn = await open_turn(store, KEY, "alpha", make)
    assert turn.checkpoint == done
    ended = await committed(store, make.change(turn.task, turn=turn, transition=Transition.COMPLETE))
    assert await store.read_inbox(KEY) == []
    assert await store.read_response(KEY, 1) == ended.response


async def test_values_read_are_the_callers_own(store: Store, make: Maker) -> None:
    """What a caller does to a list it was given must not change what the next reader gets."""
    turn = await first_turn(store, KEY, "alpha", make, Mail("alpha"), Mail("beta"))
    await store.commit(make.change(turn.task, turn=turn, history=[{"content": ["kept"]}]))
    (await store.read_inbox(KEY)).clear()
    (await store.read_events(KEY)).clear()
    history = await read_history(store, KEY, "alpha")
    history[0]["content"] = "changed"
    history.clear()
    assert len(await store.read_inbox(KEY)) == 1
    assert len(await store.read_events(KEY)) == 3
    assert await read_history(store, KEY, "alpha") == [{"content": ["kept"]}]


async def test_what_waits_for_whom_changes_with_commits(store: Store, make: Maker) -> None:
    bob, admins = "user:bob@example", "admin@example"
    asks = {*(Ask(bob, f"0-{n}") for n in (3, 1, 2)), Ask(admins, "0-1")}
    begun = await committed(store, replace(make.begin(KEY, Mail("alpha")), asks=asks))
    assert await store.find_asks(bob, limit=2) == [("0-1", KEY), ("0-2", KEY)]
    assert await store.find_asks(bob, start="0-2", limit=5) == [("0-2", KEY), ("0-3", KEY)]
    change = replace(
        make.change(begun.task), asks={Ask(bob, "0-4")}, unasks={Ask(bob, "0-2"), Ask(admins, "0-1")}
    )
    await store.commit(change)
    with pytest.raises(VersionConflict):
        await store.commit(replace(change, asks={Ask(bob, "0-5")}, unasks={Ask(bob, "0-1")}))
    assert [ask_id for ask_id, _ in await store.find_asks(bob, limit=5)] == ["0-1", "0-3", "0-4"]
    assert await store.find_asks(admins, limit=5) == await store.find_asks("user:bo@example", limit=5) == []
