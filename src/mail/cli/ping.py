"""`mail ping`."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mail.cli.options import AsJson, ServerUrl
from mail.cli.output import Output

if TYPE_CHECKING:
    from mail.cli.connecting import CommandClient


def ping(
    url: ServerUrl,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the answer.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Check whether a MAIL server can be reached, and how it says it is."""
    from mail.cli.connecting import connect_anonymously

    client = connect_anonymously(url, timeout=timeout)
    health, trouble = asyncio.run(_get_health(client))
    shown = f"✗ {trouble}" if trouble else f"✓ {health['swarm_name']} is {health['status']}"
    output = Output(sys.stdout, as_json)
    output.result(
        {"url": client.base_url, "reachable": not trouble, **(health or {"error": trouble})},
        lambda: output.text(shown),
    )
    if trouble:
        raise typer.Exit(1)


async def _get_health(client: "CommandClient") -> tuple[dict[str, Any], str]:
    """What the server's /health says, or what is wrong."""
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
        return {}, f"Cannot connect to {base}"
    else:
        if {"swarm_name", "status"} <= health.keys():
            return health, ""
    return {}, f"{base} is no MAIL server"
