"""`mail local-aws`: the deployed shape on this machine, without Docker and without an account."""

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mail.local_aws.system import LocalAws

TEMPLATE = Path("template.yaml")
BUILT = Path(".aws-sam", "build", "template.yaml")


def local_aws(
    template: Annotated[Path, typer.Option(help="The template to deploy.")] = TEMPLATE,
    built: Annotated[
        bool, typer.Option("--built", help=f"Run what `sam build` has built: deploy {BUILT.as_posix()}.")
    ] = False,
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", metavar="NAME=VALUE", help="A parameter of the template."),
    ] = None,
    environment: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME[=VALUE]",
            help="A variable for all functions, by default with its value here.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the HTTP API. 0 picks a free one.")] = 8000,
    stream_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of the function that streams. 0 picks a free one.")
    ] = 8001,
    concurrency: Annotated[int, typer.Option(min=1, help="Invocations by one queue at once, at most.")] = 4,
    logs: Annotated[Path | None, typer.Option(help="The folder for the functions' logs.")] = None,
) -> None:
    """Run the functions of a template on this machine, with ministack for the services of AWS. Ctrl+C ends it all.

    It keeps everything in memory and needs neither Docker nor an account. The code is that of this installation,
    or what `sam build` has made of it (--built).
    """
    from mail.local_aws.system import LocalAws

    system = LocalAws(
        BUILT if built else template,
        parameters=dict(_pair(text, "--parameter") for text in parameter or ()),
        environment=dict(_variable(text) for text in environment or ()),
        port=port,
        stream_port=stream_port,
        concurrency=concurrency,
        logs=logs,
    )
    asyncio.run(_run(system))


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE", param_hint=option)
    return name, value


def _variable(text: str) -> tuple[str, str]:
    if "=" in text:
        return _pair(text, "--env")
    value = os.environ.get(text)
    if value is None:
        raise typer.BadParameter(f"{text} has no value here; write {text}=VALUE", param_hint="--env")
    return text, value


async def _run(system: "LocalAws") -> None:
    """Run it until somebody says stop, whether it has started yet or not."""
    task = asyncio.current_task()
    assert task is not None
    stopping: list[bool] = []

    def stop() -> None:
        if not stopping:  # to say it twice must not keep it from cleaning up
            stopping.append(True)
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop)
    try:
        async with system:
            typer.echo(_describe(system))
            await asyncio.Event().wait()
    except asyncio.CancelledError:
        if not stopping:
            raise


def _describe(system: "LocalAws") -> str:
    """What one needs to know to use it."""
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
    return "\n".join([*lines, "Ctrl+C ends it, and all it holds is gone."])
