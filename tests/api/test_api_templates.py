"""Agent and swarm templates: built by hand, from swarms.json and from examples, checked, reshaped, and served."""

import asyncio
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest
from support.processes import forkserver
from support.processes.forkserver import ForkedProcess
from support.processes.projects import entry, supervisor
from support.processes.server import TIMEOUT, eventually
from support.services.templates import agent, template

from mail import MAILAction, MAILAgent, MAILAgentTemplate, MAILSwarmTemplate
from mail.api.agents import EXAMPLES
from mail.core.task.swarm import AgentCore
from mail.errors import ConfigurationError, MAILError
from mail.factories import LiteLLMAgentFunction, LiteLLMSupervisorFunction
from mail.testing.agents import View, call, complete, request, wait

HERE = __name__
ROOT = Path(__file__).parents[2]
PROMPT = "You are a test."


class Factory:
    """Remembers what it was called with."""

    def __init__(self, **given: Any) -> None:
        self.given = given

    async def __call__(self, _messages: Any, _tool_choice: Any = "required") -> Any:
        return "hi", []


async def look_up(arguments: dict[str, Any]) -> str:
    return "found"


LOOK_UP = MAILAction("look_up", "d", {"type": "object", "properties": {}}, look_up)


def blueprint(**changes: Any) -> MAILAgentTemplate:
    given: dict[str, Any] = {
        "name": "analyst",
        "factory": Factory,
        "comm_targets": ["boss"],
        "actions": [LOOK_UP],
        "agent_params": {"llm": "x/y", "system": [f"python::{HERE}:PROMPT"]},
    }
    return MAILAgentTemplate(**{**given, **changes})


