"""`mail smoke`: what a server must do right after a deployment, from the outside."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict, dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from mail.cli.options import (
    api_key,
    as_json,
    choose_server,
    config_file,
    run,
    server_option,
    server_url,
    timeout,
)
from mail.cli.output import Output, one_line
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.cli.connection import CommandClient

TIMEOUT = 120.0
"""Seconds for each check: a first message may start a function that imports litellm."""

WRONG_KEY = "mail_user_smoke-test-of-a-key-that-nobody-has"


@dataclass(frozen=True, slots=True)
class Check:
    """The result of a check; `problem` is empty if it passed."""

    name: str
    seconds: float
    problem: str = ""


class Failed(MAILError):
    """A check has not passed."""


class Report:
    """The results of checks: for people a line of each as it ends, for programs all of them at the end."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._checks: list[Check] = []

    def add(self, check: Check) -> None:
        """Print the result of a check, or keep it."""
        self._checks.append(check)
        if check.problem:
            shown = f"✗ {check.name}: {check.problem}"
        else:
            shown = f"✓ {check.name} ({check.seconds:.2f} s)"
        if not self._output.as_json:
            self._output.text(shown)

    def end(self, **about: str) -> int:
        """Print what programs read, with what it is `about`; return the exit code."""
        passed = not any(check.problem for check in self._checks)
        if self._output.as_json:
            self._output.result({**about, "passed": passed, "checks": list(map(asdict, self._checks))})
        return int(not passed)


@click.command()
@server_url
@server_option
@click.option(
    "--stream-url",
    metavar="URL",
    help="The URL of event streams, if it is another one: StreamUrl of a deployment on AWS.",
)
@click.option(
    "--message",
    default="ping",
    metavar="TEXT",
    help="The message to send, twice. Language models answer it at your cost.",
)
@api_key
@timeout(default=TIMEOUT, help="Seconds to wait for each answer.")
@config_file
@as_json
def smoke(
    url: str | None,
    server: str | None,
    stream_url: str | None,
    message: str,
    output: Output,
    **connection: Any,
) -> int:
    """Test a server after its deployment.

    Checks its health, keys, an answer, the stored task, and streaming. Exits with 1 after the first check that fails.
    """
    from mail.cli.connection import connect

    server = choose_server(url, server)
    client, streaming = (connect(each, **connection) for each in (server, stream_url or server))
    report = Report(output)

    async def check_all() -> None:
        async with client, streaming:
            async for check in perform(client, streaming, message):
                report.add(check)

    run(check_all())
    return report.end(url=client.base_url)


async def perform(client: "CommandClient", streaming: "CommandClient", message: str) -> AsyncIterator[Check]:
    """Perform the checks one after another; those after a failure would fail for the same reason and are left out."""
    begun: dict[str, Any] = {}

    async def health() -> None:
        found = await client.get_health()
        _expect(found.get("status") == "healthy", f"the swarm is {found.get('status')}")

    async def wrong_key() -> None:
        from mail.client.errors import BadAnswer

        key, client.api_key = client.api_key, WRONG_KEY
        try:
            await client.get_whoami()
        except BadAnswer as refusal:
            _expect(refusal.status == 401, f"a wrong key is answered with {refusal.status}")
        else:
            raise Failed("a wrong key is accepted")
        finally:
            client.api_key = key

    async def key() -> None:
        await client.get_whoami()

    async def answer() -> None:
        from mail.client.messaging import MessageOptions

        begun.update(await client.post(message, MessageOptions()))
        _expect(bool(begun["response"]), "the answer is empty")

    async def task() -> None:
        task_id = begun["events"][-1]["data"]["task_id"]
        found = await client.get_task(task_id)
        _expect(found["status"] in ("completed", "paused"), f"task {task_id} is {found['status']}")
        _expect(len(found["events"]) >= len(begun["events"]), f"task {task_id} lacks events")

    async def stream() -> None:
        from mail.client.messaging import MessageOptions
        from mail.client.stream import TERMINAL

        async with await streaming.post_stream(message, MessageOptions()) as events:
            kinds = [event.event async for event in events]
        _expect(bool(TERMINAL & set(kinds)), "the stream has ended without an answer")

    checks: dict[str, Callable[[], Awaitable[None]]] = {
        "the swarm is healthy": health,
        "a wrong key is refused": wrong_key,
        "your key is accepted": key,
        "a message is answered": answer,
        "its task is stored": task,
        "events are streamed": stream,
    }
    for name, check in checks.items():
        done = await perform_one(name, check)
        yield done
        if done.problem:
            return


async def perform_one(name: str, check: Callable[[], Awaitable[None]]) -> Check:
    """Perform a check, which raises MAILError if it doesn't pass."""
    begin, problem = monotonic(), ""
    try:
        await check()
    except MAILError as error:
        problem = one_line(error.detail)
    return Check(name, round(monotonic() - begin, 3), problem)


def _expect(is_so: bool, problem: str) -> None:
    if not is_so:
        raise Failed(problem)
