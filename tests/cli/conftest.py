"""What the tests of the commands share: a server that runs, and one whose agent waits."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from support.processes.http_server import HTTPServer
from support.processes.projects import entry, supervisor, write_project
from support.processes.server import ServerProcess

from mail.testing.agents import build_swarm, complete

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


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with the example swarm, for tests that find their own tasks."""
    with ServerProcess(tmp_path_factory.mktemp("server"), env={"MAIL_BREAK_GLASS": "true"}) as running:
        yield running


@pytest.fixture
async def chief() -> AsyncIterator[HTTPServer]:
    """A server in this process, whose agent says what it reads."""
    async with HTTPServer(build_swarm({"chief": lambda view: [complete(view.mail.body)]})) as server:
        yield server


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server whose agent answers "gone" once its folder has a file named `go`."""
    swarm = entry("waiting", supervisor("waiter", "waiting_agent:waiter"))
    folder = write_project(tmp_path / "waiting", swarm, waiting_agent=WAITING_AGENT)
    with ServerProcess(folder, "--swarm-name", "waiting") as running:
        yield running
