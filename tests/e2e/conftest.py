"""What the end-to-end tests share: a swarm, beside the server, that a test can hold up and let go on."""

import json
import textwrap
from pathlib import Path

import pytest

SLOW_AGENTS = '''
"""A supervisor that asks a worker, and a worker that waits until there is a file named `go`."""

import asyncio
import json
import os
from pathlib import Path

from mail.core.protocol.tool_schemas import AgentToolCall

VARIABLES = ("SWARM_NAME", "SWARM_SOURCE", "SWARM_REGISTRY_FILE", "BASE_URL", "MAIL_CONFIG_PATH")


def use(history, *calls):
    ids = [f"call{len(history)}.{n}" for n in range(len(calls))]
    completion = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": i, "type": "function", "function": {"name": tool, "arguments": json.dumps(args)}}
            for i, (tool, args) in zip(ids, calls)
        ],
    }
    return None, [
        AgentToolCall(tool_name=tool, tool_args=args, tool_call_id=i, completion=completion)
        for i, (tool, args) in zip(ids, calls)
    ]


def supervisor(**_wiring):
    async def decide(history, tool_choice):
        letters = [entry["content"] for entry in history if entry["role"] == "user"]
        if '<from type="agent">' in letters[-1]:
            body = letters[-1].partition("<body>")[2].partition("</body>")[0]
            return use(history, ("task_complete", {"finish_message": body}))
        request = {"target": "worker", "subject": "Work", "body": "please"}
        return use(history, ("send_request", request), ("await_message", {}))

    return decide


def worker(**_wiring):
    async def decide(history, tool_choice):
        with open("turns.txt", "a") as turns:
            turns.write("turn\\n")
        while not Path("go").exists():
            await asyncio.sleep(0.01)
        seen = json.dumps({name: os.environ.get(name) for name in VARIABLES})
        return use(history, ("send_response", {"target": "supervisor", "subject": "Done", "body": seen}))

    return decide
'''

SLOW_SWARM = {
    "name": "slow",
    "version": "1.0.0",
    "entrypoint": "supervisor",
    "agents": [
        {
            "name": "supervisor",
            "factory": "python::slow_agents:supervisor",
            "comm_targets": ["worker"],
            "enable_entrypoint": True,
            "can_complete_tasks": True,
        },
        {"name": "worker", "factory": "python::slow_agents:worker", "comm_targets": ["supervisor"]},
    ],
}


@pytest.fixture
def slow_folder(tmp_path: Path) -> Path:
    """A folder with a swarm `slow`, whose worker begins each turn with a line in `turns.txt` and waits for `go`."""
    (tmp_path / "slow_agents.py").write_text(textwrap.dedent(SLOW_AGENTS), encoding="utf-8")
    (tmp_path / "swarms.json").write_text(json.dumps([SLOW_SWARM]), encoding="utf-8")
    return tmp_path
