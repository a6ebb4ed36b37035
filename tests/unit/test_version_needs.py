"""What an open task needs of its swarm, which an update may take away."""

import asyncio
from collections.abc import Sequence
from typing import Any

from mail.core.decisions.versions import Need, needs_of
from mail.core.task.callbacks import LATER, Later
from mail.core.task.swarm import ActionCore
from mail.testing.agents import Call, View, build_swarm, call, request, wait
from mail.testing.rig import Rig


async def test_mail_questions_calls_reminders_and_approvals() -> None:
    async def render(_arguments: dict[str, Any]) -> Later:
        return LATER

    async def pay(_arguments: dict[str, Any]) -> str:
        return "paid"

    def lead(view: View) -> Sequence[Call]:
        match view.mail.body:
            case "film":
                return [call("render"), call("remind_me", **{"note": "look", "in": "2h"})]
            case "pay":
                return [call("pay")]
        return [request("helper"), wait("the helper")]

    swarm = build_swarm(
        {"lead": lead, "helper": lambda _: [call("render")]},
        actions={
            "render": ActionCore("render", render, finish_within=3600.0),
            "pay": ActionCore("pay", pay, needs_approval=True),
        },
    )
    async with Rig(swarm) as rig:
        film, asked = [(await rig.submit(body)).key for body in ("film", "ask")]
        assert needs_of(await rig.task(asked)) == {Need("lead")}, "its first message"
        paid = (await rig.ask("pay")).task
        for key in (film, asked):
            async with asyncio.timeout(60):
                while not (await rig.task(key)).is_asleep:  # noqa: ASYNC110 - of a store
                    await asyncio.sleep(0.001)
        assert needs_of(await rig.task(film)) == {Need("lead"), Need("lead", "render")}
        assert needs_of(await rig.task(asked)) == {Need("lead"), Need("helper"), Need("helper", "render")}
        assert needs_of(paid) == {Need("lead"), Need("lead", "pay")}
