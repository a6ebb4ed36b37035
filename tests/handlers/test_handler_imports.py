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

from mail.local_aws.processes import system_environment

FLOOR = "from botocore.session import Session; from fastapi import FastAPI; from mangum import Mangum"

MORE_THAN_FLOOR = 300
"""Modules of all these handlers beside FastAPI, Mangum and botocore; at the time of writing, some 200 are MAIL and
Powertools.
"""

OURS_ALONE = 690
"""Modules of all handlers without FastAPI."""

NEVER = {
    "litellm",
    "openai",
    "boto3",
    "sqlite3",
    "rich",
    "typer",
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
    loaded = imported((*HTTP, "stream"))
    assert not packages(loaded) & NEVER
    assert len(loaded - modules(FLOOR)) <= MORE_THAN_FLOOR


def test_a_handler_in_a_process_of_its_own_leaves_out_what_only_the_document_needs() -> None:
    assert "pydantic.v1" not in modules("import handlers.interswarm")


ANOTHER_FASTAPI = {
    "__init__.py": """
from fastapi.openapi.models import Schema
vars(Schema)["is_real"]  # fails unless the models are imported
class APIRouter: ...
class Request: ...
""",
    "openapi/__init__.py": "",
    "openapi/models.py": "class Schema: is_real = True",
}


def test_a_fastapi_that_needs_its_models_is_imported_as_it_is(tmp_path: Path) -> None:
    for name, code in ANOTHER_FASTAPI.items():
        (tmp_path / "fastapi" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fastapi" / name).write_text(code)
    check = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n"
        "from handlers.fastapi_import import APIRouter\n"
        "assert APIRouter.__module__ == 'fastapi'\n"
        "assert sys.modules['fastapi.openapi.models'].__file__"
    )
    assert "fastapi.openapi.models" in modules(check)


def test_handlers_of_all_routes_load_most_of_them_later() -> None:
    assert {"mail.http.routes.server", "mail.http.routes.ui"} == {
        name for name in modules("import handlers.root") if name.startswith("mail.http.routes.")
    }


def test_handlers_without_http_load_no_framework() -> None:
    loaded = imported(name for name in FUNCTIONS if name not in HTTP)
    assert not packages(loaded) & (NEVER | HTTP_ONLY)
    assert len(loaded) <= OURS_ALONE


@pytest.mark.parametrize("name", ["turn", "message"])
def test_only_turns_load_litellm_when_an_agent_needs_it(name: str, tmp_path: Path) -> None:
    agent = {
        "name": "supervisor",
        "factory": "python::mail.factories:LiteLLMSupervisorFunction",
        "comm_targets": [],
        "enable_entrypoint": True,
        "can_complete_tasks": True,
        "agent_params": {"llm": "openai/gpt-5-mini", "system": "Answer."},
    }
    swarm = {"name": "llm", "version": "1.3.0", "entrypoint": "supervisor", "agents": [agent], "actions": []}
    source = tmp_path / "swarms.json"
    source.write_text(json.dumps([swarm]))
    settings = {"MAIL_SWARM_NAME": "llm", "MAIL_SWARM_SOURCE": str(source)}
    loaded = packages(modules(f"import os; os.environ.update({settings!r}); import handlers.{name}"))
    assert ("litellm" in loaded) == (name == "turn")


READ_DOCUMENT = """
import json, os, sys
import handlers.root
import yaml
from pathlib import Path
from types import SimpleNamespace
assert not hasattr(sys.modules["fastapi.openapi.models"], "__file__")
assert "pydantic.v1" not in sys.modules
event = json.loads(os.environ["EVENT"])
context = SimpleNamespace(aws_request_id="1", function_name="root", get_remaining_time_in_millis=lambda: 20_000)
answer = handlers.root.handler(event, context)
assert answer["statusCode"] == 200, answer
assert json.loads(answer["body"]) == yaml.safe_load(Path(os.environ["DOCUMENT"]).read_text(encoding="utf-8"))
from aws_lambda_powertools import Logger
assert Logger.__module__ == "aws_lambda_powertools.logging.logger"
"""


def test_what_is_deferred_is_there_when_it_is_used() -> None:
    event = json.loads((ROOT / "events" / "root.json").read_text(encoding="utf-8"))
    event["rawPath"] = event["requestContext"]["http"]["path"] = "/openapi.json"
    settings = {"EVENT": json.dumps(event), "DOCUMENT": str(ROOT / "spec" / "openapi.yaml")}
    assert "fastapi.openapi.models" in modules(f"import os; os.environ.update({settings!r})\n{READ_DOCUMENT}")
