"""`mail check`."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mail.cli.options import as_json, config_file
from mail.cli.output import Output

if TYPE_CHECKING:
    from mail.bootstrap.check import CheckedAgent


@click.command()
@click.argument(
    "file",
    type=click.Path(path_type=Path),
    required=False,
    help="The swarms.json file. [default: as configured]",
)
@click.option("--swarm-name", metavar="NAME", help="The swarm to check. [default: as configured]")
@config_file
@as_json
def check(file: Path | None, swarm_name: str | None, config: Path | None, as_json: bool) -> int:
    """Check that a swarm's agents can work. Nothing is sent.

    It looks for packages, API keys, models and tools.

    Exits with 1 if something is missing, and with 2 if the configuration is not valid.
    """
    import os

    from mail.bootstrap import read_swarm
    from mail.bootstrap.check import check_agents
    from mail.config import load_config
    from mail.swarms_json.load import PACKAGED_SOURCE, find_source, load_swarms_json_from_file

    if file is not None and swarm_name is None and len(swarms := load_swarms_json_from_file(file)) == 1:
        swarm_name = swarms[0].get("name")
    flags: dict[str, Any] = {"swarm_name": swarm_name, "swarm_source": None if file is None else str(file)}
    server = load_config(config).server.with_overrides(
        **{name: value for name, value in flags.items() if value is not None}
    )
    if os.getcwd() not in sys.path:  # as for `mail server`: swarms.json may name modules beside it
        sys.path.append(os.getcwd())
    swarm, entry = read_swarm(server)
    output = Output(sys.stdout, as_json)
    checked = list(check_agents(swarm, entry))
    problems = sum(len(agent.problems) for agent in checked)
    output.result(
        {"swarm": swarm.name, "agents": [asdict(agent) for agent in checked], "problems": problems},
        lambda: show(swarm.name, checked, output),
    )
    if find_source(server.swarm.source) is PACKAGED_SOURCE and not as_json:
        output.text(
            f"This folder has no {server.swarm.source}, so this is the example swarm; mail init creates a project"
        )
    return int(problems > 0)


def show(swarm: str, checked: Sequence["CheckedAgent"], output: Output) -> None:
    """Print a line for each agent, and one for each of its problems."""
    for agent in checked:
        tools = f"; tools: {', '.join(agent.tools)}" if agent.tools else ""
        mark = "✗" if agent.problems else "✓"
        model = f"{agent.model} (by {agent.way})" if agent.way else agent.model or "no language model"
        others = "".join(f", else {name} (by {way})" for name, way in agent.fallback.items())
        output.text(f"{mark} {agent.name}: {model}{others}{tools}")
        for problem in agent.problems:
            output.text(f"  {problem}")
    if not any(agent.problems for agent in checked):
        output.text(f"swarm {swarm} is ready")
