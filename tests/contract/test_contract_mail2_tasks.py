"""Tasks by MAIL 2.0, on every store: whatever dies, each message is answered once."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from support.engines.adapters import StoreAdapter
from support.mail2 import Person, Stage
from support.mail2_tasks import DESK, got, is_delivered, make_claude, swarm, tasks_of
from support.processes.http_server import eventually

from mail.core.task.rows import Rows, Write
from mail.errors import StoreUnavailable
from mail.mail2 import WORK
from mail.mail2.host import MailHost
from mail.testing.clock import FakeClock


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


class Died(StoreUnavailable):
    """The process has died at a write; its requests fail."""


class Mortal:
    """Rows in a process that dies at a write: before it happens, or right after it."""

    def __init__(self, rows: Rows, dies_at: int) -> None:
        self._rows = rows
        self.left = dies_at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._rows, name)

    async def write(self, writes: Sequence[Write]) -> bool:
        if self.left == 0:
            self.left = -9
            raise Died
        done = await self._rows.write(writes)
        self.left -= 2 if self.left > 0 else 0
        if self.left == -1:
            self.left = -9
            raise Died
        return done


@pytest.mark.parametrize("point", [3, 12])
async def test_all_is_answered_once_although_processes_die(
    stage: Stage, ann: Person, bob: Person, claude: Person, point: int
) -> None:
    assert stage.host.tasks is not None
    mortal: MailHost = stage.another(Mortal(stage.rows, point))  # type: ignore[arg-type]
    assert mortal.tasks is not None
    first, stage.host = stage.host, mortal
    stage.connect(mortal.tasks)

    async def send(person: Person, *to: str, body: str, reply_to: str | None = None) -> None:
        draft = {"subject": "Tea", "body": body, "reply_to": reply_to}
        made = await again(person, "/drafts", draft)
        draft_id = made["entry"]["draft"]["draft_id"]
        await again(person, f"/drafts/{draft_id}/send", {"recipients": list(to)}, draft_id)

    async def resumed() -> bool:
        for name, text in await stage.rows.find(WORK, ""):
            await stage.rows.write([Write((WORK, name), text.replace('"due":', '"due":0,"was":'), text)])
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
