"""A service of AWS fails for a while, or more comes at once than usual: each accepted task ends once, and as it should.

TEST_OUTAGE_SECONDS and TEST_COLD_MESSAGES say how long and how many ("full" for those of the findings).
"""

import asyncio
import random
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from aws_client import UNAVAILABLE, Crowd, answer
from aws_outage import WRITES, Fault, Outage, Reply, Request, swallowed, throttled, unavailable
from aws_swarm import make_project
from support.processes.local_aws import full_size, needs_ministack
from support.processes.projects import entry, supervisor

from mail.local_aws.system import LocalAws

SECONDS = full_size("TEST_OUTAGE_SECONDS", small=30, full=300)
COLD = full_size("TEST_COLD_MESSAGES", small=60, full=200)
RECOVERY_SECONDS = 180.0 + SECONDS
"""After an outage: sweeps look for mail without a wake-up at growing intervals, at most as long as it has waited."""

TASKS = 8
LONG = "x" * 300_000
"""A text that is kept in the bucket."""

PAIR = '''
"""An agent that asks another one, and answers."""

import asyncio

from mail.factories.rules import complete, request, respond, rule_based


@rule_based
async def chief(view):
    await asyncio.sleep(0.5)
    return [complete("done")] if view.mail.sender == "expert" else [request("expert", view.mail.body)]


@rule_based
async def expert(view):
    await asyncio.sleep(0.5)
    return [respond("chief", "so")]
'''

SWARM = entry(
    "pair",
    supervisor("chief", "pair:chief", comm_targets=["expert"]),
    {"name": "expert", "factory": "python::pair:expert", "comm_targets": ["chief"]},
)

pytestmark = [pytest.mark.soak, needs_ministack, pytest.mark.timeout(SECONDS + 600)]


def table_away(request: Request) -> Reply | None:
    return throttled(request) if request.service == "dynamodb" else None


def most_writes_refused() -> Fault:
    chance = random.Random(1)

    def fault(request: Request) -> Reply | None:
        refused = request.service == "dynamodb" and request.operation in WRITES and chance.random() < 0.8
        return throttled(request) if refused else None

    return fault


def wake_ups_swallowed(request: Request) -> Reply | None:
    is_sent = request.service == "sqs" and request.operation.startswith("SendMessage")
    return swallowed(request) if is_sent else None


def bucket_away(request: Request) -> Reply | None:
    return unavailable(request) if request.service == "s3" else None


def kinds(record: dict[str, Any]) -> Counter[str]:
    """How often each kind of event is in a record."""
    return Counter(event["event"] for event in record["events"])


@pytest.mark.parametrize(
    ("fault", "body"),
    [
        pytest.param(table_away, "think", id="the table refuses everything"),
        pytest.param(most_writes_refused(), "think", id="the table refuses four of five writes"),
        pytest.param(wake_ups_swallowed, "think", id="wake-ups are lost"),
        pytest.param(bucket_away, LONG, id="the bucket refuses everything"),
    ],
)
async def test_every_accepted_task_outlives_an_outage(tmp_path: Path, fault: Fault, body: str) -> None:
    """Those that run when it begins, and those that come meanwhile. A refusal says when to come again."""
    outage = Outage(fault)
    with outage.serve() as url:
        local = LocalAws(make_project(tmp_path, SWARM, {"pair": PAIR}), environment={"AWS_ENDPOINT_URL": url})
        async with local as system, Crowd(system) as crowd:
            outage.target = system.endpoint
            await crowd.submit("calm", body)
            (calm,) = await crowd.finish(["calm"], seconds=60)
            names = [f"task {n}" for n in range(TASKS)]
            await asyncio.gather(*(crowd.submit(name, body) for name in names))
            outage.begin(SECONDS)
            refused = 0
            for n in range(TASKS):
                posted = await crowd.post(f"later {n}", body)
                if posted.status_code == 202:
                    names.append(f"later {n}")
                else:
                    refused += 1
                    assert posted.status_code == 503, posted.text
                    assert int(posted.headers["retry-after"]) > 0
                await asyncio.sleep(outage.seconds_left / (TASKS - n))
            end = time.monotonic()
            records = await crowd.finish(names, seconds=RECOVERY_SECONDS)
            print(
                f"{refused} refused, the last of {len(names)} ended {time.monotonic() - end:.0f} s after the end"
            )
    assert outage.hit, "nothing was hit"
    assert {answer(record) for record in records} == {"task_complete: done"}
    for record in records:
        assert kinds(record) == kinds(calm), record["task_id"]


async def test_many_messages_to_functions_that_do_not_run_yet_are_all_answered(tmp_path: Path) -> None:
    local = LocalAws(make_project(tmp_path, SWARM, {"pair": PAIR}), concurrency=8)
    async with local as system, Crowd(system, parallel=COLD) as crowd:
        names = [f"task {n}" for n in range(COLD)]
        late = 0

        async def submit(name: str) -> None:
            nonlocal late
            while True:
                with suppress(httpx2.ReadTimeout):
                    posted = await crowd.post(name, "think", key=name.replace(" ", "-"))
                    if posted.json() != UNAVAILABLE:
                        break
                late += 1
            assert posted.status_code == 202, posted.text

        await asyncio.gather(*map(submit, names))
        print(f"{late} were sent again, as the function took half a minute to start")
        records = await crowd.finish(names, seconds=30 + 5 * COLD)
    assert {answer(record) for record in records} == {"task_complete: done"}
    assert len({str(kinds(record)) for record in records}) == 1


async def test_a_caller_with_too_many_running_tasks_is_refused_and_reads_when_to_come_again(
    tmp_path: Path,
) -> None:
    """The limit is passed by those only that are admitted at the same moment."""
    limit, parallel = 50, 16
    template = make_project(tmp_path, SWARM, {"pair": PAIR})
    config = tmp_path / "swarm" / "mail.toml"
    config.write_text(
        config.read_text(encoding="utf-8").replace("running_tasks = 0", f"running_tasks = {limit}")
    )
    local = LocalAws(template, parameters={"Turns": "workers"})  # of which there are none, so that all run on
    async with local as system, Crowd(system, parallel=parallel) as crowd:

        async def post(begin: int, end: int) -> list[httpx2.Response]:
            return await asyncio.gather(*(crowd.post(f"task {n}", "think") for n in range(begin, end)))

        first, more = await post(0, 160), await post(160, 180)
    statuses = Counter(response.status_code for response in first)
    print(dict(statuses))
    assert statuses.keys() == {202, 429}
    assert limit <= statuses[202] < limit + parallel
    assert {response.status_code for response in more} == {429}
    assert all(int(each.headers["retry-after"]) > 0 for each in (*first, *more) if each.status_code == 429)
