"""Project folders to deploy: the real template, with swarms that are made for a test."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from support.engines.aws import ROOT
from support.processes.projects import entry, supervisor, write_project

from mail.swarms_json.load import PACKAGED_SOURCE

RECORD_VARIABLE = "TEST_RECORD"

RECORDED = f'''
"""Actions of the example swarm that write down each run, so that it can be told how often there was one."""

import os

from mail.examples.math_dummy import actions


async def calculate_expression(args):
    record = os.open(os.environ["{RECORD_VARIABLE}"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(record, args["expression"].encode() + b"\\n")
    os.close(record)
    return await actions.calculate_expression(args)
'''

SWEEPER = '''
"""The sweeper, but for how long a task has to be quiet: a test can't wait for a minute."""

import os

from handlers import sweeper

sweeper.QUIET_SECONDS = float(os.environ["TEST_QUIET_SECONDS"])
sweeper.AHEAD_SECONDS = 300.0  # as checks come after minutes
handler = sweeper.handler
'''

TALKATIVE = '''
"""A supervisor that writes to its workers, `each` times to every one, and workers that take their time."""

import asyncio
import os
import re

from mail.factories.rules import complete, request, rule_based, wait


def supervisor(comm_targets, **wiring):
    def decide(view):
        flood = re.search(r"flood (\\d+)", view.mail.body)
        if flood is None:
            return [complete("done")]
        letters = [request(target, "chatter") for target in comm_targets for _ in range(int(flood[1]))]
        return [*letters, wait("they are many")]

    return rule_based(decide)(**wiring)


@rule_based
async def worker(view):
    await asyncio.sleep(float(os.environ["TEST_TURN_SECONDS"]))
    return [wait("there is more")]
'''


CONFIG = """
[server.swarm]
name = {name}
[server.limits]
running_tasks = 0
"""


def make_project(folder: Path, swarm: dict[str, Any], modules: dict[str, str]) -> Path:
    """A project with a swarm and the modules that it names; returns its template."""
    template = folder / "template.yaml"
    template.write_text((ROOT / "template.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    code = folder / "swarm"
    write_project(code, swarm, **modules)
    (code / "mail.toml").write_text(CONFIG.format(name=json.dumps(swarm["name"])), encoding="utf-8")
    return template


class RecordedSwarm:
    """The example swarm, to be deployed with `template` and `environment`, writing down what it calculates."""

    def __init__(self, folder: Path, *, idempotent: bool, quiet_seconds: float) -> None:
        swarms = json.loads(PACKAGED_SOURCE.read_text(encoding="utf-8"))
        (swarm,) = [each for each in swarms if each["name"] == "example-no-proxy"]
        for action in swarm["actions"]:
            if action["name"] == "calculate_expression":
                action |= {"function": "python::recorded:calculate_expression", "idempotent": idempotent}
        self.template = make_project(folder, swarm, {"recorded": RECORDED, "quick_sweeper": SWEEPER})
        handlers = self.template.read_text(encoding="utf-8")
        self.template.write_text(handlers.replace("handlers.sweeper.handler", "quick_sweeper.handler"))
        self._record = folder / "record.txt"
        self.environment = {
            RECORD_VARIABLE: str(self._record),
            "TEST_QUIET_SECONDS": str(quiet_seconds),
        }

    def runs(self) -> Counter[str]:
        """How often each expression was calculated."""
        return Counter(self._record.read_text().splitlines() if self._record.exists() else ())


class TalkativeSwarm:
    """A swarm that floods its workers, to be deployed with `template` and `environment`."""

    def __init__(self, folder: Path, *, workers: int, turn_seconds: float) -> None:
        names = [f"worker{n}" for n in range(workers)]
        chief = supervisor("supervisor", "talkative:supervisor", comm_targets=names)
        members = [
            {"name": name, "factory": "python::talkative:worker", "comm_targets": ["supervisor"]}
            for name in names
        ]
        swarm = entry("talkative", chief, *members)
        self.template = make_project(folder, swarm, {"talkative": TALKATIVE})
        self.environment = {"TEST_TURN_SECONDS": str(turn_seconds)}
