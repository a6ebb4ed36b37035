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

IN_A_FOLDER: dict[str, tuple[Mapping[str, str], tuple[str, ...], tuple[str, ...]]] = {
    "no such file": ({}, ("nothing.json",), ("nothing.json: can't be read", "No such file")),
    "unknown swarm": ({}, ("--swarm-name", "shpo"), ("there is no swarm 'shpo'", "Did you mean 'shop'?")),
    "broken JSON": ({"swarms.json": '[{"name": }]'}, (), ("swarms.json: is not valid JSON", "line 1 column")),
    "misspelt key": (
        {"swarms.json": swarm(agent(comm_target=[]))},
        (),
        ("comm_target", "Did you mean 'comm_targets'?"),
    ),
    "unknown recipient": (
        {"swarms.json": swarm(agent(comm_targets=["dsk"]))},
        (),
        ("'dsk'", "Did you mean 'desk'?"),
    ),
    "unknown entrypoint": ({"swarms.json": swarm(entrypoint="dsk")}, (), ("'dsk'", "Did you mean 'desk'?")),
    "unknown module": (
        {"swarms.json": swarm(agent(factory="python::shpo:Desk"))},
        (),
        ("swarms.json: swarm 'shop', agent 'desk'", "No module named 'shpo'"),
    ),
    "unknown attribute": (
        {"swarms.json": swarm(agent(factory="python::shop:Dsk"))},
        (),
        ("swarms.json: swarm 'shop', agent 'desk'", "Did you mean 'Desk'?"),
    ),
    "a reference with dots only": (
        {"swarms.json": swarm(agent(factory="shop.Desk"))},
        (),
        ("'shop.Desk' is not of the form", "write 'python::shop:Desk'"),
    ),
    "misspelt parameter of a factory": (
        {"swarms.json": swarm(agent(agent_params={"sytem": "x"}))},
        (),
        ("agent 'desk', agent_params.sytem", "'Desk' has no such parameter", "Did you mean 'system'?"),
    ),
    "syntax error in a module": (
        {"shop.py": "import json\ndef Desk(\n"},
        (),
        ("shop.py, line 2\n  def Desk(", "SyntaxError: '(' was never closed"),
    ),
    "exception in a module": (
        {"shop.py": "import json\nPRICES = json.loads('{')\n"},
        (),
        ("shop.py, line 2\n  PRICES = json.loads('{')", "JSONDecodeError: Expecting property name"),
    ),
    "missing import in a module": (
        {"shop.py": "import prices\n"},
        (),
        ("shop.py, line 1\n  import prices", "ModuleNotFoundError: No module named 'prices'"),
    ),
    "breakpoint tool without an entry": (
        {"swarms.json": swarm(breakpoint_tools=["ask_user"])},
        (),
        ("'ask_user' is not an action of the swarm", "declare it in actions"),
    ),
    "typo in mail.toml": (
        {"mail.toml": "[server]\nprt = 1\n"},
        (),
        ("mail.toml", "prt", "Did you mean 'port'?"),
    ),
    "variable of an MCP server": (
        {
            "swarms.json": swarm(
                agent(mcp={"crm": {"url": "http://crm/mcp", "headers": {"X": "${CRM_TOKEN}"}}})
            )
        },
        (),
        ("MCP server 'crm'", "the environment variable CRM_TOKEN is not set"),
    ),
    "unknown MCP server": (
        {"swarms.json": swarm(agent(mcp=["crm"]))},
        (),
        ("MCP server 'crm'", "it is not in MAIL_MCP_SERVERS"),
    ),
    "a module in place of JSON": (
        {"mail.toml": '[server.swarm]\nsource = "shop.py"\n'},
        (),
        ("shop.py: is Python, not JSON", "python::shop:swarm"),
    ),
    "no model": ({"swarms.json": swarm(agent(factory=LLM))}, (), ("agent 'desk'", "llm")),
}


@pytest.mark.parametrize(("files", "flags", "told"), IN_A_FOLDER.values(), ids=IN_A_FOLDER)
def test_in_a_folder(
    tmp_path: Path, files: Mapping[str, str], flags: tuple[str, ...], told: tuple[str, ...]
) -> None:
    for name, text in ({"shop.py": DESK, "swarms.json": swarm()} | dict(files)).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    named = flags if "--swarm-name" in flags else (*flags, "--swarm-name", "shop")
    done = run_mail("check", *named, cwd=tmp_path, env={"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": ""})
    said = done.stdout + done.stderr
    assert done.returncode in (1, 2)
    for part in told:
        assert part in said
    assert "Traceback" not in said
    assert len(done.stderr.splitlines()) <= 3


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
        "cloud": "bedrock",
    }
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


