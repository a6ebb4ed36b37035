"""Long pieces of work on an event loop begin one by one, with pauses."""

from typing import Any

import pytest

from mail.core.engine.pacing import LARGE, Pacer
from mail.testing.agents import View, build_swarm, complete, request, respond, wait
from mail.testing.rig import Rig


@pytest.mark.parametrize(("size", "pauses"), [(1_000, 0), (3_000_000, 2)])
async def test_turns_pause_for_large_messages(
    monkeypatch: pytest.MonkeyPatch, size: int, pauses: int
) -> None:
    """Twice for the worker's message; the supervisor's is short, and its large history waits for nothing."""
    paused: list[int] = []

    async def pause(_: Pacer, size: int) -> None:
        paused.append(size)

    monkeypatch.setattr(Pacer, "pause", pause)

    def supervisor(view: View) -> list[Any]:
        if view.mail.sender == "worker":
            return [complete("done")]
        return [request("worker", "x" * size), wait()]

    def worker(view: View) -> list[Any]:
        return [respond("supervisor", "short")]

    async with Rig(build_swarm({"supervisor": supervisor, "worker": worker})) as rig:
        outcome = await rig.outcome(await rig.submit())
    assert outcome.answer == "done"
    assert len(paused) == pauses
    assert all(each > LARGE for each in paused)
