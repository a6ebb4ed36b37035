#!/usr/bin/env python3
"""Two servers whose swarms help each other: one knows the weather, the other arithmetic, and a question needs both.

    python scripts/multi_swarm_demo.py "weather in Oslo tomorrow and 12*(3+4)"

Needs no keys and leaves nothing behind: the databases lie in a temporary folder, the ports are free ones of this
machine, and the servers end with the script.
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import environment  # noqa: F401  # first: it checks that MAIL is installed

from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.bootstrap import local
from mail.client import MAILClient
from mail.config import ServerConfig
from mail.server.process import serving
from mail.swarms_json.utils import PACKAGED_SOURCE

QUESTION = "weather in Oslo tomorrow and 12*(3+4)"
SWARMS = ("swarm-alpha", "swarm-beta")


@asynccontextmanager
async def running_server(folder: Path, name: str) -> AsyncIterator[tuple[str, dict[str, str]]]:
    """One of the swarms behind HTTP; gives the URL, and a token for a user, an admin and each other swarm."""
    defaults = ServerConfig.model_validate({})
    config = defaults.with_overrides(
        host="127.0.0.1",
        database=str(folder / f"{name}.db"),
        swarm_name=name,
        swarm_source=str(PACKAGED_SOURCE),
        swarm_registry=str(folder / f"{name}.json"),
    )
    system = local(config, environ={})
    callers = [
        Caller("user", "ann"),
        Caller("admin", "root"),
        *(Caller("agent", other) for other in SWARMS if other != name),
    ]
    tokens = {caller.id: await issue_token(system.documents, caller) for caller in callers}
    async with serving(system) as url:
        yield url, tokens


async def introduce(url: str, admin: str, peer: str, peer_url: str, token: str) -> None:
    """Tell a server of another one, and with which token to call it."""
    async with MAILClient(url, api_key=admin) as client:
        await client.register_swarm(peer, peer_url, auth_token=token, volatile=True)
        print(f"{url} knows {peer} at {peer_url}")


async def ask(name: str, url: str, user: str, question: str) -> None:
    """Ask one of the swarms, and watch the mail that it sends and gets."""
    print(f"\n--- {name} is asked: {question}")
    async with MAILClient(url, api_key=user) as client:
        async for event in await client.post_message_stream(question):
            data = json.loads(str(event.data))
            message = data.get("extra_data", {}).get("full_message")
            if message is not None:
                letter = message["message"]
                recipients = letter.get("recipients") or [letter["recipient"]]
                names = ", ".join(recipient["address"] for recipient in recipients)
                print(f"  {letter['sender']['address']} → {names}: {letter['body']}")
            elif event.event == "task_complete":
                print(f"  Answer: {data['response']}")


async def main(question: str) -> None:
    """Start both, make them known to each other, and ask each."""
    alpha, beta = SWARMS
    with tempfile.TemporaryDirectory(prefix="mail-demo-swarms-") as name:
        folder = Path(name)
        async with (
            running_server(folder, alpha) as (alpha_url, of_alpha),
            running_server(folder, beta) as (beta_url, of_beta),
        ):
            await introduce(alpha_url, of_alpha["root"], beta, beta_url, of_beta[alpha])
            await introduce(beta_url, of_beta["root"], alpha, alpha_url, of_alpha[beta])
            await ask(alpha, alpha_url, of_alpha["ann"], question)
            await ask(beta, beta_url, of_beta["ann"], question)


if __name__ == "__main__":
    asyncio.run(main(" ".join(sys.argv[1:]) or QUESTION))