class TestAgents:
    async def test_instantiate(self) -> None:
        built = blueprint(exclude_tools=["help"]).instantiate(
            {"user_token": "secret"}, exclude_tools=["await_message"]
        )
        assert isinstance(built, MAILAgent)
        assert isinstance(built.function, Factory)
        assert built.function.given == {
            "name": "analyst",
            "comm_targets": ["boss"],
            "tools": [LOOK_UP.to_tool_dict("responses")],
            "enable_entrypoint": False,
            "enable_interswarm": False,
            "can_complete_tasks": False,
            "tool_format": "responses",
            "exclude_tools": ["await_message", "help"],
            "user_token": "secret",
            "llm": "x/y",
            "system": [PROMPT],
        }
        assert await built([{"role": "user", "content": "x"}]) == ("hi", [])
        core = built.to_core()
        assert isinstance(core, AgentCore)
        assert (core.actions, core.exclude_tools) == (("look_up",), {"await_message", "help"})

    def test_factory_by_import_string(self) -> None:
        for text in (f"{HERE}:Factory", f"python::{HERE}:Factory"):
            assert isinstance(blueprint(factory=text).instantiate({}).function, Factory)

    def test_silence(self) -> None:
        built = blueprint().instantiate({}, print_llm_streams=False)
        assert built.function.given["print_llm_streams"] is False  # type: ignore[attr-defined]

    def test_top_level_goes_before_agent_params(self, caplog: pytest.LogCaptureFixture) -> None:
        params = {"tool_format": "responses", "persona": "mail.examples.analyst_dummy.prompts:SYSPROMPT"}
        with caplog.at_level(logging.WARNING):
            built = blueprint(tool_format="completions", agent_params=params).instantiate({})
        assert built.function.given["tool_format"] == built.tool_format == "completions"  # type: ignore[attr-defined]
        assert "'tool_format' in agent_params is ignored" in caplog.text
        assert "write 'python::mail.examples.analyst_dummy.prompts:SYSPROMPT' for the object" in caplog.text

    @pytest.mark.parametrize(
        "factory",
        [LiteLLMSupervisorFunction, "mail.factories.supervisor:LiteLLMSupervisorFunction"],
        ids=["class", "text"],
    )
    def test_who_supervises_completes_tasks_unless_told_otherwise(self, factory: Any) -> None:
        def made(**fields: Any) -> MAILAgentTemplate:
            params = {"llm": "openai/gpt-5-mini"}
            return MAILAgentTemplate("boss", factory, [], [], params, enable_entrypoint=True, **fields)

        assert made().can_complete_tasks
        function = template(made()).instantiate({}).agents[0].function
        assert isinstance(function, LiteLLMSupervisorFunction)
        assert "task_complete" in str(function.tools)
        assert not made(can_complete_tasks=False).can_complete_tasks
        with pytest.raises(ConfigurationError, match="set can_complete_tasks"):
            template(made(can_complete_tasks=False))

    @pytest.mark.parametrize("factory", [LiteLLMAgentFunction, "nowhere:Factory", lambda **_: None])
    def test_nobody_else_does(self, factory: Any) -> None:
        assert not MAILAgentTemplate("a", factory, [], [], {}).can_complete_tasks

    def test_a_factory_that_makes_no_function(self) -> None:
        with pytest.raises(
            ConfigurationError, match=r"returned no function, but str; .* returns \(text or None"
        ):
            blueprint(factory=lambda **_: "agent", agent_params={}).instantiate({})

    def test_a_factory_that_refuses(self) -> None:
        with pytest.raises(
            ConfigurationError,
            match=r"agent 'analyst': its factory .* rejected its parameters: .*needs .* model",
        ):
            blueprint(factory=LiteLLMAgentFunction, agent_params={}).instantiate({})

    @pytest.mark.parametrize(
        ("changes", "complaint"),
        [
            ({"name": ""}, "name: "),
            ({"tool_format": "chat"}, "tool_format: Input should be .completions. or .responses."),
            ({"exclude_tools": ["halp"]}, r"'halp', which is not a MAIL tool. Did you mean 'help'"),
            ({"factory": 3}, "factory: must be a function or its import string"),
            ({"comm_targets": [1]}, "comm_targets.0: "),
            ({"agent_params": {"a": "python::nowhere:x"}}, "can't be imported"),
        ],
    )
    def test_wrong(self, changes: dict[str, Any], complaint: str) -> None:
        with pytest.raises(ConfigurationError, match=complaint):
            blueprint(**changes)

    def test_a_setting_that_is_changed_is_checked(self) -> None:
        made = blueprint()
        made.comm_targets = ["aide"]
        made.agent_params["llm"] = "a/b"
        assert (made.spec.comm_targets, made.spec.agent_params["llm"]) == (["aide"], "a/b")
        with pytest.raises(ConfigurationError, match=r"^agent 'analyst': strict_tools: "):
            made.strict_tools = "no"  # type: ignore[assignment]
        assert made.strict_tools is None

    @pytest.mark.parametrize("make", [blueprint, lambda **given: template(agent("a"), **given)])
    def test_a_misspelt_keyword(self, make: Any) -> None:
        with pytest.raises(
            ConfigurationError, match=r"strict_tool: unknown key. Did you mean 'strict_tools'\?"
        ):
            make(strict_tool=True)

    def test_an_agent_without_a_function(self) -> None:
        with pytest.raises(ConfigurationError, match="can't be called"):
            MAILAgent("a", Factory, [], None, [], {})  # type: ignore[arg-type]

    def test_to_template(self) -> None:
        built = blueprint(comm_targets=["boss", "other", "x@far"]).instantiate({})
        again = built._to_template(["boss", "analyst"])
        assert isinstance(again, MAILAgentTemplate)
        assert again.comm_targets == ["boss", "x@far"]
        assert again._top_level_params()["name"] == "analyst"

    def test_from_swarm_json(self) -> None:
        entry = {
            "name": "a",
            "factory": f"python::{HERE}:Factory",
            "comm_targets": ["b"],
            "actions": ["look_up"],
            "agent_params": {"system": f"python::{HERE}:PROMPT"},
            "can_complete_tasks": True,
            "exclude_tools": ["help"],
        }
        made = MAILAgentTemplate.from_swarm_json(json.dumps(entry), {"look_up": LOOK_UP})
        assert (made.name, made.comm_targets, made.actions) == ("a", ["b"], [LOOK_UP])
        assert (made.agent_params, made.can_complete_tasks, made.exclude_tools) == (
            {"system": PROMPT},
            True,
            ["help"],
        )
        with pytest.raises(
            ConfigurationError, match="'look_up' is not a known action; give it in actions_by_name"
        ):
            MAILAgentTemplate.from_swarm_json(json.dumps(entry))
        with pytest.raises(ConfigurationError, match=r"Did you mean 'look_up2'"):
            MAILAgentTemplate.from_swarm_json(json.dumps(entry), {"look_up2": LOOK_UP})
        with pytest.raises(ConfigurationError, match="agent: factory: "):
            MAILAgentTemplate.from_swarm_json('{"name": "a"}')
        with pytest.raises(ConfigurationError, match="may not be imported"):
            MAILAgentTemplate.from_swarm_json(
                json.dumps(entry), {"look_up": LOOK_UP}, allowed_prefixes=["mail"]
            )

    @pytest.mark.parametrize("name", EXAMPLES)
    def test_from_example(self, name: str) -> None:
        made = MAILAgentTemplate.from_example(name, comm_targets=["x"])
        built = made.instantiate({})
        assert (made.name, made.comm_targets) == (name, ["x"])
        assert isinstance(built.function, LiteLLMAgentFunction)
        assert built.function.llm.startswith("openai/")
        assert built.function.system
        assert made.can_complete_tasks is isinstance(built.function, LiteLLMSupervisorFunction)
        assert {action.name for action in made.actions} == {
            "weather": {"get_weather_forecast"},
            "math": {"calculate_expression"},
        }.get(name, set())

    def test_unknown_example(self) -> None:
        with pytest.raises(ConfigurationError, match=r"no example agent 'wether'. Did you mean 'weather'"):
            MAILAgentTemplate.from_example("wether", [])


