"""Mistakes of a newcomer: what they do, and that the answer names the cause and the remedy.

Mistakes with models are in `tests/factories/test_factory_retry.py`, which has a provider to make them with.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from support.processes.server import ServerProcess, eventually, run_mail

DESK = """
class Desk:
    def __init__(self, name, comm_targets, tools, enable_entrypoint, enable_interswarm, can_complete_tasks,
                 tool_format, exclude_tools, user_token="", system=""):
        pass

    async def __call__(self, history, tool_choice):
        return None, []
"""


def agent(**changes: Any) -> dict[str, Any]:
    given = {
        "name": "desk",
        "factory": "python::shop:Desk",
        "comm_targets": [],
        "enable_entrypoint": True,
        "can_complete_tasks": True,
    }
    return given | changes


def swarm(*agents: dict[str, Any], **changes: Any) -> str:
    given = {"name": "shop", "version": "1", "entrypoint": "desk", "agents": agents or (agent(),)}
    return json.dumps([given | changes])


LLM = "python::mail.factories:LiteLLMSupervisorFunction"

IN_A_FOLDER: dict[str, tuple[Mapping[str, str], tuple[str, ...]]] = {
    "broken JSON": ({"swarms.json": '[{"name": }]'}, ("swarms.json: is not valid JSON", "line 1 column")),
    "misspelt key": (
        {"swarms.json": swarm(agent(comm_target=[]))},
        ("comm_target", "Did you mean 'comm_targets'?"),
    ),
    "unknown recipient": (
        {"swarms.json": swarm(agent(comm_targets=["dsk"]))},
        ("'dsk'", "Did you mean 'desk'?"),
    ),
    "unknown entrypoint": ({"swarms.json": swarm(entrypoint="dsk")}, ("'dsk'", "Did you mean 'desk'?")),
    "unknown module": (
        {"swarms.json": swarm(agent(factory="python::shpo:Desk"))},
        ("swarms.json: swarm 'shop', agent 'desk'", "No module named 'shpo'"),
    ),
    "unknown attribute": (
        {"swarms.json": swarm(agent(factory="python::shop:Dsk"))},
        ("swarms.json: swarm 'shop', agent 'desk'", "Did you mean 'Desk'?"),
    ),
    "a reference with dots only": (
        {"swarms.json": swarm(agent(factory="shop.Desk"))},
        ("'shop.Desk' is not of the form", "write 'python::shop:Desk'"),
    ),
    "misspelt parameter of a factory": (
        {"swarms.json": swarm(agent(agent_params={"sytem": "x"}))},
        ("agent 'desk', agent_params.sytem", "'Desk' has no such parameter", "Did you mean 'system'?"),
    ),
    "syntax error in a module": (
        {"shop.py": "import json\ndef Desk(\n"},
        ("shop.py, line 2\n  def Desk(", "SyntaxError: '(' was never closed"),
    ),
    "exception in a module": (
        {"shop.py": "import json\nPRICES = json.loads('{')\n"},
        ("shop.py, line 2\n  PRICES = json.loads('{')", "JSONDecodeError: Expecting property name"),
    ),
    "missing import in a module": (
        {"shop.py": "import prices\n"},
        ("shop.py, line 1\n  import prices", "ModuleNotFoundError: No module named 'prices'"),
    ),
    "breakpoint tool without an entry": (
        {"swarms.json": swarm(breakpoint_tools=["ask_user"])},
        ("'ask_user' is not an action of the swarm", "declare it in actions"),
    ),
    "typo in mail.toml": ({"mail.toml": "[server]\nprt = 1\n"}, ("mail.toml", "prt", "Did you mean 'port'?")),
    "variable of an MCP server": (
        {
            "swarms.json": swarm(
                agent(mcp={"crm": {"url": "http://crm/mcp", "headers": {"X": "${CRM_TOKEN}"}}})
            )
        },
        ("MCP server 'crm'", "the environment variable CRM_TOKEN is not set"),
    ),
    "unknown MCP server": (
        {"swarms.json": swarm(agent(mcp=["crm"]))},
        ("MCP server 'crm'", "it is not in MAIL_MCP_SERVERS"),
    ),
    "a module in place of JSON": (
        {"mail.toml": '[server.swarm]\nsource = "shop.py"\n'},
        ("shop.py: is Python, not JSON", "python::shop:swarm"),
    ),
    "no model": ({"swarms.json": swarm(agent(factory=LLM))}, ("agent 'desk'", "llm")),
}


@pytest.mark.parametrize(("files", "told"), IN_A_FOLDER.values(), ids=IN_A_FOLDER)
def test_in_a_folder(tmp_path: Path, files: Mapping[str, str], told: tuple[str, ...]) -> None:
    refused(tmp_path, files, told)


def refused(
    folder: Path,
    files: Mapping[str, str],
    told: tuple[str, ...],
    named: tuple[str, ...] = ("--swarm-name", "shop"),
) -> None:
    """Check a swarm of these files, beside those of the shop, which must be refused in few lines."""
    for name, text in ({"shop.py": DESK, "swarms.json": swarm()} | dict(files)).items():
        (folder / name).write_text(text, encoding="utf-8")
    done = run_mail("check", *named, cwd=folder, env={"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""})
    said = done.stdout + done.stderr
    assert done.returncode in (1, 2)
    for part in told:
        assert part in said
    assert "Traceback" not in said
    assert len(done.stderr.splitlines()) <= 3


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (("nothing.json", "--swarm-name", "shop"), ("nothing.json: can't be read", "No such file")),
        (("--swarm-name", "shpo"), ("there is no swarm 'shpo'", "Did you mean 'shop'?")),
    ],
)
def test_a_name_of_nothing(tmp_path: Path, named: tuple[str, ...], told: tuple[str, ...]) -> None:
    refused(tmp_path, {}, told, named)


def test_the_only_swarm_of_a_file_is_checked(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(DESK, encoding="utf-8")
    (tmp_path / "s.json").write_text(swarm(), encoding="utf-8")
    done = run_mail("check", "s.json", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "swarm shop is ready" in done.stdout
    (tmp_path / "s.json").write_text(json.dumps([*json.loads(swarm()), *json.loads(swarm(name="b"))]))
    done = run_mail("check", "s.json", cwd=tmp_path)
    assert "it has: shop, b" in done.stderr


def test_without_a_swarm_of_ones_own(tmp_path: Path) -> None:
    done = run_mail("check", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "This folder has no swarms.json, so this is the example swarm" in done.stdout


def test_models(tmp_path: Path) -> None:
    """Those that run on one's own machine are in no list, and need no key."""
    models = {
        "home": "ollama_chat/llama3.2",
        "vllm": "hosted_vllm/qwen",
        "keyless": "openai/gpt-5-mini",
        "lost": "antropic/claude-sonnet-4-5",
        "typo": "anthropic/claude-sonet-4-5",
        "newer": "anthropic/claude-sonnet-4-9",
        "sdk": "sdk/openrouter/qwen/qwen3",
        "cloud": "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0",
    }
    agents = [agent(name=name, factory=LLM, agent_params={"llm": llm}) for name, llm in models.items()]
    agents.append(agent(name="several", factory=LLM, agent_params={"llm": [models["cloud"], models["home"]]}))
    (tmp_path / "swarms.json").write_text(swarm(*agents, entrypoint="home"), encoding="utf-8")
    env = {"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "k", "OPENROUTER_API_KEY": ""}
    env |= {"AWS_REGION": "", "AWS_DEFAULT_REGION": "", "AWS_CONFIG_FILE": str(tmp_path / "none")}
    done = run_mail("check", "--swarm-name", "shop", "--json", cwd=tmp_path, env=env)
    assert done.returncode == 1
    checked = json.loads(done.stdout)["agents"]
    problems = {each["name"]: "; ".join(each["problems"]) for each in checked}
    assert {each["name"]: each["way"] for each in checked} == {
        **dict.fromkeys(models, "litellm"),
        "sdk": "openai",
        **dict.fromkeys(["cloud", "several"], "bedrock"),
    }
    assert [each["fallback"] for each in checked if each["fallback"]] == [{models["home"]: "litellm"}]
    assert "has no API key: set OPENROUTER_API_KEY" in problems["sdk"]
    assert "needs a region of AWS: set AWS_REGION" in problems["cloud"]
    assert problems["home"] == problems["vllm"] == problems["newer"] == ""
    assert "openai/gpt-5-mini has no API key: set OPENAI_API_KEY" in problems["keyless"]
    assert "Did you mean 'anthropic/claude-sonnet-4-5'?" in problems["lost"]
    assert "Did you mean 'anthropic/claude-sonnet-4-5'?" in problems["typo"]


def test_a_server_reports_what_is_missing_and_where_its_page_is(tmp_path: Path) -> None:
    model = {"llm": "openai/gpt-5-mini"}
    (tmp_path / "swarms.json").write_text(swarm(agent(factory=LLM, agent_params=model)), encoding="utf-8")
    with ServerProcess(tmp_path, "--swarm-name", "shop", env={"OPENAI_API_KEY": ""}) as server:
        problem = "Agent 'desk' can't work yet: openai/gpt-5-mini has no API key: set OPENAI_API_KEY"
        eventually(lambda: problem in server.output, "the server reports the missing key")
        assert f"Open {server.url}/ui" in server.output
