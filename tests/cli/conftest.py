"""What the tests of the commands share: a server that runs, and one whose agent waits."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes.server import ServerProcess

WAITING_AGENT = '''
"""An agent whose model writes half of an answer, and waits until there is a file named `go`."""

import asyncio
from pathlib import Path

from mail.core.task.activity import model_call
from mail.examples.rule_based.calls import say


def waiter(**_wiring):
    async def decide(history, tool_choice):
        is_plain = "plainly" in str(history)
        with model_call("house/model") as reply:
            written = False
            while not Path("go").exists():
                if reply.wants_deltas and not written:
                    reply.delta("text" if is_plain else "answer", "half of an answer")
                    written = True
                await asyncio.sleep(0.01)
        if is_plain:
            return "gone plainly", []
        return say("completions", [("task_complete", {"finish_message": "gone"})])

    return decide
'''

WAITING_SWARM = {
    "name": "waiting",
    "version": "1.0.0",
    "entrypoint": "waiter",
    "agents": [
        {
            "name": "waiter",
            "factory": "python::waiting_agent:waiter",
            "comm_targets": [],
            "enable_entrypoint": True,
            "can_complete_tasks": True,
        }
    ],
}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the example swarm, for tests that find their own tasks."""
    with ServerProcess(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose agent answers "gone" once its folder has a file named `go`."""
    folder = tmp_path / "waiting"
    folder.mkdir()
    (folder / "waiting_agent.py").write_text(textwrap.dedent(WAITING_AGENT), encoding="utf-8")
    (folder / "swarms.json").write_text(json.dumps([WAITING_SWARM]), encoding="utf-8")
    with ServerProcess(folder, "--swarm-name", "waiting") as running:
        yield running