class TestSwarmTemplates:
    def test_actions_of_agents_belong_to_the_swarm(self) -> None:
        made = template(agent("boss", supervises=True, actions=[LOOK_UP]), agent("b", actions=[LOOK_UP]))
        assert list(made.to_core().actions) == ["look_up"]

    def test_two_actions_of_one_name(self) -> None:
        other = MAILAction("look_up", "d", {"type": "object"}, look_up)
        with pytest.raises(ConfigurationError, match="different names, but there are several: look_up"):
            template(agent("boss", supervises=True, actions=[LOOK_UP]), actions=[other])

    @pytest.mark.parametrize(
        ("agents", "fields", "complaint"),
        [
            (
                [agent("boss", supervises=True)],
                {"entrypoint": "bos"},
                r"is not an agent. Did you mean 'boss'",
            ),
            ([agent("boss", can_complete_tasks=True)], {}, "set enable_entrypoint on agent 'boss'"),
            ([agent("boss", enable_entrypoint=True)], {}, "set can_complete_tasks on at least one"),
            (
                [agent("boss", supervises=True, targets=["anlyst"]), agent("analyst")],
                {},
                "Did you mean 'analyst'",
            ),
            ([agent("boss", supervises=True), agent("boss")], {}, "agents must have different names"),
            (
                [agent("boss", supervises=True)],
                {"exclude_tools": ["hlp"]},
                "exclude_tools has names that are not MAIL tools",
            ),
            ([agent("boss", supervises=True)], {"name": "a:b"}, "swarm 'a:b': name: "),
            ([agent("boss", supervises=True)], {"task_message_limit": 0}, "task_message_limit: "),
            ([agent("all", supervises=True)], {}, "an agent's name is not 'all'"),
        ],
    )
    def test_wrong(self, agents: list[MAILAgentTemplate], fields: dict[str, Any], complaint: str) -> None:
        with pytest.raises(ConfigurationError, match=complaint):
            template(*agents, **fields)

    def test_nothing_but_a_name(self) -> None:
        with pytest.raises(ConfigurationError, match="agents: "):
            MAILSwarmTemplate("empty")

    def test_fields_reach_the_engine(self, caplog: pytest.LogCaptureFixture) -> None:
        made = template(
            agent("boss", supervises=True),
            description="d",
            keywords=["k"],
            public=True,
            task_message_limit=3,
            exclude_tools=["help"],
            enable_db_agent_histories=True,
            enable_interswarm=True,
        )
        core = made.to_core()
        assert (core.description, core.keywords, core.public, core.task_message_limit) == (
            "d",
            ("k",),
            True,
            3,
        )
        assert core.agents["boss"].exclude_tools == {"help"}
        swarm = made.instantiate(
            {}, base_url="http://localhost:1", registry_file="r.json", print_llm_streams=False
        )
        assert (swarm.enable_interswarm, swarm.enable_db_agent_histories) == (True, True)
        assert "enable_db_agent_histories" not in caplog.text
        assert not swarm.is_interswarm_running()

    def test_from_swarm_json_file(self) -> None:
        made = MAILSwarmTemplate.from_swarm_json_file(
            swarm_name="example-no-proxy", json_filepath=ROOT / "src/mail/examples/swarms.json"
        )
        assert [each.name for each in made.agents] == ["supervisor", "weather", "math"]
        assert made.breakpoint_tools == ["ask_human"]
        swarm = made.instantiate({})
        response, _ = asyncio.run(swarm.post_message_and_run("2*(3+4)"))
        assert "= 14" in response["message"]["body"]

    def test_from_swarm_json(self) -> None:
        given = entry(
            "s",
            supervisor("boss", f"{HERE}:Factory", actions=["look_up", "act"]),
            actions=[{"name": "act", "function": f"python::{HERE}:look_up"}],
            action_imports=[f"python::{HERE}:LOOK_UP"],
            task_message_limit=5,
        )
        made = MAILSwarmTemplate.from_swarm_json(json.dumps(given))
        assert [each.name for each in made.actions] == ["act", "look_up"]
        assert made.task_message_limit == 5
        assert MAILSwarmTemplate.from_swarm_json(json.dumps([given])).name == "s"
        for text, complaint in (
            ("{", "not valid JSON"),
            (json.dumps([given, given]), "must be one swarm"),
            (json.dumps({**given, "entrypoint": "bos"}), "Did you mean 'boss'"),
            (json.dumps({**given, "action_imports": [f"python::{HERE}:PROMPT"]}), "is not an action"),
        ):
            with pytest.raises(ConfigurationError, match=complaint):
                MAILSwarmTemplate.from_swarm_json(text)
        with pytest.raises(ConfigurationError, match="may not be imported"):
            MAILSwarmTemplate.from_swarm_json(json.dumps(given), allowed_prefixes=["mail.stdlib"])


