"""What can be imported from `mail` and `mail.core`, and what that costs."""

import json
import subprocess
import sys
from enum import Enum
from types import UnionType

import pytest

import mail
from mail.core.task.guards import Allow


def test_public_names() -> None:
    assert sorted(mail.__all__) == [
        "ALLOW",
        "Act",
        "ActionContext",
        "Agent",
        "AgentToolCall",
        "Answer",
        "Approval",
        "AskPerson",
        "Event",
        "File",
        "LATER",
        "LiveEvent",
        "MAILAction",
        "MAILAddress",
        "MAILAgent",
        "MAILAgentTemplate",
        "MAILBroadcast",
        "MAILInterrupt",
        "MAILInterswarmMessage",
        "MAILMessage",
        "MAILRequest",
        "MAILResponse",
        "MAILRuntime",
        "MAILSwarm",
        "MAILSwarmTemplate",
        "PROTOCOL_VERSION",
        "Refuse",
        "Replace",
        "RetryLater",
        "Ruling",
        "Swarm",
        "__version__",
        "action",
        "guard",
    ]


def test_every_public_name_is_there() -> None:
    for name in mail.__all__:
        value = getattr(mail, name)
        is_constant = isinstance(value, str | Enum | Allow | UnionType)
        assert is_constant or value.__name__ == name
    assert set(mail.__all__) <= set(dir(mail))


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="'mail' has no attribute 'MAILMesage'"):
        _ = mail.MAILMesage
    with pytest.raises(ImportError):
        from mail.core import AgentCor  # noqa: F401


def imported(statement: str) -> set[str]:
    """The modules that a statement loads in a fresh interpreter."""
    code = (
        "import sys, json; before = set(sys.modules)\n"
        f"{statement}\n"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_import_mail_loads_nothing_else() -> None:
    free = imported("import importlib, json, typing")
    assert imported("import json, mail") - free == {"gc", "mail", "mail.startup"}
    assert imported("import json, mail, mail.core") - free == {"gc", "mail", "mail.core", "mail.startup"}


@pytest.mark.full
def test_defining_a_swarm_loads_nothing_heavy() -> None:
    statements = (
        "from mail import MAILAction, MAILAgentTemplate, MAILSwarm, MAILSwarmTemplate, action",
        "from mail.core.runtime import MAILRuntime",
        "from mail.examples.weather_dummy.template import TEMPLATE",
        "from mail.factories import LiteLLMSupervisorFunction",
    )
    heavy = {"fastapi", "httpx2", "litellm", "rich", "sqlite3", "sse_starlette", "starlette", "uvicorn"}
    assert heavy.isdisjoint(imported("; ".join(statements)))
