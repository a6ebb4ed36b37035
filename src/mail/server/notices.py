"""Notices for the operator of a server: its address, a sign-in link, first steps, and advice."""

import os
import sys
import threading
from contextlib import suppress

from mail import bootstrap
from mail.auth.local_keys import LocalKeys
from mail.auth.tokens import has_first_callers, issue_operator_link, sign_in_url
from mail.config import ServerConfig
from mail.config.database import USUAL_FILE
from mail.config.models import DEFAULT_PORT
from mail.core.engine.documents import ServerDocuments
from mail.core.task.documents import IN_MEMORY
from mail.core.task.swarm import SwarmCore
from mail.server import PROGRAM_VARIABLE
from mail.swarms_json import SwarmSpec


def say(text: str) -> None:
    """Print to the operator's terminal; the log has its own stream."""
    with suppress(BrokenPipeError):
        print(text, flush=True)  # noqa: T201


def ready(
    config: ServerConfig, url: str, host: str, link: str, keys: LocalKeys | None, *, restarts: bool = False
) -> str:
    """Return what a server prints when it listens: its address, first steps, and who can reach it."""
    then = " and restarts when code, swarms.json or mail.toml changes" if restarts else ""
    return (
        f"Swarm {config.swarm.name} listens on {url} (process {os.getpid()}, Ctrl+C stops it){then}"
        f"{_first_steps(url, link, keys)}{_database_note(config)}{_advice(config, host)}"
    )


def _first_steps(url: str, link: str, keys: LocalKeys | None) -> str:
    """Return where the page is, and a first command that works."""
    steps = f"\nOpen {link or f'{url}/ui'}"
    if link:
        steps += "\n(the link works once, within ten minutes; mail ui makes another one)"
    elif keys is not None:
        steps += "\n(mail ui makes a link that signs you in)"
    if keys is not None:
        where = "" if url.endswith(f":{DEFAULT_PORT}") else f" --server {keys.url}"
        mail = os.environ.get(PROGRAM_VARIABLE, "mail")
        steps += f"\nIn another terminal on this machine: {mail} send hello{where}"
    return steps


def _database_note(config: ServerConfig) -> str:
    """Return which file the server has, if it isn't the usual one."""
    storage = config.storage
    usual = storage.database in (USUAL_FILE, IN_MEMORY) or storage.engine != "sqlite"
    return "" if usual else f"\nIts database is {storage.database}"


def _advice(config: ServerConfig, host: str) -> str:
    """Return what the operator should know about who can reach the server, and whom it can reach."""
    if host != config.host:
        return (
            "\nOnly programs on this machine can connect. To accept connections from other machines, "
            f"add --host {config.host}, or set host in mail.toml"
        )
    if config.interswarm.allow_private_addresses != "auto" or bootstrap.may_call_private(config, host):
        return ""
    return (
        f"\nIt is open to the network (host {host}), so it calls no swarms on this machine or in a private network: "
        "for those, set allow_private_addresses = true in [server.interswarm], or use --host 127.0.0.1"
    )


async def look_at_tokens(documents: ServerDocuments, url: str) -> tuple[bool, str]:
    """Return whether commands on this machine get keys, and a sign-in link, if one is printed.

    That is at a terminal, and never in a log.
    """
    link = await sign_in_link(documents, url) if sys.stdout.isatty() else ""
    return await has_first_callers(documents), link


async def sign_in_link(documents: ServerDocuments, url: str) -> str:
    """Make a link for the operator, who can issue tokens of any role."""
    return sign_in_url(url, (await issue_operator_link(documents)).code)


def say_stopped(config: ServerConfig, unfinished: int) -> None:
    """Print what becomes of the tasks that were running when the server stopped."""
    if not unfinished:
        say("Stopped")
        return
    tasks = f"{unfinished} running task{'' if unfinished == 1 else 's'}"
    if config.storage.database == IN_MEMORY:
        say(f"Stopped; {tasks} in memory {'is' if unfinished == 1 else 'are'} lost")
    else:
        say(f"Stopped; {tasks} resume{'s' if unfinished == 1 else ''} at the next start")


def check_in_background(swarm: SwarmCore, entry: SwarmSpec | None) -> None:
    """Print what would keep the agents from working. A thread does it, as it imports litellm for agents with a model.

    The first turn of such an agent needs that import anyway, and no request waits for it.
    """

    def check() -> None:
        from mail.bootstrap.check import check_agents

        for agent in check_agents(swarm, entry):
            for problem in agent.problems:
                say(f"Agent {agent.name!r} can't work yet: {problem}")

    threading.Thread(target=check, name="check", daemon=True).start()
