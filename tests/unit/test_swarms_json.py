"""Loading swarms.json, picking a swarm, and checking it."""

import json
from pathlib import Path
from typing import Any

import pytest

from mail.errors import ConfigurationError
from mail.swarms_json import (
    SwarmSpec,
    find_source,
    load_swarm,
    load_swarms_json_from_file,
    load_swarms_json_from_string,
    pick_swarm,
)
from mail.swarms_json.load import PACKAGED_SOURCE, validate_swarm_from_swarms_json

ROOT = Path(__file__).parents[2]


def swarm(**changes: Any) -> dict[str, Any]:
    """A small swarm; nothing of what it refers to exists."""
    return {
        "name": "news",
        "version": "1",
        "entrypoint": "chief",
        "agents": [agent("chief", enable_entrypoint=True, can_complete_tasks=True), agent("analyst")],
        "actions": [{"name": "look_up", "function": "python::nowhere:look_up"}],
    } | changes


def agent(name: str, **changes: Any) -> dict[str, Any]:
    return {"name": name, "factory": "python::nowhere:Factory"} | changes


def agents(**changes: Any) -> list[dict[str, Any]]:
    """The agents of `swarm`, with changes to the second."""
    return [swarm()["agents"][0], agent("analyst", **changes)]


class TestValidation:
    def test_defaults(self) -> None:
        entry = validate_swarm_from_swarms_json(swarm())
        analyst = entry.agents[1]
        assert (analyst.enable_entrypoint, analyst.enable_interswarm, analyst.can_complete_tasks) == (
            False,
        ) * 3
        assert analyst.tool_format == "responses"
        assert entry.task_message_limit is None
        assert not entry.public

    def test_subscripts(self) -> None:
        assert validate_swarm_from_swarms_json(swarm())["agents"][0]["name"] == "chief"

    def test_all_documented_fields(self) -> None:
        entry = validate_swarm_from_swarms_json(
            swarm(
                description="d",
                keywords=["k"],
                public=True,
                breakpoint_tools=["look_up"],
                exclude_tools=["help"],
                task_message_limit=3,
                enable_interswarm=True,
                enable_db_agent_histories=True,
                action_imports=["python::nowhere:imported"],
                agents=agents(actions=["imported"], comm_targets=["chief", "desk@times"]),
            )
        )
        assert entry.task_message_limit == 3

    @pytest.mark.parametrize(
        ("changes", "complaint"),
        [
            ({"entrypoint": "chef"}, "entrypoint 'chef' is not an agent. Did you mean 'chief'"),
            ({"entrypoint": "analyst"}, "set enable_entrypoint on agent 'analyst'"),
            ({"agents": [agent("chief", enable_entrypoint=True)]}, "set can_complete_tasks"),
            (
                {"agents": agents(comm_targets=["cheif"])},
                "comm_target 'cheif' is not an agent. Did you mean 'chief'",
            ),
            ({"agents": [*agents(), agent("chief")]}, "different names, but there are several: chief"),
            ({"agents": agents(actions=["lok_up"])}, "'lok_up' is not an action.* Did you mean 'look_up'"),
            ({"agents": agents(exclude_tools=["hepl"])}, "exclude_tools has names that are not MAIL tools"),
            ({"breakpoint_tools": ["lock_up"]}, "breakpoint tool 'lock_up' .*Did you mean 'look_up'"),
            ({"actions": [{"name": "a"}, {"name": "a"}]}, "actions must have different names"),
            ({"actions": [{"name": "send_request"}]}, "names of MAIL tools"),
            ({"entrypont": "x"}, "entrypont: unknown key. Did you mean 'entrypoint'"),
            ({"agents": agents(comm_target=[])}, r"agents.1.comm_target: .*Did you mean 'comm_targets'"),
            ({"agents": []}, "agents: .*at least 1"),
            ({"version": 1}, "version: .*string"),
            ({"public": "yes"}, "public: .*boolean"),
            ({"task_message_limit": 0}, "task_message_limit: "),
            ({"name": "a@b"}, "name: "),
            ({"agents": agents(tool_format="xml")}, r"agents.1.tool_format: .*'completions' or 'responses'"),
        ],
    )
    def test_mistakes(self, changes: dict[str, Any], complaint: str) -> None:
        with pytest.raises(ConfigurationError, match=complaint) as raised:
            validate_swarm_from_swarms_json(swarm(**changes))
        assert f"swarm {changes.get('name', 'news')!r}" in str(raised.value)

    def test_the_version_may_be_left_out(self) -> None:
        incomplete = swarm()
        del incomplete["version"]
        assert validate_swarm_from_swarms_json(incomplete).version == "1.3"

    @pytest.mark.parametrize("field", ["entrypoint", "agents"])
    def test_required_fields(self, field: str) -> None:
        incomplete = swarm()
        del incomplete[field]
        with pytest.raises(ConfigurationError, match=f"{field}: Field required"):
            validate_swarm_from_swarms_json(incomplete)

    def test_something_else(self) -> None:
        with pytest.raises(ConfigurationError):
            validate_swarm_from_swarms_json("swarm")


class TestLoading:
    def test_file(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        path.write_text(json.dumps([swarm(), {"name": "broken"}]))
        assert [found["name"] for found in load_swarms_json_from_file(path)] == ["news", "broken"]
        assert load_swarm("news", path) == SwarmSpec.model_validate(swarm())

    @pytest.mark.parametrize("text", ["", "{}", "[1]", "[" * 100_000, '{"name": "x"}'])
    def test_no_list_of_swarms(self, text: str, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"JSON"):
            load_swarms_json_from_string(text)
        path = tmp_path / "s.json"
        path.write_text(text)
        with pytest.raises(ConfigurationError, match=r"s.json: "):
            load_swarms_json_from_file(path)

    def test_absent_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"other.json: can't be read"):
            load_swarm("news", tmp_path / "other.json")

    def test_problem_in_the_picked_swarm_names_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "s.json"
        path.write_text(json.dumps([swarm(entrypoint="nobody")]))
        with pytest.raises(ConfigurationError, match=r"s.json: swarm 'news': the entrypoint"):
            load_swarm("news", path)

    def test_pick(self) -> None:
        assert pick_swarm([swarm(), swarm(name="sports")], "sports").name == "sports"
        with pytest.raises(ConfigurationError, match=r"no swarm 'new'. Did you mean 'news'"):
            pick_swarm([swarm()], "new")
        with pytest.raises(ConfigurationError, match=r"it has: news"):
            pick_swarm([swarm()], "zzzzz")
        with pytest.raises(ConfigurationError, match=r"2 swarms named 'news'"):
            pick_swarm([swarm(), swarm()], "news")


class TestPackagedSource:
    def test_used_where_the_default_one_is_absent(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert find_source("swarms.json") == PACKAGED_SOURCE
        assert load_swarm("example-no-proxy").entrypoint == "supervisor"

    def test_not_used_where_there_is_one(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "swarms.json").write_text(json.dumps([swarm()]))
        assert load_swarm("news").name == "news"

    def test_not_used_for_another_name(self, tmp_path: Path) -> None:
        assert find_source(tmp_path / "mine.json") == tmp_path / "mine.json"

    def test_is_the_one_at_the_top(self) -> None:
        assert (ROOT / "swarms.json").samefile(PACKAGED_SOURCE)
