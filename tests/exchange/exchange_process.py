"""A process of its own on an exchange.

exchange_process.py sync URL              syncs once, prints the count
exchange_process.py pop URL OWNER SENDER  takes mail until there is none, prints the contents
exchange_process.py send URL OWNER TO N   sends N mails to TO, or to all others
exchange_process.py die URL WHAT          syncs, pops or unregisters in a copy of this process that is killed at the
                                          first, second, … request to the database, each time on an exchange of its
                                          own; prints what is there after each death, and after all is done again
"""

import asyncio
import json
import os
import signal
import sys
import time
from functools import cache
from typing import Any, cast
from urllib.parse import parse_qs
from uuid import UUID, uuid4

from mail.adapters.aws import backend
from mail.adapters.aws.client import Aws
from mail.core.task.rows import Rows
from mail.exchange import DurableExchange, open_exchange
from mail.testing.faults import FaultyPort, Points, at_number

ALICE, BOB, CAROL, DAVE = (UUID(int=n << 64) for n in range(1, 5))


async def sync(url: str, when: str) -> None:
    async with open_exchange(url) as exchange:
        await exchange.owner_ids()  # it is connected
        await asyncio.sleep(float(when) - time.time())
        print(await exchange.sync())


async def pop(url: str, owner: str, sender: str) -> None:
    async with open_exchange(url) as exchange:
        while (mail := await exchange.pop_mail(UUID(owner), UUID(sender))) is not None:
            print(json.dumps(mail.content), flush=True)


async def send(url: str, owner: str, to: str, number: str) -> None:
    async with open_exchange(url) as exchange:
        for n in range(int(number)):
            await exchange.send(UUID(owner), None if to == "all" else UUID(to), f"{os.getpid()} {n}")


# ------------------------------------------------------------------------------------------------- to die


async def set_up(exchange: DurableExchange) -> None:
    for owner in (ALICE, BOB, CAROL, DAVE):
        await exchange.register(owner)
    await exchange.send(ALICE, BOB, 0)
    await exchange.send(ALICE, None, 1)
    await exchange.send(BOB, ALICE, 2)
    await exchange.send(ALICE, uuid4(), "for nobody")
    await exchange.send(ALICE, CAROL, 3)


async def act(url: str, what: str, point: int) -> None:
    async with open_exchange(url) as exchange:
        await set_up(exchange)
        if what != "sync":
            await exchange.sync()
        points = Points(at_number(point + 1), strike=lambda _: os.kill(os.getpid(), signal.SIGKILL))
        exchange._rows = cast(Rows, FaultyPort(exchange._rows, "rows", points))
        await perform(exchange, what)


async def perform(exchange: DurableExchange, what: str) -> None:
    match what:
        case "sync":
            await exchange.sync()
        case "send":
            await exchange.send(ALICE, BOB, 4)
        case "pop":
            await exchange.pop_mail(BOB, ALICE)
        case "unregister":
            await exchange.unregister(BOB)
        case "register":
            await exchange.register(UUID(int=5 << 64))


async def take_all(exchange: DurableExchange) -> dict[str, dict[str, list[Any]]]:
    """Take all mail out of all inboxes; returns it, and what is in the outboxes."""
    found: dict[str, dict[str, list[Any]]] = {}
    for owner in await exchange.owner_ids():
        box = await exchange.get(owner)
        assert box is not None
        taken: list[Any] = []
        for sender in {mail.sender for mail in await exchange.receive(owner)}:
            while (mail := await exchange.pop_mail(owner, sender)) is not None:
                taken.append(mail.content)
        found[str(owner.int >> 64)] = {
            "in": taken,
            "out": [mail.content for mail in box.list_items("outbox")],
        }
    return found


async def report(url: str, point: int, died: bool) -> None:
    """Read what is there, sync without being interrupted, and read on; print what was read then, and in all.

    As mail is taken out of the inboxes between the two, what comes twice is seen twice.
    """
    async with open_exchange(url) as exchange:
        found = await take_all(exchange)
        await exchange.sync()
        healed = await take_all(exchange)
    for owner, box in healed.items():
        box["in"] = sorted([*found.get(owner, {"in": []})["in"], *box["in"]])
    print(json.dumps({"point": point, "died": died, "found": found, "healed": healed}), flush=True)


@cache
def _account(region: str, endpoint_url: str) -> Aws:
    return Aws(region, endpoint_url)


def read_botocore(url: str) -> None:
    """Let processes that are forked later find what takes each of them longer than its exchange: botocore's files."""
    options = parse_qs(url.partition("?")[2])
    _account(options["region"][0], options["endpoint_url"][0]).client("dynamodb").warm_up()
    backend.Aws = _account  # type: ignore[assignment, misc]


def die(url: str, what: str, stride: str) -> None:
    if url.startswith("dynamodb:"):
        read_botocore(url)
    for point in range(0, 10_000, int(stride)):
        place = url.replace("EXCHANGE", f"{what}-{point}")
        if (child := os.fork()) == 0:
            asyncio.run(act(place, what, point))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        died = os.WIFSIGNALED(status)
        assert died or status == 0, status
        if (child := os.fork()) == 0:
            asyncio.run(report(place, point, died))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        if not died:
            return


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "die":
        die(*arguments)
    else:
        asyncio.run({"sync": sync, "pop": pop, "send": send}[command](*arguments))
