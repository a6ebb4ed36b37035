"""What a turn asks of AWS, counted on ministack, and what that costs. Counts are the same in every run, hence tested.

The process is warm: its connections stand, and it remembers the histories of its agents. The agents take no time;
the price of a turn adds a stated one for the function, of which nearly all is waiting for a model.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bench import swarms
from bench.aws_deployment import Deployment, EngineAws
from bench.aws_meter import Usage
from bench.aws_prices import EMPTY_RECEIVES, LISTED, SQS_CALLS, SQS_REQUESTS, bill, sweeps_of_a_month
from bench.report import Result, Row, Skipped
from mail.adapters.aws.client import Aws
from mail.core.engine.leased_turn import TurnReport
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.swarm import ActionCore, History, SwarmCore, ToolChoice
from mail.errors import ConfigurationError
from mail.local_aws.ministack import Ministack

CALLS = 4
"""AWS calls per turn without actions (DESIGN, Budgets)."""

UNITS = 7
"""Write units per turn without actions, by the published rule (DESIGN, Budgets)."""

FAN_OUT_UNITS = 14
"""The same for a turn of a fan-out to `WIDTH` workers."""

GROWTH = 1.1
"""Bytes of late turns by those of early ones: numbers get longer by some digits."""

LATE = 1000
"""The late turn of a task that is compared with the first …"""

WINDOW = 2
"""… each with the next one: the task is a conversation of two, whose turns differ."""

CHUNK = 50
"""After how many turns the engine is relieved of what is not read again."""

WIDTH = 32

MEMORY, OWN_SECONDS, MODEL_SECONDS = 1.0, 0.1, 3.0
"""What a turn is taken to need of Lambda: gigabytes (`TurnMemory` in template.yaml), its own time, and its model's."""

QUEUES = 10
"""That event sources ask: five, and their dead letters."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The average turn of some: what it used, and how many tokens woke up a function for it."""

    name: str
    turns: int
    total: Usage
    tokens: int

    @property
    def calls(self) -> float:
        return self.total.calls.total() / self.turns

    @property
    def written(self) -> float:
        return self.total.written / self.turns


def measure(late: int = LATE) -> list[Result]:
    """Everything, on an engine that is started for it."""
    try:
        with Ministack() as engine:
            return asyncio.run(measure_on(EngineAws(engine.endpoint), late))
    except ConfigurationError as error:
        return [Skipped("aws", str(error).partition("\n")[0])]


async def measure_on(aws: Aws, late: int) -> list[Result]:
    """Everything, on this account."""
    async with Deployment(aws) as deployment:
        return [
            *await counts(deployment, late),
            *_figures(await read_fan_out(deployment, at_once=True), None, exact=False),
            *_idle(),
        ]


async def counts(deployment: Deployment, late: int, *, fan_outs: bool = True) -> list[Row]:
    """The figures that are the same in every run."""
    long = await read_turns(deployment, (1, late))
    rows = [
        *_flat(long),
        *_figures(await read_cold_turn(deployment, late), None),
        *_figures(await read_action(deployment), None),
    ]
    if fan_outs:
        rows += _figures(await read_fan_out(deployment), None, FAN_OUT_UNITS)
        rows += _figures(await read_fan_out(deployment, copies=True), None, FAN_OUT_UNITS)
    return rows


async def read_turns(deployment: Deployment, turns: Sequence[int]) -> list[Reading]:
    """These turns of one long task, and of each the next one."""
    await deployment.begin(swarms.ping_pong(turns[-1]))
    usages = []
    for number in range(1, turns[-1] + WINDOW):
        usages.append(await _turn(deployment))
        if number % CHUNK == 0:
            await deployment.set_aside()
    return [_reading(f"turn {turn:,}", usages[turn - 1 : turn - 1 + WINDOW]) for turn in turns]


async def read_cold_turn(deployment: Deployment, turn: int) -> Reading:
    """The turns after `read_turns`, each in a process that has never seen the task."""
    await deployment.put_back()
    usages = []
    for _ in range(WINDOW):
        deployment.restart(swarms.ping_pong(turn))
        usages.append(await _turn(deployment))
    return _reading(f"turn {turn:,} in a new process", usages)


async def read_action(deployment: Deployment) -> Reading:
    """A turn that calls an action."""
    await deployment.begin(_with_action())
    return _reading("turn with an action", [await _turn(deployment)])


