"""Tasks by MAIL 2.0, on every store: whatever dies, each message is answered once."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.engines.adapters import StoreAdapter
from support.engines.mortal import mortal_rows
from support.mail2 import Person, Stage
from support.mail2_tasks import DESK, HELPER, got, is_delivered, make_claude, reply, swarm, tasks_of
from support.processes.http_server import eventually

from mail.core.task.deletion import LegalHold
from mail.core.task.rows import Write
from mail.core.task.task import Task, TaskKey
from mail.errors import MailboxFull, TaskBusy, VersionConflict
from mail.mail2 import WORK
from mail.mail2.host import MailHost
from mail.mail2.records import HELD, MESSAGES, TASKS, THREADS, Delivery, Message, Tidy
from mail.testing.agents import build_swarm
from mail.testing.clock import FakeClock

DAY = 86_400.0


@pytest.fixture
async def stage(adapter: StoreAdapter, cheap_passwords: None) -> AsyncIterator[Stage]:
    async with Stage(adapter.rows, swarm(), adapter.store) as stage:
        yield stage


@pytest.fixture
async def ann(stage: Stage) -> Person:
    return await stage.person("ann")


@pytest.fixture
async def bob(stage: Stage) -> Person:
    return await stage.person("bob")


@pytest.fixture
async def claude(stage: Stage) -> Person:
    return await make_claude(stage)


@pytest.mark.parametrize("point", [3, 12])
async def test_all_is_answered_once_although_processes_die(
    stage: Stage, ann: Person, bob: Person, claude: Person, point: int
) -> None:
    assert stage.host.tasks is not None
    mortal: MailHost = stage.another(mortal_rows(stage.rows, point))
    assert mortal.tasks is not None
    first, stage.host = stage.host, mortal
    stage.connect(mortal.tasks)

    async def send(person: Person, *to: str, body: str, reply_to: str | None = None) -> None:
        draft = {"subject": "Tea", "body": body, "reply_to": reply_to}
        made = await again(person, "/drafts", draft)
        draft_id = made["entry"]["draft"]["draft_id"]
        await again(person, f"/drafts/{draft_id}/send", {"recipients": list(to)}, draft_id)

    async def resumed() -> bool:
        await make_due(stage)
        await first.resume()
        rig = stage.server.rig
        assert isinstance(rig.clock, FakeClock)
        await rig.pass_time(5)
        return not await stage.rows.find(WORK, "")

    await send(ann, DESK, body="ask bob claude")
    await eventually(resumed)
    await send(claude, DESK, body="from claude", reply_to=(await got_while(claude, resumed))["message_id"])
    await send(bob, DESK, body="from bob", reply_to=(await got_while(bob, resumed))["message_id"])
    assert (await got_while(ann, resumed))["body"] == "from claude and from bob"
    await eventually(resumed)
    assert [len(await person.box("inbox")) for person in (ann, bob, claude)] == [1, 1, 1]
    assert [await is_delivered(person) for person in (ann, bob, claude)] == [True, True, True]
    (task,) = await tasks_of(stage, "user:ann")
    assert (task.generation.number, task.dead_letters) == (1, ())


async def leave(stage: Stage, sender: Person, *to: str, body: str) -> str:
    """Send mail in a process that dies then, long ago; return its id."""
    key = sender.address.rpartition("@")[0]
    account = (await stage.host.accounts.find(key))[key]
    draft = await stage.host.boxes.draft(account, await sender.draft(body=body))
    sent, _ = await stage.host.deliveries.send(account, draft, to, (), None)
    await make_due(stage)
    return sent.message_id


async def make_due(stage: Stage) -> None:
    for name, text in await stage.rows.find(WORK, ""):
        await stage.rows.write([Write((WORK, name), text.replace('"due":', '"due":0,"was":'), text)])


async def test_servers_of_several_swarms_leave_each_other_s_mail_alone(
    adapter: StoreAdapter, stage: Stage, ann: Person
) -> None:
    """They may share a database. Neither claims what only the other can do, nor waits for it."""
    name = await leave(stage, ann, DESK, body="hello")
    before = await stage.rows.read((WORK, name))
    async with Stage(adapter.rows, build_swarm({"lead": lambda _: []}, name="other"), adapter.store) as other:
        await other.host.resume()
        assert await stage.rows.read((WORK, name)) == before
        await other.host.work(name)
        assert await stage.rows.read((WORK, name)) == before
    await stage.host.resume()
    assert (await got(ann))["body"] == "ann said hello"
    assert await stage.rows.find(WORK, "") == []


async def test_an_agent_that_can_take_nothing_now_holds_up_nobody(stage: Stage, ann: Person) -> None:
    tasks = stage.host.tasks
    assert tasks is not None
    take = tasks.take

    async def full(message: Message, agent: str) -> TaskKey | str:
        if agent == "desk@example":
            raise MailboxFull("too many messages wait")
        return await take(message, agent)

    name = await leave(stage, ann, DESK, HELPER, body="hello")
    with pytest.raises(MailboxFull):
        _ = [each async for each in stage.host.deliveries.finish(name, full)]
    assert "takes only answers" in (await got(ann))["body"]
    assert Delivery.read((await stage.rows.read((WORK, name)))[WORK, name]).tasks == ("desk@example",)
    await make_due(stage)
    await stage.host.resume()
    assert (await got(ann, 2))["body"] == "ann said hello"
    (entry,) = await ann.box("outbox")
    assert [each["recipient"] for each in entry["undelivered"]] == [HELPER]


async def of_mail(stage: Stage) -> list[str]:
    """The places of the rows that are stored for messages and tasks, besides boxes."""
    return [place for place in (MESSAGES, THREADS, TASKS, HELD) if await stage.rows.find(place, "")]


async def delete(stage: Stage, task: Task) -> None:
    """Delete a task, once it has stopped."""

    async def is_deleted() -> bool:
        try:
            await stage.server.rig.runtime.delete(task.instance, task.task_id)
        except TaskBusy:
            return False
        return True

    await eventually(is_deleted)


async def test_what_an_agent_has_got_is_stored_as_long_as_its_task(
    stage: Stage, ann: Person, bob: Person, claude: Person
) -> None:
    """That is what a task began with, and what a member answered; the boxes have references of their own."""
    await ann.send(DESK, body="ask claude")
    asked = await got(claude)
    await claude.send(DESK, subject="Re: Request", body="fine", reply_to=asked["message_id"])
    assert (await got(ann))["body"] == "fine"
    await bob.send(DESK, body="hello")
    await got(bob)
    for key in ("user:ann", "claude@team"):
        await stage.host.begin((await stage.host.accounts.delete(key)).purge)
    (task,) = await tasks_of(stage, "user:ann")
    before = {place: await stage.rows.find(place, "") for place in (MESSAGES, HELD)}
    assert [len(found) for found in before.values()] == [2 + 2, 3]  # of bob's, the answer too
    await delete(stage, task)
    assert [len(await stage.rows.find(place, "")) for place in (MESSAGES, HELD)] == [2, 1]
    await stage.host.begin((await stage.host.accounts.delete("user:bob")).purge)
    assert [len(await stage.rows.find(place, "")) for place in (MESSAGES, HELD)] == [1, 1]
    await delete(stage, (await tasks_of(stage, "user:bob"))[0])
    assert await of_mail(stage) == []


async def test_what_no_agent_takes_is_stored_for_its_sender_only(stage: Stage, ann: Person) -> None:
    await ann.send(HELPER, body="hello")
    assert not await is_delivered(ann)
    await stage.host.begin((await stage.host.accounts.delete("user:ann")).purge)
    assert await of_mail(stage) == []


async def test_old_mail_is_deleted_and_that_of_tasks_that_are_gone(
    stage: Stage, ann: Person, bob: Person
) -> None:
    """Mail on hold stays; so do drafts that somebody has changed since."""
    clock = stage.server.rig.clock
    assert isinstance(clock, FakeClock)
    host = stage.another(retention=30 * DAY)
    await host.resume()
    hold = LegalHold(
        caller="user:bob@example", task_id=None, reason="case", by="admin:root@example", since=""
    )
    await stage.server.records.set_hold(hold)
    await bob.send(ann.address)
    await ann.send(DESK, body="hello")
    await got(ann, 2)
    kept = await ann.draft("old")
    (task,) = await tasks_of(stage, "user:ann")
    await eventually(lambda: _deleted(stage, task))
    clock.advance(31 * DAY)
    await ann.send(bob.address, subject="new")
    assert (await ann.ask("PATCH", f"/drafts/{kept}", json={"subject": "changed"})).status_code == 200
    await host.resume()
    assert [await ann.subjects(name) for name in ("inbox", "outbox", "drafts")] == [
        [],
        ["new"],
        ["new", "changed"],
    ]
    assert await bob.subjects("inbox") == ["new"]
    assert await bob.subjects("outbox") == ["Tea"]
    assert [await stage.rows.find(place, "") for place in (WORK, HELD)] == [[], []]


async def test_another_process_looks_for_old_mail_where_one_has_died(
    stage: Stage, ann: Person, bob: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mail.mail2.host.PORTION", 1)
    clock, row = stage.server.rig.clock, (WORK, "tidy")
    assert isinstance(clock, FakeClock)
    await ann.draft(), await bob.draft()
    await stage.another(retention=DAY).resume()
    clock.advance(2 * DAY)
    mortal = mortal_rows(stage.rows, 2 * 4)  # it is noted and taken up, a draft is deleted, and noted
    await stage.another(mortal, retention=DAY).resume()
    assert [await person.box("drafts") == [] for person in (ann, bob)] == [True, False]
    assert Tidy.read((await stage.rows.read(row))[row]).after == "user:ann"
    await make_due(stage)
    await stage.another(retention=DAY).resume()
    assert await bob.box("drafts") == []
    assert await stage.rows.find(WORK, "") == []


async def test_what_awaits_an_answer_is_kept(stage: Stage, ann: Person, bob: Person) -> None:
    """A task may wait longer than mail is kept."""
    clock = stage.server.rig.clock
    assert isinstance(clock, FakeClock)
    host = stage.another(retention=DAY)
    await host.resume()
    await bob.send(ann.address, bob.address, subject="old")
    await ann.send(DESK, body="question")
    asked = await got(ann, 2)
    await ann.send(DESK, body="ask bob")
    await got(bob, 2)
    clock.advance(2 * DAY)
    await ann.send(ann.address, bob.address, subject="new")
    await host.resume()
    assert await ann.subjects() == ["new", asked["subject"]]
    assert await bob.subjects() == ["new", "Request"]
    await reply(ann, asked, "the green one")
    assert (await got(ann, 3))["tags"] == ["answer"]
    clock.advance(2 * DAY)
    await stage.another(retention=DAY).resume()
    assert await ann.subjects() == []
    assert await bob.subjects() == ["Request"]


async def test_nothing_of_a_caller_on_hold_is_deleted(stage: Stage, ann: Person) -> None:
    root = await stage.person("root", "admin")
    sent, draft = await ann.send(ann.address), await ann.draft()
    assert (await ann.ask("DELETE", f"/inbox/{sent['message_id']}")).status_code == 200
    hold = LegalHold(
        caller="user:ann@example", task_id=None, reason="case", by="admin:root@example", since=""
    )
    await stage.server.records.set_hold(hold)
    requests = (
        (ann, "DELETE", f"/trash/{sent['message_id']}"),
        (ann, "POST", "/trash/clear"),
        (ann, "DELETE", f"/drafts/{draft}"),
        (root, "DELETE", "/admin/users/ann"),
    )
    for person, method, path in requests:
        answer = await person.ask(method, path)
        assert (answer.status_code, "on hold" in answer.text) == (409, True), path
    assert await ann.subjects("trash") == ["Tea"]
    await stage.server.records.lift_hold(hold.name)
    for person, method, path in requests[:1] + requests[2:]:
        assert (await person.ask(method, path)).status_code == 200, path


async def _deleted(stage: Stage, task: Task) -> bool:
    """Whether the store has deleted a task by itself, as DynamoDB does in time."""
    try:
        await stage.server.rig.store.delete(task)
    except VersionConflict:
        return False
    return True


async def again(person: Person, path: str, body: Any, key: str = "once") -> dict[str, Any]:
    """The answer to a request that its client repeats if it fails."""
    for _ in range(3):
        answer = await person.post(path, body, **{"Idempotency-Key": key})
        if answer.status_code != 503:
            break
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def got_while(person: Person, resumed: Any) -> dict[str, Any]:
    """The only message of somebody, while work is resumed."""

    async def has_come() -> bool:
        await resumed()
        return bool(await person.box("inbox"))

    await eventually(has_come)
    return await got(person)
