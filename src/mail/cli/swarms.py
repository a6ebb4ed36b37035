"""The commands about a server, its swarm, and the swarms that it knows; `mail ping` is one of them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from mail.cli.command import Command, Namespace, joined, option, positional, switch
from mail.cli.options import as_json, choose_server, run, server_option, server_url, timeout
from mail.cli.output import Output, one_line
from mail.cli.session import Session, UsageError
from mail.cli.values import JSON, Secret, json_object, json_text

if TYPE_CHECKING:
    from mail.cli.connection import CommandClient


@click.command()
@server_url
@server_option
@timeout(default=5.0, help="Seconds to wait for the answer.")
@as_json
def ping(url: str | None, server: str | None, timeout: float, output: Output) -> int:
    """Check whether a server can be reached, and show its health."""
    from mail.cli.connection import connect_anonymously

    client = connect_anonymously(choose_server(url, server), timeout=timeout)
    health, problem = run(_get_health(client))
    shown = f"✗ {problem}" if problem else f"✓ {health['swarm_name']} is {health['status']}"
    output.result(
        {"url": client.base_url, "reachable": not problem, **(health or {"error": problem})},
        lambda: output.text(shown),
    )
    return int(bool(problem))


async def _get_health(client: "CommandClient") -> tuple[dict[str, Any], str]:
    """Return the server's health, or the reason why there is none."""
    from mail.cli.connection import other_scheme
    from mail.client.errors import BadAnswer, MAILClientError, NotJSON

    base = client.base_url
    try:
        async with client:
            health = await client.get_health()
    except NotJSON:
        pass
    except BadAnswer as refusal:
        return {}, f"{base} answered {refusal.status} to GET /health"
    except MAILClientError:
        return {}, f"Cannot connect to {base}{await other_scheme(base)}"
    else:
        if {"swarm_name", "status"} <= health.keys():
            return health, ""
    return {}, f"{base} is not a MAIL server"


async def show_server(session: Session, given: Namespace) -> None:
    """Print the server's name, version and swarm, and remember the swarm's entrypoint."""
    root = await session.client.ping()
    swarm = describe_swarm(session, root)
    shown = f"{root.get('name')} (protocol {root.get('protocol_version')}) is {root.get('status')}: {swarm}"
    session.output.result(root, lambda: session.output.text(one_line(shown)))


def describe_swarm(session: Session, root: Mapping[str, Any]) -> str:
    """Return the name and version of the swarm that a server names at its root, and remember its entrypoint."""
    swarm = root.get("swarm") or {}
    if not isinstance(swarm, dict) or "entrypoint" not in swarm:
        return str(swarm)
    session.memory.agents.add(swarm["entrypoint"])
    version = swarm["version"]
    return f"swarm {swarm['name']}{f' {version}' if version not in ('', '0') else ''}"


async def health(session: Session, given: Namespace) -> None:
    """Print the swarm's health, in a line or as JSON."""
    answer = await session.client.get_health()
    session.output.result(answer, None if given.verbose else lambda: show_health(answer, session.output))


def show_health(answer: Mapping[str, Any], output: Output) -> None:
    """Print the swarm's health in a line."""
    output.text(one_line(f"{answer.get('swarm_name')} is {answer.get('status')}"))


async def register_swarm(session: Session, given: Namespace) -> None:
    """Register another swarm, with a token as the third word or as an option."""
    if given.token and given.auth_token:
        raise UsageError("swarm-register: give the token once")
    answer = await session.client.register_swarm(
        given.name,
        given.base_url,
        auth_token=given.token or given.auth_token,
        metadata=given.metadata,
        volatile=given.volatile,
    )
    session.output.result(answer)


def show_agents(answer: Mapping[str, Any], output: Output) -> None:
    """Print a line per agent, the entrypoint first: whom it writes to, and its actions."""
    entrypoint = answer["entrypoint"]
    agents = sorted(answer["agents"], key=lambda agent: agent["name"] != entrypoint)
    columns: dict[str, list[str]] = {
        "agent": [agent["name"] for agent in agents],
        "takes messages": [_role(agent, entrypoint) for agent in agents],
        "writes to": [", ".join(agent["comm_targets"]) for agent in agents],
        "actions": [", ".join(agent["actions"]) for agent in agents],
        "copies": [str(agent.get("copies") or "") for agent in agents],
        "description": [agent.get("description", "") for agent in agents],
    }
    for name in ("copies", "description"):
        if not any(columns[name]):
            del columns[name]
    output.table(tuple(columns), list(zip(*columns.values(), strict=True)))


def _role(agent: Mapping[str, Any], entrypoint: str) -> str:
    if agent["name"] == entrypoint:
        return "by default"
    return "yes" if agent["enable_entrypoint"] else "no"


def show_versions(answer: Mapping[str, Any], output: Output) -> None:
    """Print a line per version: its names, and how many open tasks began with it."""
    present = answer["present"]
    rows = [
        (
            f"{each['digest'] or 'not recorded'}{' (runs now)' if each['digest'] == present else ''}",
            one_line(" ".join(filter(None, (each["version"], each["code"])))),
            *(str(each["tasks"][status] or "") for status in ("running", "waiting", "paused")),
        )
        for each in answer["versions"]
    ]
    output.table(("digest", "version", "running", "waiting", "paused"), rows)


COMMANDS = (
    Command(
        needs_slash=True,
        shell_name="agents",
        summary="List the swarm's agents, and what they can do.",
        operation="get_swarm",
        view=show_agents,
    ),
    Command(name="ping", summary="Show the server's name, version and swarm.", handler=show_server),
    Command(
        name="live",
        summary="Show whether the server's process answers, without its database.",
        operation="get_live",
    ),
    Command(
        name="health",
        summary="Show the swarm's health.",
        handler=health,
        arguments=(switch("-v", "--verbose", help="Show the server's whole answer."),),
    ),
    Command(
        name="health-update",
        summary="Set the health that the swarm reports (admin).",
        operation="update_health",
        arguments=(
            positional(
                "status", "The health, such as healthy or draining.", nargs=-1, required=True, callback=joined
            ),
        ),
    ),
    Command(
        name="status",
        summary="Show whether the swarm is ready, and whether you have tasks.",
        operation="get_status",
    ),
    Command(
        name="swarms-get", summary="List the public swarms that the server knows.", operation="get_swarms"
    ),
    Command(
        name="swarm-register",
        summary="Register another swarm with the server (admin).",
        handler=register_swarm,
        arguments=(
            positional("name", "Its name."),
            positional("base_url", "Its URL; that of its agent card, if it is called by A2A."),
            positional("token", "The key that it requires, or $VARIABLE.", required=False, type=Secret()),
            option("--auth-token", help="The same, as an option.", type=Secret()),
            option("--metadata", help="A JSON object to store with it.", type=JSON(json_object)),
            switch("--volatile", help="Only until the server restarts."),
        ),
    ),
    Command(
        shell_name="swarm versions",
        summary="List the versions of the swarm that tasks use (admin).",
        details="With the open tasks that began with each: running, waiting for a call or a timer, and paused.",
        operation="get_swarm_versions",
        view=show_versions,
    ),
    Command(
        name="swarm-dump", summary="Write the server's swarm to its log (admin).", operation="dump_swarm"
    ),
    Command(
        name="swarm-load-from-json",
        summary="Replace the server's swarm (admin).",
        operation="load_swarm_from_json",
        arguments=(
            positional(
                "json_str", "An entry of swarms.json, or @file.", metavar="JSON", type=JSON(json_text)
            ),
        ),
    ),
)
