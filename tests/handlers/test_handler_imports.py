"""What the functions load before their first invocation: as cold starts are mostly imports, only what they need."""

import json
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest
from function_stage import FUNCTIONS, HTTP
from support.engines.lambda_runtime import ROOT
from support.processes.projects import entry, supervisor, write_project

from bench.imports import HANDLER_FLOOR
from mail.local_aws.processes import system_environment

MORE_THAN_FLOOR = 330
"""Modules of all these handlers beside those of one with a single route.

At the time of writing, 317 are of MAIL.
"""

OURS_ALONE = 757
"""Modules of all handlers without FastAPI."""

NEVER = {
    "a2a",
    "ag_ui",
    "google",
    "mcp",
    "litellm",
    "openai",
    "boto3",
    "sqlite3",
    "rich",
    "click",
    "httpx2",
    "jsonschema",
    "yaml",
    "schemathesis",
}
HTTP_ONLY = {"fastapi", "starlette", "mangum", "sse_starlette", "uvicorn"}

TIERS = ",".join(f"https://queue.example/turns-{tier}.fifo" for tier in range(1, 6))


@cache
def modules(code: str) -> frozenset[str]:
    """What is loaded in a new process once this has run."""
    environment = {
        **system_environment(),
        "PYTHONPATH": str(ROOT / "src"),
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "MAIL_TABLE": "mail",
        "MAIL_TURN_QUEUES": TIERS,
        "POWERTOOLS_METRICS_NAMESPACE": "MAIL",
    }
    show = "import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"],
        env=environment,
        cwd=ROOT / "swarm",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return frozenset(json.loads(done.stdout.splitlines()[-1]))


def packages(loaded: frozenset[str]) -> set[str]:
    return {name.partition(".")[0] for name in loaded}


def imported(names: Iterable[str]) -> frozenset[str]:
    """What these handlers load, all in one process: each of them loads no more."""
    return modules("import " + ", ".join(f"handlers.{name}" for name in names))


def test_handlers_behind_the_http_api_load_little_more_than_their_frameworks() -> None:
    loaded = imported((*(name for name in HTTP if name != "mail2"), "stream", "protocols"))
    assert not packages(loaded) & NEVER
    assert len(loaded - modules(HANDLER_FLOOR)) <= MORE_THAN_FLOOR
    assert not any(".mail2." in name for name in loaded)


@pytest.mark.soak
def test_the_handler_of_mail_2_loads_its_own_modules_besides() -> None:
    loaded = imported(["mail2"])
    assert not packages(loaded) & NEVER
    assert len({name for name in loaded if ".mail2" not in name} - modules(HANDLER_FLOOR)) <= MORE_THAN_FLOOR


def test_handlers_without_http_load_no_framework() -> None:
    loaded = imported(name for name in FUNCTIONS if name not in HTTP)
    assert not packages(loaded) & (NEVER | HTTP_ONLY)
    assert len(loaded) <= OURS_ALONE


@pytest.mark.parametrize("name", [pytest.param("turn", marks=pytest.mark.soak), "message"])
def test_only_turns_load_litellm_when_an_agent_needs_it(name: str, tmp_path: Path) -> None:
    agent = supervisor(
        "supervisor",
        "mail.factories:LiteLLMSupervisorFunction",
        agent_params={"llm": "openai/gpt-5-mini", "system": "Answer."},
    )
    folder = write_project(tmp_path, entry("llm", agent))
    settings = {"MAIL_SWARM_NAME": "llm", "MAIL_SWARM_SOURCE": str(folder / "swarms.json")}
    loaded = packages(modules(f"import os; os.environ.update({settings!r}); import handlers.{name}"))
    assert ("litellm" in loaded) == (name == "turn")
