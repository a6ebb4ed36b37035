"""What the end-to-end tests share: a swarm, beside the server, that a test can hold up and let go on."""

from pathlib import Path

import pytest
from support.processes.projects import entry, supervisor, write_project

SLOW_AGENTS = '''
"""A supervisor that asks a worker, and a worker that waits until there is a file named `go`."""

import asyncio
import json
import os
from pathlib import Path

from mail.factories.rules import complete, request, respond, rule_based, wait

VARIABLES = ("SWARM_NAME", "SWARM_SOURCE", "SWARM_REGISTRY_FILE", "BASE_URL", "MAIL_CONFIG_PATH")


def supervise(view):
    if view.mail.sender_type == "agent":
        return [complete(view.mail.body)]
    return [request("worker", "please"), wait()]


async def work(view):
    with open("turns.txt", "a") as turns:
        turns.write("turn\\n")
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    seen = json.dumps({name: os.environ.get(name) for name in VARIABLES})
    return [respond("supervisor", seen)]


supervisor, worker = rule_based(supervise), rule_based(work)
'''

SLOW_SWARM = entry(
    "slow",
    supervisor("supervisor", "slow_agents:supervisor", comm_targets=["worker"]),
    {"name": "worker", "factory": "python::slow_agents:worker", "comm_targets": ["supervisor"]},
)


@pytest.fixture
def slow_folder(tmp_path: Path) -> Path:
    """A folder with a swarm `slow`, whose worker begins each turn with a line in `turns.txt` and waits for `go`."""
    return write_project(tmp_path, SLOW_SWARM, slow_agents=SLOW_AGENTS)