async def read_fan_out(deployment: Deployment, *, at_once: bool = False, copies: bool = False) -> Reading:
    """All turns of a task whose supervisor asks many workers at once; they answer one by one, or at the same moment.

    The workers are agents, or copies of one.
    """
    if at_once:  # turns look at the time to find out whether others have committed
        deployment.clock = SYSTEM_CLOCK
    await deployment.begin(swarms.fan_out(WIDTH, copies=copies))
    how = "at once" if at_once else "one by one"
    name = f"fan-out to {WIDTH} {'copies ' if copies else ''}{how}, a turn"
    if at_once:
        total, reports = await deployment.finish()
        turns = [report for report in reports if report.outcome is TurnReport.Outcome.COMMITTED]
        return Reading(name, len(turns), total, len(reports))
    usages = []
    while (usage := await deployment.turn()) is not None:
        usages.append(usage)
    return _reading(name, usages)


async def _turn(deployment: Deployment) -> Usage:
    usage = await deployment.turn()
    assert usage is not None
    return usage


def _reading(name: str, usages: Sequence[Usage]) -> Reading:
    total = Usage()
    for usage in usages:
        total += usage
    return Reading(name, len(usages), total, len(usages))


def _with_action() -> SwarmCore:
    swarm = swarms.single()
    look_up = swarms.say(("look_up", {"city": "Tokyo"}))

    async def supervisor(_history: History, _choice: ToolChoice) -> swarms.Output:
        return look_up

    async def forecast(_arguments: dict[str, object]) -> str:
        return swarms.ANSWER

    agent = replace(swarm.agents["supervisor"], function=supervisor, actions=("look_up",))
    return replace(swarm, agents={"supervisor": agent}, actions={"look_up": ActionCore("look_up", forecast)})


def _flat(readings: Sequence[Reading]) -> Iterator[Row]:
    """The figures of early and late turns, and whether the late ones are as cheap."""
    for reading in readings:
        yield from _figures(reading, CALLS, UNITS)
    early, late = readings[0], readings[-1]
    name = f"bytes of {late.name} by those of {early.name}"
    yield Row("aws", name, late.written / early.written, "×", budget=GROWTH, exact=True)


def _figures(
    reading: Reading, budget: float | None, units: float | None = None, *, exact: bool = True
) -> Iterator[Row]:
    total, turns = reading.total, reading.turns
    named = ", ".join(f"{name} {count / turns:.3g}" for name, count in total.calls.items())
    yield Row("aws", f"{reading.name}: calls", reading.calls, "calls", budget=budget, exact=exact, note=named)
    writes = ", ".join(f"{name} {count / turns:.3g}" for name, count in sorted(total.writes.items()) if count)
    yield Row("aws", f"{reading.name}: bytes written", reading.written, "bytes", exact=exact)
    yield Row(
        "aws",
        f"{reading.name}: write units",
        total.write_units / turns,
        "WRU",
        budget=units,
        exact=exact,
        note=writes,
    )
    yield Row("aws", f"{reading.name}: read units", total.read_units / turns, "RRU", exact=exact)
    yield _price(reading, exact=exact)


def _price(reading: Reading, *, exact: bool) -> Row:
    """Dollars per million turns. Each token is received, hidden and deleted besides being sent."""
    total, turns = reading.total, reading.turns
    cost = bill(
        write_units=total.write_units / turns,
        read_units=total.read_units / turns,
        sqs_requests=(total.calls["SendMessageBatch"] + (SQS_CALLS - 1) * reading.tokens) / turns,
        gigabytes=MEMORY,
        seconds=OWN_SECONDS + MODEL_SECONDS,
    )
    waiting = bill(
        write_units=0, read_units=0, sqs_requests=0, gigabytes=MEMORY, seconds=MODEL_SECONDS
    ).function
    note = (
        f"DynamoDB {cost.dynamodb * 1e6:.2f}, SQS {cost.sqs * 1e6:.2f}, Lambda {cost.function * 1e6:.2f} "
        f"({MEMORY:g} GB, {OWN_SECONDS:g} s and {MODEL_SECONDS:g} s for a model, which is {waiting * 1e6:.2f}); "
        f"{LISTED}"
    )
    return Row("aws", f"{reading.name}: price of a million", cost.total * 1e6, "$", exact=exact, note=note)


def _idle() -> Iterator[Row]:
    dollars = QUEUES * EMPTY_RECEIVES * SQS_REQUESTS
    yield Row("aws", "a month in which nothing happens", dollars, "$", exact=True, note="empty receives")
    yield Row("aws", "its sweeps, however many tasks run", sweeps_of_a_month(), "$", exact=True)
