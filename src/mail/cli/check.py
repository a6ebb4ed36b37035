"""`mail check`."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mail.cli.options import api_key, as_json, config_file, run
from mail.cli.output import Output, counted, one_line
from mail.errors import ConfigurationError

if TYPE_CHECKING:
    from mail.bootstrap.check import CheckedAgent
    from mail.cli.connection import CommandClient
    from mail.core.task.swarm import SwarmCore


@click.command()
@click.argument(
    "file",
    type=click.Path(path_type=Path),
    required=False,
    help="The swarms.json file. [default: as configured]",
)
@click.option("--swarm-name", metavar="NAME", help="The swarm to check. [default: as configured]")
@click.option(
    "--against",
    metavar="URL",
    help="Also list the open tasks of this server that would lose an agent or an action by the update. Asks an admin's "
    "key.",
)
@api_key
@config_file
@as_json
def check(
    file: Path | None,
    swarm_name: str | None,
    against: str | None,
    api_key: str | None,
    config: Path | None,
    output: Output,
) -> int:
    """Check that a swarm's agents can work. Nothing is sent to models or agents.

    It looks for packages, API keys, models and tools.

    Exits with 1 if something is missing, and with 2 if the configuration is not valid.
    """
    import os

    from mail.bootstrap import read_swarm
    from mail.bootstrap.check import check_agents
    from mail.cli.connection import connect
    from mail.config import load_config
    from mail.mail2.agents import addresses_of
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
    checked = list(check_agents(swarm, entry))
    problems = sum(len(agent.problems) for agent in checked)
    update = None if against is None else run(_compare(swarm, connect(against, api_key, config=config)))
    addresses = {
        name: f"{key}@{server.mail_host}"
        for key, name in addresses_of(swarm).items()
        if name in swarm.entrypoints
    }
    found = {
        "swarm": swarm.name,
        "agents": [asdict(agent) for agent in checked],
        "addresses": addresses,
        "members": dict(swarm.members),
        "problems": problems,
    }

    def shown() -> None:
        show(swarm.name, checked, output)
        show_addresses(swarm, addresses, output)
        if update is not None:
            show_update(update, output)

    output.result(found if update is None else {**found, "update": update}, shown)
    if find_source(server.swarm.source) is PACKAGED_SOURCE and not output.as_json:
        output.text(
            f"This folder has no {server.swarm.source}, so this is the example swarm; mail init creates a project"
        )
    return int(problems > 0 or bool(update and update["lost"]))


async def _compare(swarm: "SwarmCore", client: "CommandClient") -> dict[str, Any]:
    """Return what an update to a swarm would mean for the open tasks of a server. Raises ConfigurationError."""
    async with client:
        versions = await client.get_swarm_versions()
    if versions["swarm"] != swarm.name:
        raise ConfigurationError(
            f"{client.base_url} runs the swarm {versions['swarm']!r}, not {swarm.name!r}; name another server or swarm"
        )
    return {
        "server": client.base_url,
        "is_present": versions["present"] == swarm.digest,
        **losses(swarm, versions),
    }


def losses(swarm: "SwarmCore", versions: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many open tasks an update concerns, and which agents and actions they would `lose`.

    `finish` counts those that would end on their own version, by `on_update` of the swarm, so that they lose nothing.
    """
    open_tasks = finish = 0
    lost = []
    for version in versions["versions"]:
        tasks = sum(version["tasks"].values())
        open_tasks += tasks
        if version["digest"] == swarm.digest:
            continue
        if swarm.finishes and version["can_finish"]:
            finish += tasks
            continue
        for need in version["needs"]:
            agent, action = swarm.agents.get(need["agent"]), need["action"]
            if agent is None:
                is_lost = not action  # it is listed without one as well
            else:  # MCP servers may have tools that aren't known here
                is_lost = action not in ("", *agent.actions) and agent.tool_source is None
            if is_lost:
                lost.append({"version": version["digest"], **need})
    return {"tasks": open_tasks, "finish": finish, "lost": lost}


def show_update(update: Mapping[str, Any], output: Output) -> None:
    """Print which open tasks of a server would lose something, and what."""
    open_tasks = counted(update["tasks"], "open task")
    if update["is_present"]:
        output.text(f"✓ {update['server']} runs this version already; it has {open_tasks}")
        return
    finish = f", {update['finish']} of which would finish on their version" if update["finish"] else ""
    output.text(f"{'✗' if update['lost'] else '✓'} {update['server']} has {open_tasks}{finish}")
    for loss in update["lost"]:
        gone = (
            f"{loss['agent']} would lose {loss['action']}"
            if loss["action"]
            else f"{loss['agent']} would be gone"
        )
        examples = ", ".join(f"{each['task_id']} ({each['caller']})" for each in loss["examples"])
        more = ", …" if loss["tasks"] > len(loss["examples"]) else ""
        verb = "needs" if loss["tasks"] == 1 else "need"
        output.text("  " + one_line(f"{gone}: {counted(loss['tasks'], 'task')} {verb} it: {examples}{more}"))
    if not update["lost"]:
        output.text("no open task would lose an agent or an action")


def show_addresses(swarm: "SwarmCore", addresses: Mapping[str, str], output: Output) -> None:
    """Print the MAIL 2.0 addresses of entrypoints that are not their names, and the members outside."""
    for name, address in addresses.items():
        if not address.startswith(f"{name}@{swarm.name}@"):
            output.text(one_line(f"{name} has the MAIL 2.0 address {address}"))
    for name, address in swarm.members.items():
        output.text(one_line(f"{name} is outside: {address}"))


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
