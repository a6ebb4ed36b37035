"""What tests of dead letters read from a rig."""

from mail.core.decisions.dead_letters import DeadLetter
from mail.core.task.task import Task, TaskKey
from mail.testing.rig import Rig


async def loaded(rig: Rig, key: TaskKey) -> Task:
    return await rig.task(key)


async def letters(rig: Rig, key: TaskKey) -> list[DeadLetter]:
    return [listed.dead_letter for listed in await rig.runtime.dead_letters.of(await loaded(rig, key))]


async def ended(rig: Rig, key: TaskKey, generation: int) -> str:
    """How a generation ends."""
    response = await rig.store.wait_for_response(key, generation, seconds=20)
    assert response is not None
    return response.message.body
