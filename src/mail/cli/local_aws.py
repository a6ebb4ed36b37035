"""`mail local-aws`: the AWS deployment on this machine, without Docker and without an account."""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mail.cli.options import run
from mail.cli.output import Output
from mail.cli.values import Integer

if TYPE_CHECKING:
    from mail.local_aws.system import LocalAws

TEMPLATE = Path("template.yaml")
BUILT = Path(".aws-sam", "build", "template.yaml")

PORT = Integer(min=0, max=65535)


@click.command()
@click.option(
    "--template",
    type=click.Path(path_type=Path),
    default=TEMPLATE,
    metavar="FILE",
    help="The template to deploy.",
)
@click.option("--built", is_flag=True, help=f"Deploy the output of `sam build`: {BUILT.as_posix()}.")
@click.option("--parameter", multiple=True, metavar="NAME=VALUE", help="A parameter of the template.")
@click.option(
    "--env",
    "environment",
    multiple=True,
    metavar="NAME[=VALUE]",
    help="An environment variable of all functions; without VALUE, with its current value.",
)
@click.option(
    "--port", type=PORT, default=8000, metavar="PORT", help="The port of the HTTP API; 0 picks a free one."
)
@click.option(
    "--stream-port",
    type=PORT,
    default=8001,
    metavar="PORT",
    help="The port of the streaming function; 0 picks a free one.",
)
@click.option(
    "--concurrency",
    type=Integer(min=1),
    default=4,
    metavar="NUMBER",
    help="The number of concurrent invocations per queue, at most.",
)
@click.option(
    "--logs", type=click.Path(path_type=Path), metavar="FOLDER", help="The folder for the functions' logs."
)
def local_aws(
    template: Path,
    built: bool,
    parameter: tuple[str, ...],
    environment: tuple[str, ...],
    port: int,
    stream_port: int,
    concurrency: int,
    logs: Path | None,
) -> None:
    """Run the AWS deployment on this machine.

    ministack stands in for the services of AWS. Ctrl+C stops everything. It stores everything in memory, and needs
    neither Docker nor an account. It runs the code of this installation, or the output of `sam build` (--built).
    """
    from mail.local_aws.system import LocalAws

    system = LocalAws(
        BUILT if built else template,
        parameters=dict(pair(text, "--parameter") for text in parameter),
        environment=dict(_variable(text) for text in environment),
        port=port,
        stream_port=stream_port,
        concurrency=concurrency,
        logs=logs,
    )
    run(_run(system))


def pair(text: str, option: str) -> tuple[str, str]:
    """Return the name and the value that an option gives. Raises click.BadParameter."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise click.BadParameter(f"{text!r} is not of the form NAME=VALUE", param_hint=option)
    return name, value


def _variable(text: str) -> tuple[str, str]:
    if "=" in text:
        return pair(text, "--env")
    value = os.environ.get(text)
    if value is None:
        raise click.BadParameter(f"{text} is not set; write {text}=VALUE", param_hint="--env")
    return text, value


async def _run(system: "LocalAws") -> None:
    """Run the system until a signal stops it, even while it starts."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    stopping: list[bool] = []

    def stop() -> None:
        if not stopping:  # a second signal must not interrupt the cleanup
            stopping.append(True)
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        async with system:
            Output(sys.stdout).write(_describe(system))
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        if not stopping:
            raise


def _describe(system: "LocalAws") -> str:
    """Return the addresses and tokens of the system as text."""
    lines = [
        f"The HTTP API listens on {system.url}",
        f"The function that streams listens on {system.stream_url}",
        *(f"The URL of {name} listens on {url}" for name, url in sorted(system.urls.items())),
        f"Functions log to {system.log_folder}",
        f"Tables and queues: export AWS_ENDPOINT_URL={system.endpoint}",
        "",
    ]
    if system.tokens:
        lines += [f"  {role:<6} {token}" for role, token in system.tokens.items()]
        lines += ["", "Send one as 'Authorization: Bearer <token>'.", ""]
    return "\n".join([*lines, "Ctrl+C stops it and discards all data."])
