"""`[server.swarm] source` may name a swarm that Python defines."""

from pathlib import Path

import pytest

from mail.bootstrap import read_swarm
from mail.config import ServerConfig
from mail.errors import ConfigurationError

MODULE = """
from mail import Agent, Swarm

swarm = Swarm(Agent("lead", "You answer.", model="openai/gpt-5-mini"), name="team")
template = swarm.template
nothing = 1
"""


def configured(name: str, source: str) -> ServerConfig:
    return ServerConfig.model_validate({"swarm": {"name": name, "source": source}})


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "defined_here.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("name", ["swarm", "template"])
def test_a_swarm_and_a_template(name: str) -> None:
    core, entry = read_swarm(configured("team", f"python::defined_here:{name}"))
    assert (core.name, list(core.agents), entry) == ("team", ["lead"], None)
    assert core.protocol


@pytest.mark.parametrize(
    ("name", "source", "problem"),
    [
        ("other", "python::defined_here:swarm", "is the swarm 'team', not 'other'"),
        ("team", "python::defined_here:nothing", "must be a Swarm or a MAILSwarmTemplate"),
        ("team", "python::defined_here:swarms", "Did you mean 'swarm'"),
        ("team", "python::defined_heer:swarm", "can't be imported"),
    ],
)
def test_what_is_wrong_is_named(name: str, source: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        read_swarm(configured(name, source))
