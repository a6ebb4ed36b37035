"""`mail ping`."""

import json
from typing import Annotated, Any

import typer

from mail.cli.options import AsJson
from mail.cli.urls import server_url


def ping(
    url: Annotated[
        str,
        typer.Argument(metavar="URL", help="http://host:port, https://host or swarm://connect?server=host"),
    ],
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds to wait for the answer.")] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Check whether a MAIL server can be reached, and how it says it is."""
    base = server_url(url)
    health, trouble = _get_health(base, timeout)
    if as_json:
        typer.echo(json.dumps({"url": base, "reachable": not trouble, **(health or {"error": trouble})}))
    elif health:
        typer.echo(f"✓ {health['swarm_name']} is {health['status']}")
    else:
        typer.echo(f"✗ {trouble}")
    if trouble:
        raise typer.Exit(1)


def _get_health(base: str, timeout: float) -> tuple[dict[str, Any] | None, str]:
    """What the server's /health says, or what is wrong."""
    import httpx

    try:
        response = httpx.get(f"{base}/health", timeout=timeout)
        health = response.raise_for_status().json()
        if isinstance(health, dict) and {"swarm_name", "status"} <= health.keys():
            return health, ""
    except httpx.TransportError:
        return None, f"Cannot connect to {base}"
    except httpx.HTTPStatusError as error:
        return None, f"{base} answered {error.response.status_code} to GET /health"
    except (httpx.InvalidURL, ValueError):
        pass
    return None, f"{base} is no MAIL server"
