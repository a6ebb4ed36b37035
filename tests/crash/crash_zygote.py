"""Starts lives and watches them die: a process that has imported everything once and forks for each life.

Reads one run per line (JSON) from its standard input and answers with one line: what went wrong, where its processes
died, and which points the last one passed. What can be ordered:

    world     "sqlite", "dynamodb" or "postgres"
    fates     what befalls one process after the other (see `crash_points`); "seconds" and "grow" (bytes) are fates, too
    again     whether the last fate befalls all, until one survives
    heirs     whether the leases of the dead still hold
    twins     instead of fates: for each of two processes at once, what befalls it and those that take its place
    life      "guards" for the scenario of `crash_guards`; by default that of `crash_scenario`
    sabotage  a bug of `crash_sabotage`
    patience  seconds after which the scenario hangs
    seed      of what is left to chance
"""

import gc
import json
import logging
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from crash_guards import GuardedLife
from crash_points import read_lines
from crash_process import Life
from crash_sabotage import SABOTAGES
from crash_swarm import TWINS, Heir, Inspector, SharedClock, Twin
from crash_worlds import AheadClock, DynamoDBWorld, PostgresWorld, SQLiteWorld, World
from support.engines.postgres import borrow_database, return_database

from mail.adapters.aws.client import Aws, AwsClient

TIMEOUT = 120.0
ALARM_SECONDS = 240
GLANCE_SECONDS = 0.005
RESTART_SECONDS = 0.05
NAP_SECONDS = 0.3
SHARED_MEMORY = Path("/dev/shm")

LIVES: dict[str, type[Life]] = {"": Life, "guards": GuardedLife}

Order = dict[str, Any]
Answer = dict[str, Any]


class Process:
    """One life in a process of its own."""

    def __init__(self, life: Life, order: Order) -> None:
        self._life = life
        self._due = time.monotonic() + life.fate["seconds"] if "seconds" in life.fate else None
        self._id = os.fork()
        if self._id == 0:
            self._live(order)

    def look(self, *, wait: bool) -> signal.Signals | Answer | None:
        """What killed or stopped it or, once it has ended, what it has to say; None while it lives."""
        if self._due is not None and (wait or time.monotonic() >= self._due):
            time.sleep(max(0.0, self._due - time.monotonic()))
            os.kill(self._id, signal.SIGSTOP if self._life.fate.get("held_up") else signal.SIGKILL)
            self._due = None
        changed, status = os.waitpid(self._id, os.WUNTRACED | (0 if wait else os.WNOHANG))
        if not changed:
            return None
        if os.WIFSTOPPED(status):
            return signal.Signals(os.WSTOPSIG(status))
        if os.WIFSIGNALED(status):
            return signal.Signals(os.WTERMSIG(status))
        answer: Answer = json.loads(self._said(self._id).read_text())
        return answer

    def go_on(self) -> None:
        """Let it go on that was stopped."""
        os.kill(self._id, signal.SIGCONT)

    def end(self) -> None:
        """Kill it, whatever it does."""
        os.kill(self._id, signal.SIGKILL)
        os.waitpid(self._id, 0)

    def last_words(self) -> str:
        """Where it met its fate."""
        fate = self._life.fate
        if {"seconds", "grow"} & fate.keys():
            return f"{next(iter(fate))} {next(iter(fate.values()))}"
        labels = read_lines(self._life.logs.deaths)
        return labels[-1] if labels else "?"

    def _live(self, order: Order) -> None:
        signal.alarm(ALARM_SECONDS)
        sabotage = order.get("sabotage")
        try:
            with SABOTAGES[sabotage]() if sabotage else nullcontext():
                problem = self._life.run()
        except BaseException:
            problem = f"the suite itself is broken: {traceback.format_exc()}"
        answer = {"problem": problem, "points": self._life.points.names}
        self._said(os.getpid()).write_text(json.dumps(answer))
        os._exit(0)

    def _said(self, number: int) -> Path:
        return self._life.folder / f"said-{number}"


def run(order: Order) -> Answer:
    """Live and die as ordered, in the same folder and world, until the scenario is over."""
    folder = Path(tempfile.mkdtemp(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None))
    world = _find_world(folder, order["world"])
    try:
        return (_run_twins if "twins" in order else _run_chain)(order, folder, world)
    finally:
        shutil.rmtree(folder)
        if isinstance(world, PostgresWorld):
            return_database(world.url)


