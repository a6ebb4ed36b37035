"""Three `mail server` processes on one PostgreSQL share the limit of a provider, which counts calls as real ones do."""

import re
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.engines.postgres import borrow_database, has_postgres, return_database
from support.processes.projects import entry, supervisor, write_project
from support.processes.server import ServerProcess, run_mail
from support.services.llm_stub import LLMStub, Reply, Request, call, rate_limited, reply
from support.services.llm_stub.script import Turn

pytestmark = [
    pytest.mark.skipif(not has_postgres(), reason="PostgreSQL is not installed"),
    pytest.mark.soak,
    pytest.mark.timeout(1_800),
]

LIMIT, MINUTE = 60, 60.0
AGENTS, CALLS, SERVERS = 64, 6, 3
CALL_SECONDS = 0.5

SWARM = {
    **entry(
        "looker",
        supervisor(
            "lead",
            "mail.factories:LiteLLMSupervisorFunction",
            actions=["look"],
            agent_params={"llm": "openai/gpt-5-mini", "system": "You look."},
        ),
    ),
    "actions": [
        {
            "name": "look",
            "description": "Look.",
            "parameters": {"type": "object", "properties": {}},
            "function": "python::looking:look",
        }
    ],
}

LOOKING = """
async def look(arguments):
    return "seen"
"""

SETTINGS = f"""
[server.models."openai/*"]
requests_per_minute = {LIMIT}

[server.telemetry]
metrics = "admin"
"""


class Provider:
    """Takes so many calls in any minute, and refuses the others.

    Attributes:
        begun: when each call of a task was accepted, by the number of the task.
    """

    def __init__(self) -> None:
        self.accepted: deque[float] = deque()
        self.begun: defaultdict[str, list[float]] = defaultdict(list)
        self.refused = 0

    def __call__(self, request: Request) -> Turn:
        now = time.monotonic()
        if sum(each > now - MINUTE for each in self.accepted) >= LIMIT:
            self.refused += 1
            return rate_limited()
        self.accepted.append(now)
        (task,) = {*re.findall(r"task-\d+", str(request.body["input"]))}
        self.begun[task].append(now)
        done = len(self.begun[task]) >= CALLS
        said: Reply = reply(call("task_complete", finish_message="seen")) if done else reply(call("look"))
        return said.but(delay=CALL_SECONDS)


@pytest.fixture
def servers(tmp_path: Path, stub: LLMStub) -> Iterator[list[ServerProcess]]:
    url = borrow_database()
    started: list[ServerProcess] = []
    with ExitStack() as stack:
        for n in range(SERVERS):
            folder = write_project(tmp_path / f"server-{n}", SWARM, looking=LOOKING)
            (folder / "mail.toml").write_text(SETTINGS)
            env = {"DATABASE_URL": url, "PYTHONUNBUFFERED": "1", **stub.environ}
            server = ServerProcess(folder, "--swarm-name", "looker", env=env)
            started.append(stack.enter_context(server))
            server.tokens = started[0].tokens
        yield started
    return_database(url)


def billed(server: ServerProcess) -> float:
    """Return the seconds for which a server has run turns."""
    with server.client("admin") as client:
        lines = client.get("/metrics").text.splitlines()
    (line,) = [line for line in lines if line.startswith("mail_turn_seconds_sum")]
    return float(line.split()[-1])


def test_agents_on_several_servers_use_a_provider_s_limit_and_share_it(
    stub: LLMStub, servers: list[ServerProcess]
) -> None:
    """One caller has all agents but two, which are of two others."""
    provider = Provider()
    stub.otherwise = provider
    tokens = dict.fromkeys(["ann", "bob", "eve"], "")
    for name in tokens:
        made = run_mail(
            "token", "create", "--role", "user", "--id", name, cwd=servers[0].folder, env=servers[0].env
        )
        tokens[name] = made.stdout.strip()
    owners = ["bob", "eve", *["ann"] * (AGENTS - 2)]
    posted: dict[str, float] = {}
    for n, owner in enumerate(owners):
        server, headers = servers[n % SERVERS], {"Authorization": f"Bearer {tokens[owner]}"}
        with server.client() as client:
            posted[f"task-{n}"] = time.monotonic()
            answer = client.post(
                "/message",
                json={"body": f"Look, task-{n}", "task_id": f"t{n}"},
                headers={**headers, "Prefer": "respond-async"},
            )
            assert answer.status_code == 202, answer.text

    def states() -> list[str]:
        found: list[str] = []
        for owner in tokens:
            with servers[0].client() as client:
                listed: Any = client.get(
                    "/tasks", params={"limit": 100}, headers={"Authorization": f"Bearer {tokens[owner]}"}
                ).json()
            found += [task["status"] for task in listed.values()]
        return found

    while "running" in (found := states()):
        time.sleep(5)
    assert found == ["completed"] * AGENTS

    calls = list(provider.accepted)
    seconds = calls[-1] - calls[0]
    used = (len(calls) - 1) / seconds * MINUTE / LIMIT
    refused = provider.refused / (len(calls) + provider.refused)
    waits = {
        task: [later - one for one, later in pairwise([posted[task], *begun])]
        for task, begun in provider.begun.items()
    }
    longest = {
        owner: max(max(waits[f"task-{n}"]) for n in range(AGENTS) if owners[n] == owner) for owner in tokens
    }
    share = seconds / CALLS
    asleep = sum(begun[-1] + CALL_SECONDS - posted[task] for task, begun in provider.begun.items())
    paid = sum(map(billed, servers))
    print(f"{seconds=:.0f} {used=:.3f} {refused=:.4f} {longest=} {share=:.1f} {paid=:.0f} {asleep=:.0f}")
    assert len(calls) == AGENTS * CALLS
    assert used >= 0.95
    assert refused <= 0.01
    assert longest["ann"] <= 2 * share
    assert max(longest["bob"], longest["eve"]) <= 2 * len(tokens) * MINUTE / LIMIT + 2
    assert paid <= 0.05 * asleep