def trio(**fields: Any) -> MAILSwarmTemplate:
    return template(
        agent("boss", supervises=True, targets=["a", "b", "x@far"], actions=[LOOK_UP]),
        agent("a", targets=["boss", "b"], supervises=True),
        agent("b", targets=["boss"]),
        **fields,
    )


class TestGraph:
    def test_matrix(self) -> None:
        assert trio()._build_adjacency_matrix() == ([[0, 1, 1], [1, 0, 1], [1, 0, 0]], ["boss", "a", "b"])

    def test_update(self) -> None:
        made = trio()
        made.update_from_adjacency_matrix([[0, 0, 1], [0, 0, 0], [1, 1, 0]])
        assert [each.comm_targets for each in made.agents] == [["b", "x@far"], [], ["boss", "a"]]
        assert made._build_adjacency_matrix()[0] == [[0, 0, 1], [0, 0, 0], [1, 1, 0]]

    @pytest.mark.parametrize("matrix", [[], [[0, 0, 0]], [[0], [0], [0]]])
    def test_wrong_shape(self, matrix: list[list[int]]) -> None:
        with pytest.raises(ConfigurationError, match="must have 3 rows of 3 columns"):
            trio().update_from_adjacency_matrix(matrix)

    async def test_update_of_a_running_swarm(self) -> None:
        def boss(view: View) -> list[Any]:
            if view.mail.subject == "::invalid_recipient::":
                return [complete("can't write")]
            return [complete("answered")] if view.mail.sender == "a" else [request("a"), wait()]

        def worker(view: View) -> list[Any]:
            return [call("send_response", target="boss", subject="s", body="b")]

        swarm = template(
            agent("boss", boss, supervises=True, targets=["a"]), agent("a", worker, targets=["boss"])
        ).instantiate({})
        assert (await swarm.post_message("x"))[0].message.body == "answered"
        swarm.update_from_adjacency_matrix([[0, 0], [1, 0]])
        assert swarm._build_adjacency_matrix()[0] == [[0, 0], [1, 0]]
        assert (await swarm.post_message("x"))[0].message.body == "can't write"

    def test_agents_are_told_of_their_targets(self) -> None:
        swarm = template(
            agent("boss", factory=Factory, supervises=True), agent("a", factory=Factory)
        ).instantiate({"user_token": "t"})
        swarm.update_from_adjacency_matrix([[0, 1], [0, 0]])
        function: Any = swarm._runtime.swarm.agents["boss"].function
        assert function.given["comm_targets"] == ["a"]
        assert function.given["user_token"] == "t"


