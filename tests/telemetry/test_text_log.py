"""The server's log for people: what a newcomer sees on the terminal, without any content of messages."""

import logging
import re

import pytest

from mail.adapters.telemetry.text_log import TextLog, details
from mail.core.engine.leased_turn import TurnReport
from mail.core.engine.telemetry import Observer
from mail.core.task.leases import Claim
from mail.core.task.usage import Usage, report_usage
from mail.errors import AgentUnavailable
from mail.testing.agents import Call, View, build_swarm, call, complete, request, respond, wait
from mail.testing.rig import Rig

SECRET = "swordfish"


def supervise(view: View) -> list[Call]:
    report_usage(Usage(calls=1, input_tokens=1200, output_tokens=34, cost=0.5), "m")
    if view.mail.sender == "worker":
        return [complete(SECRET)]
    return [request("worker", SECRET, SECRET), wait(SECRET)]


def work(_view: View) -> list[Call]:
    return [respond("supervisor", SECRET)]


async def test_a_task_is_readable(caplog: pytest.LogCaptureFixture) -> None:
    swarm = build_swarm({"supervisor": supervise, "worker": work})
    with caplog.at_level(logging.INFO, logger="mail.activity"):
        async with Rig(swarm) as rig:
            rig.runtime.observers = (TextLog(),)
            await rig.ask(SECRET, task_id="t")
    begun, *lines = (record.getMessage() for record in caplog.records if record.name == "mail.activity")
    assert begun == "task t started by user:ann@example for supervisor"
    model = r"task t: turn of supervisor took \d+ ms, 1200 \+ 34 tokens, \$0.5000"
    assert sum(bool(re.fullmatch(model, line)) for line in lines) == 2
    ended = r"task t completed after \d+ ms, 2400 \+ 68 tokens, \$1.0000"
    assert sum(bool(re.fullmatch(ended, line)) for line in lines) == 1
    assert SECRET not in caplog.text


async def test_an_end_with_an_error_is_told_with_its_dead_letter(caplog: pytest.LogCaptureFixture) -> None:
    swarm = build_swarm({"supervisor": lambda _view: [call("no_such_tool")]})
    with caplog.at_level(logging.INFO, logger="mail.activity"):
        async with Rig(swarm) as rig:
            rig.runtime.observers = (TextLog(),)
            await rig.ask("hi", task_id="t")
    told = [record.getMessage() for record in caplog.records if record.name == "mail.activity"]
    assert "task t: mail for supervisor is a dead letter" in told
    assert any(line.startswith("task t failed after ") for line in told)


class Reports(Observer):
    """Remembers the turns."""

    def __init__(self) -> None:
        self.turns: list[tuple[Claim, TurnReport]] = []

    def turn_ended(self, turn: Claim, report: TurnReport, seconds: float) -> None:
        self.turns.append((turn, report))


async def test_quick_turns_without_a_model_do_not_flood_the_terminal(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reports = Reports()
    async with Rig(build_swarm({"supervisor": lambda _view: [complete("hi")]})) as rig:
        rig.runtime.observers = (reports,)
        await rig.ask("hi", task_id="t")
    (turn, report), *_ = reports.turns
    with caplog.at_level(logging.INFO, logger="mail.activity"):
        for level in (logging.WARNING, logging.NOTSET):
            details.setLevel(level)
            assert TextLog().shows_details is (level == logging.NOTSET)
            TextLog().turn_ended(turn, report, 0.001)
            TextLog().turn_ended(turn, report, 2.0)
    quick, slow = "task t: turn of supervisor took 1 ms", "task t: turn of supervisor took 2.0 s"
    assert caplog.messages == [slow, quick, slow]


def test_requests_are_details_and_probes_only_if_something_is_wrong(caplog: pytest.LogCaptureFixture) -> None:
    log = TextLog()
    with caplog.at_level(logging.INFO, logger=details.name):
        log.request_ended("POST", "/message", 200, 1.25)
        log.request_ended("GET", "/health", 200, 0.001)
        log.request_ended("GET", "/health", 503, 0.001)
    assert caplog.messages == ["POST /message: 200 in 1.2 s", "GET /health: 503 in 1 ms"]


async def test_a_missing_key_is_logged_where_nobody_gets_it_as_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A server logs it; a program that embeds the swarm has no observers, and prints the error of its own call."""

    def lock_out(_view: View) -> list[Call]:
        raise AgentUnavailable("m has no API key")

    for observers, logged in (((TextLog(),), True), ((), False)):
        caplog.clear()
        async with Rig(build_swarm({"supervisor": lock_out})) as rig:
            rig.runtime.observers = observers
            outcome = await rig.ask("hi", task_id="t")
        assert "m has no API key" in outcome.answer
        assert ("task t: agent supervisor: m has no API key" in caplog.text) is logged