def _run_chain(order: Order, folder: Path, world: World) -> Answer:
    """One life after the other."""
    deaths: list[str] = []
    first = LIVES[order.get("life") or ""]
    kind, lease_seconds = (Heir, 0.0) if order.get("heirs") else (first, world.lease_seconds)
    for number, fate in enumerate(_fates(order)):
        life = (kind if deaths else first)(
            folder,
            world,
            clock=AheadClock(len(deaths) * lease_seconds),
            seed=order["seed"] + number,
            fate=fate,
            file_limit=_file_limit(folder, fate.get("grow", 0)),
            deaths=len(deaths),
            patience=order.get("patience", TIMEOUT),
        )
        process = Process(life, order)
        match process.look(wait=True):
            case signal.SIGKILL | signal.SIGXFSZ:
                deaths.append(process.last_words())
            case signal.Signals() as other:
                return {"problem": f"the process died of {other.name}", "deaths": deaths}
            case answer:
                return {**answer, "deaths": deaths}
    raise AssertionError("nobody has survived")


def _run_twins(order: Order, folder: Path, world: World) -> Answer:
    """Two at once. `twins` says what befalls each, one process after the other."""
    clock = SharedClock(folder)
    fates = {name: iter(order["twins"].get(name, ())) for name in TWINS}
    settings: dict[str, Any] = {"clock": clock, "patience": order.get("patience", TIMEOUT)}

    def start(name: str) -> Process:
        fate = next(fates[name], {})
        return Process(Twin(folder, world, name=name, fate=fate, seed=order["seed"], **settings), order)

    living = {name: start(name) for name in TWINS}
    deaths: list[str] = []
    problem = ""
    while living and not problem:
        time.sleep(GLANCE_SECONDS)
        for name, process in list(living.items()):
            match process.look(wait=False):
                case None:
                    continue
                case signal.SIGSTOP:
                    deaths.append(f"{name} is held up: {process.last_words()}")
                    clock.advance(world.lease_seconds)
                    time.sleep(NAP_SECONDS)
                    process.go_on()
                case signal.SIGKILL:
                    deaths.append(f"{name} is killed: {process.last_words()}")
                    time.sleep(RESTART_SECONDS)
                    clock.advance(world.lease_seconds)
                    living[name] = start(name)
                case signal.Signals() as other:
                    problem = f"{name} died of {other.name}"
                case answer:
                    problem = answer["problem"]
                    del living[name]
    for process in living.values():
        process.end()
    if not problem:
        answer = Process(Inspector(folder, world, deaths=len(deaths), **settings), order).look(wait=True)
        assert isinstance(answer, dict), answer
        problem = answer["problem"]
    return {"problem": problem, "deaths": deaths}


def _fates(order: Order) -> Iterator[dict[str, Any]]:
    yield from order["fates"]
    while order.get("again"):
        yield order["fates"][-1]
    yield {}


def _find_world(folder: Path, name: str) -> World:
    if name == "sqlite":
        return SQLiteWorld(folder)
    if name == "postgres":
        return PostgresWorld(borrow_database(os.environ["MAIL_CRASH_POSTGRES"]))
    return DynamoDBWorld(_client(), f"crash-{uuid4()}", folder)


@cache
def _client() -> AwsClient:
    """Make a client for processes that are forked later: ready, but not connected."""
    client = Aws().client("dynamodb")
    client.warm_up()
    return client


def _file_limit(folder: Path, grow: int) -> int:
    """No file may grow past this: `grow` bytes more than the write-ahead log has, and enough for its index."""
    log = folder / "mail.db-wal"
    return max(40_000, (log.stat().st_size if log.exists() else 0)) + grow if grow else 0


def warm_up(life: str) -> None:
    """Live once in this process, so that those forked from it find loaded and compiled what they need."""
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None) as folder:
        LIVES[life](Path(folder), SQLiteWorld(Path(folder)), patience=TIMEOUT).run()
    logging.getLogger("mail").handlers.clear()
    gc.collect()
    for thread in {*threading.enumerate()} - {threading.current_thread()}:
        thread.join()  # a lock that it holds would be held for ever where this process forks
    gc.freeze()


def main() -> None:
    random.seed(0)
    warm_up(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