OVER_HTTP: dict[str, tuple[dict[str, Any], int, tuple[str, ...]]] = {
    "misspelt body": ({"boddy": "hi"}, 400, ("body must not be empty", "'boddy'", "Did you mean 'body'?")),
    "unknown entrypoint": (
        {"body": "hi", "entrypoint": "superviser"},
        400,
        ("must be one of: supervisor; not 'superviser'",),
    ),
    "resuming no task": ({"body": "hi", "resume_from": "user_response"}, 400, ("say which task to resume",)),
    "resuming an unknown task": (
        {"body": "hi", "task_id": "nosuch", "resume_from": "user_response"},
        404,
        ("there is no task 'nosuch'",),
    ),
    "misspelt budget": ({"body": "hi", "kwargs": {"budget": {"token": 5}}}, 400, ("kwargs.budget.token",)),
    "a limit of no sense": (
        {"body": "hi", "kwargs": {"max_steps": 0}},
        400,
        ("kwargs.max_steps", "greater than"),
    ),
}


@pytest.mark.parametrize(("body", "status", "told"), OVER_HTTP.values(), ids=OVER_HTTP)
def test_over_http(server: ServerProcess, body: dict[str, Any], status: int, told: tuple[str, ...]) -> None:
    with server.client() as client:
        response = client.post("/message", json=body)
    assert response.status_code == status
    for part in told:
        assert part in response.json()["detail"]


@pytest.mark.parametrize(
    ("path", "told"), [("/mesage", "GET /openapi.json"), ("/message/", "GET /openapi.json")]
)
def test_an_unknown_path(server: ServerProcess, path: str, told: str) -> None:
    with server.client() as client:
        assert told in client.post(path, json={"body": "hi"}).json()["detail"]


def test_a_wrong_token(server: ServerProcess) -> None:
    with server.client() as client:
        response = client.get("/whoami", headers={"Authorization": "Bearer wrong"})
    assert response.status_code == 401
    assert "mail token create" in response.json()["detail"]


AT_THE_PROMPT: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "an apostrophe": (("message what's up",), ("the line is not complete", "double quotes")),
    "plain text": (("and 2**17",), ("there is no command 'and'", 'message "…"')),
    "misspelt command": (("mesage hi",), ("did you mean message?",)),
    "a follow-up to a question": (
        ("message 'ask a human: may I?' --task-id asked-{n}", "message 'you may' --task-id asked-{n}"),
        (
            "task asked-{n} waits for an answer: the swarm asks: may I?",
            '/reply asked-{n} "your answer"',
            "--drop-question",
        ),
    ),
}


@pytest.mark.parametrize(("lines", "told"), AT_THE_PROMPT.values(), ids=AT_THE_PROMPT)
def test_at_the_prompt(
    server: ServerProcess, tmp_path: Path, lines: tuple[str, ...], told: tuple[str, ...]
) -> None:
    number = str(tmp_path.name)
    commands = [word for line in lines for word in ("-c", line.replace("{n}", number))]
    done = run_mail(
        "client", server.url, *commands, cwd=tmp_path, env={"MAIL_API_KEY": server.tokens["user"]}
    )
    assert done.returncode != 0
    for part in told:
        assert part.replace("{n}", number) in done.stderr


def test_a_question_may_be_dropped_on_purpose(server: ServerProcess, tmp_path: Path) -> None:
    lines = (
        "message 'ask a human: may I?' --task-id dropped",
        "message '2+2' --task-id dropped --drop-question",
    )
    commands = [word for line in lines for word in ("-c", line)]
    done = run_mail(
        "client", server.url, *commands, cwd=tmp_path, env={"MAIL_API_KEY": server.tokens["user"]}
    )
    assert done.returncode == 0, done.stderr
    assert "2+2 = 4" in done.stdout


def test_a_misspelt_option_is_told(server: ServerProcess, tmp_path: Path) -> None:
    for command in ("message", "message-stream"):
        line = f"""{command} '2+2' --kwargs '{{"max_step": 3}}'"""
        done = run_mail(
            "client", server.url, "-c", line, cwd=tmp_path, env={"MAIL_API_KEY": server.tokens["user"]}
        )
        assert (
            "warning: the unknown field 'kwargs.max_step' was ignored. Did you mean 'max_steps'?"
            in done.stdout
        )
