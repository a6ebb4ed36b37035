"""`mail schedule …`, against a server."""

import json
from collections.abc import AsyncIterator

import pytest
from support.processes.commands import mail
from support.processes.http_server import HTTPServer

from mail.testing.agents import build_swarm, complete
from mail.testing.clock import FakeClock


@pytest.fixture
async def server() -> AsyncIterator[HTTPServer]:
    swarm = build_swarm({"supervisor": lambda _view: [complete("done")]})
    async with HTTPServer(swarm, clock=FakeClock()) as server:
        yield server


async def test_a_schedule_is_created_shown_run_changed_and_deleted(server: HTTPServer) -> None:
    made = await mail(
        *(
            server,
            "schedule",
            "create",
            "morning",
            "30 8 * * mon-fri",
            "What is new?",
            "--timezone",
            "Europe/Berlin",
        ),
        *("--overlap", "queue"),
    )
    assert made.exit_code == 0, made.output
    assert made.output.startswith("morning: 30 8 * * mon-fri (Europe/Berlin), as user:ann@example\n")
    assert "overlap queue, missed once" in made.output
    assert "next: 2026-02-02T07:30:00+00:00; failures in a row: 0" in made.output
    ran = await mail(server, "schedule", "run", "morning")
    assert ran.output == "morning@2026-01-31T08:00Z\n"
    await server.rig.workers.idle()
    shown = await mail(server, "schedule", "show", "morning")
    assert "2026-01-31T08:00:00+00:00" in shown.output
    assert "completed" in shown.output
    listed = await mail(server, "schedule", "list")
    [line] = [line for line in listed.output.splitlines() if line.startswith("morning")]
    assert "2026-02-02T07:30:00+00:00" in line
    assert line.rstrip().endswith("completed")
    off = await mail(server, "schedule", "change", "morning", "--disabled", "--cron", "0 9 * * *", "--json")
    assert (json.loads(off.output)["cron"], json.loads(off.output)["next"]) == ("0 9 * * *", None)
    assert "disabled" in (await mail(server, "schedule", "list")).output
    gone = await mail(server, "schedule", "delete", "morning")
    assert gone.output == "schedule morning is deleted\n"


async def test_mistakes(server: HTTPServer) -> None:
    wrong = await mail(server, "schedule", "create", "morning", "30 8 * *", "What is new?")
    assert wrong.exit_code != 0
    assert "has 4 of 5 fields; write five fields" in str(wrong.exception) + wrong.output
    unknown = await mail(server, "schedule", "show", "evening")
    assert "no schedule 'evening'" in str(unknown.exception) + unknown.output
    assert (await mail(server, "schedule", "change", "evening", "--overlap", "wait")).exit_code == 2