class TestSubswarms:
    def test_of_a_template(self) -> None:
        part = trio(breakpoint_tools=["look_up", "task_complete"], description="d").get_subswarm(
            ["a", "b"], "ab"
        )
        assert (part.name, part.entrypoint, part.description) == ("team-ab", "a", "d")
        assert [each.comm_targets for each in part.agents] == [["b"], []]
        assert part.breakpoint_tools == ["task_complete"]
        assert part.actions == []
        assert trio().get_subswarm(["boss", "b"], "x").entrypoint == "boss"
        assert trio().get_subswarm(["boss", "b"], "x").agents[0].comm_targets == ["b", "x@far"]
        assert trio().get_subswarm(["boss", "a"], "x", "a").entrypoint == "a"

    def test_of_a_running_swarm(self) -> None:
        part = trio().instantiate({}).get_subswarm(["a", "b"], "ab")
        assert isinstance(part, MAILSwarmTemplate)
        assert part.name == "team-ab"

    def test_wrong(self) -> None:
        with pytest.raises(ConfigurationError, match="none of these agents has enable_entrypoint"):
            trio().get_subswarm(["b"], "b")
        with pytest.raises(ConfigurationError, match=r"there is no agent 'bos'. Did you mean 'boss'"):
            trio().get_subswarm(["bos"], "b")
        weak = template(agent("boss", supervises=True), agent("a", enable_entrypoint=True))
        with pytest.raises(ConfigurationError, match="set can_complete_tasks"):
            weak.get_subswarm(["a"], "a")


SERVER = """
import sys
from mail import MAILSwarmTemplate
template = MAILSwarmTemplate.from_swarm_json_file("example-no-proxy")
template.name = "served"
template.start_server(port=int(sys.argv[1]), host="127.0.0.1", **eval(sys.argv[2]))
"""

UI = """#!/bin/sh
echo "$@ $MAIL_SERVER_URL" > "$PWD/called"
exec sleep 60
"""


@pytest.mark.full
class TestServer:
    def start(self, folder: Path, **options: Any) -> tuple[ForkedProcess, str]:
        (folder / "bin").mkdir()
        npm = folder / "bin" / "npm"
        npm.write_text(UI)
        npm.chmod(0o755)
        browser = folder / "bin" / "browser"
        browser.write_text(f'#!/bin/sh\necho "$1" >> {folder / "opened"}\n')
        browser.chmod(0o755)
        path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environ = {**os.environ, "PATH": path, "BROWSER": f"{browser} %s"}
        program, log = folder / "serve.py", folder / "log.txt"
        program.write_text(SERVER)
        with log.open("wb") as output:
            process = forkserver.start(
                [sys.executable, str(program), "0", repr(options)],
                cwd=folder,
                env=environ,
                stdout=output,
                stderr=output,
            )
        eventually(lambda: "listens on" in log.read_text() or process.poll() is not None, "it listens")
        lines = [line for line in log.read_text().splitlines() if "listens on" in line]
        assert lines, log.read_text()
        return process, lines[0]

    def stop(self, process: ForkedProcess) -> None:
        process.terminate()
        assert process.wait(TIMEOUT) == 0

    def test_user_interface(self, tmp_path: Path) -> None:
        (tmp_path / "ui").mkdir()
        (tmp_path / "ui" / "package.json").write_text("{}")
        process, _ = self.start(tmp_path, launch_ui=True, ui_port=3210)
        self.stop(process)
        assert (tmp_path / "ui" / "called").read_text() == "run dev -- --port 3210 http://localhost:0\n"

    @pytest.mark.parametrize("options", [{"launch_ui": True}, {"open_browser": True}])
    def test_the_page_of_the_server(self, tmp_path: Path, options: dict[str, bool]) -> None:
        process, line = self.start(tmp_path, **options)
        try:
            url = next(word for word in line.split() if word.startswith("http://"))
            swarm = httpx2.get(f"{url}/", timeout=60).json()["swarm"]
            assert "Swarm served listens" in line
            assert (swarm["name"], swarm["entrypoint"]) == ("served", "supervisor")
            assert httpx2.get(f"{url}/ui", follow_redirects=True).status_code == 200
            page, _, code = (tmp_path / "opened").read_text().strip().partition("#sign-in=")
            assert page == f"{url}/ui"
            signed_in = httpx2.post(f"{url}/sign-in", json={"code": code}).raise_for_status().json()
            assert (signed_in["role"], signed_in["id"], bool(signed_in["admin_token"])) == (
                "user",
                "user",
                True,
            )
        finally:
            self.stop(process)

    def test_the_settings_hold_where_the_swarm_says_nothing(self) -> None:
        assert trio().to_core(task_message_limit=7).task_message_limit == 7
        assert trio(task_message_limit=3).to_core(task_message_limit=7).task_message_limit == 3
        assert trio().to_core(failing_call_limit=7).failing_call_limit == 7
        assert trio(failing_call_limit=0).to_core(failing_call_limit=7).failing_call_limit == 0

    def test_wrong_port(self) -> None:
        with pytest.raises(ConfigurationError, match="port must be"):
            trio().start_server(port=70000)


def test_errors_are_mail_errors() -> None:
    assert issubclass(ConfigurationError, MAILError)
