"""How the tests order runs, and what a run may die of."""

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from support.engines.aws import aws_environment, endpoint
from support.engines.dynamodb import SERVERS
from support.engines.postgres import has_postgres, postgres_server
from support.plugins.tiers import sized

HERE = Path(__file__).parent
RUNS = int(os.environ.get("MAIL_CRASH_RUNS", sized(fast=8, full=8, soak=3000)))
SEED = int(os.environ.get("MAIL_CRASH_SEED", "0"))
SHARDS = 8
"""Tests that the runs are spread over, so that pytest-xdist can share them out."""

SAMPLE = sized(fast=30, full=30, soak=1)
"""Processes die at each point in the soak tier, else at one of so many."""

STRIDE = 2 * SAMPLE if SAMPLE > 1 else 1
"""The same for stores where each death takes a round trip or more."""

BROKEN = re.compile(r"\A(Traceback|the suite)|ValidationException")
"""What is in a problem that is the suite's own, or a sabotage's."""

Fate = dict[str, Any]


ENGINES = [name for name in os.environ.get("MAIL_CRASH_ENGINES", "ministack").split(",") if name in SERVERS]

WORLDS = ["sqlite", "postgres", *(f"dynamodb-{name}" for name in ENGINES)]


class Zygote:
    """A process that has everything imported, and forks for each run. All runs are in one `world` and of one `life`."""

    def __init__(self, world: str, environment: Mapping[str, str] | None = None, life: str = "") -> None:
        self.world = world
        self._life = life
        self._environment = environment or {}
        self._points: list[str] = []

    def __enter__(self) -> Self:
        paths = [str(HERE.parent), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "crash_zygote.py"), self._life],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._environment, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def run(self, *fates: Fate, **order: Any) -> dict[str, Any]:
        """Live through these fates, then until the end. See `crash_zygote` for what else can be ordered."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        whole = {"world": self.world, "life": self._life, "fates": fates, "seed": 0, **order}
        self._process.stdin.write(json.dumps(whole) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the zygote has died"
        return dict(json.loads(answer))

    def must_survive(self, *fates: Fate, **order: Any) -> list[str]:
        """A run in which nothing may go wrong; returns where its processes died."""
        answer = self.run(*fates, **order)
        if answer["problem"]:
            deaths = "\n".join(answer["deaths"])
            pytest.fail(f"{answer['problem']}\n\n{fates=}, {order=}\ndeaths:\n{deaths}")
        return list(answer["deaths"])

    def must_notice(self, sabotage: str, orders: Iterable[Mapping[str, Any]]) -> None:
        """Runs with a bug built in, one of which must fail, and for no other reason."""
        for seed, order in enumerate(orders):
            problem = self.run(**order, seed=seed, sabotage=sabotage)["problem"]
            if problem:
                assert not BROKEN.search(problem), problem
                return
        pytest.fail(f"nobody noticed: {sabotage}")

    @property
    def points(self) -> list[str]:
        """The points of a run that nothing happens to."""
        if not self._points:
            answer = self.run()
            assert not answer["problem"], answer["problem"]
            self._points = list(answer["points"])
        return self._points

    @cached_property
    def steady_points(self) -> frozenset[str]:
        """The points that all of three such runs pass; others depend on who is faster."""
        runs = [self.points, *(self.run()["points"] for _ in range(2))]
        return frozenset.intersection(*map(frozenset, runs))


def random_point(chance: random.Random, last: int) -> Fate:
    """Draw a point to die at: early ones are more likely, as less is left to do after each death."""
    return {"point": 1 + int(last * chance.random() ** 1.5)}


def some_lives(chance: random.Random) -> int:
    """How often to die in one run."""
    return chance.choice((1, 1, 2, 2, 3, 4, 6))


PARTS = 4
"""Tests that the runs over another store are spread over."""

_PASSES = 12


def die_at_every_point(zygote: Zygote, part: int) -> None:
    """In few runs, as each process dies at the first point that nobody has died at.

    What is done by one process is not done by the next, so that some points are left for another run.
    """
    points = {*sorted(zygote.steady_points)[part * STRIDE :: PARTS * STRIDE]}
    left = points
    for seed in range(_PASSES):
        if left:
            died = zygote.must_survive({"among": sorted(left)}, again=True, seed=seed)
            left = left.difference(died)
    assert len(left) <= max(1, len(points) * 0.1)


def random_strokes(chance: random.Random, last: int, latest: float) -> dict[str, list[Fate]]:
    """Each strikes one of two processes, at a point or at a moment, in seconds up to `latest`."""
    strokes: dict[str, list[Fate]] = {"ann": [], "bob": []}
    for _ in range(chance.choice((1, 2, 3))):
        moment = {"seconds": chance.uniform(0.02, latest)}
        when = chance.choice((random_point(chance, last), random_point(chance, last), moment))
        strokes[chance.choice(("ann", "bob"))].append({**when, "held_up": chance.random() < 0.5})
    return strokes


def label_of(point: str) -> str:
    """Return the name of a point without its mailbox."""
    return point.partition(" [")[0]


def zygote_of(name: str, life: str) -> Zygote:
    """The zygote of one of `WORLDS`; the test is skipped if that isn't there."""
    world, _, engine = name.partition("-")
    environment = aws_environment(endpoint(engine)) if engine else {}
    if world == "postgres":
        if not has_postgres():
            pytest.skip("PostgreSQL is not installed")
        environment = {"MAIL_CRASH_POSTGRES": postgres_server().url()}
    return Zygote(world, environment, life=life)
