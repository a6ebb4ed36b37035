"""`mail worker`: runs the turns of a deployment on AWS in a long-lived process."""

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mail import startup
from mail.cli.options import config_file
from mail.cli.values import Integer, Number
from mail.errors import ConfigurationError

if TYPE_CHECKING:
    import asyncio

    from mail.adapters.aws.worker import SQSWorker
    from mail.bootstrap.system import AwsSystem

CONCURRENCY = 1000

REPORT_SECONDS = 60.0
"""Seconds between two reports of the number of running turns, by which worker.yaml scales."""

GRACE_SECONDS = 100.0
"""ECS kills a container 120 seconds after it has asked it to stop."""


@click.command()
@click.option(
    "--stack",
    metavar="NAME",
    help="The deployed stack whose table and queues are used. [default: those of MAIL_TABLE, MAIL_TURN_QUEUES, …]",
)
@click.option("--table", metavar="NAME", help="The table, in place of that of the stack or of MAIL_TABLE.")
@click.option("--bucket", metavar="NAME", help="The bucket, in place of that of the stack or of MAIL_BUCKET.")
@click.option(
    "--turn-queues",
    metavar="URLS",
    help="The URLs of the five queues of turns, by tier, separated by commas, in place of MAIL_TURN_QUEUES.",
)
@click.option(
    "--delivery-queue",
    metavar="URL",
    help="The URL of the queue of deliveries, in place of MAIL_DELIVERY_QUEUE.",
)
@click.option(
    "--concurrency",
    type=Integer(min=5),
    default=CONCURRENCY,
    metavar="NUMBER",
    help=f"The number of turns at once, at most. [default: {CONCURRENCY}]",
)
@click.option(
    "--grace",
    type=Number(min=0.0),
    default=GRACE_SECONDS,
    metavar="SECONDS",
    help="Seconds that running turns have after SIGTERM; other workers resume the rest. "
    f"[default: {GRACE_SECONDS:g}]",
)
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", help="The address for --port.")
@click.option(
    "--port",
    type=Integer(min=0, max=65535),
    metavar="PORT",
    help="Answer GET /live on this port, for the health check of a container. [default: none]",
)
@config_file
def worker(
    stack: str | None,
    concurrency: int,
    grace: float,
    host: str,
    port: int | None,
    config: Path | None,
    **resources: str | None,
) -> None:
    """Run the turns of a deployment on AWS in this process, beside its functions or in place of them.

    It takes wake-ups from the queues of the stack and runs their turns on its table, with the swarm and the packages of
    this machine. SIGTERM stops it. docs/workers.md tells how to run it on Fargate.
    """
    startup.begin()
    import asyncio

    from mail import bootstrap
    from mail.config.aws import AwsConfig
    from mail.core.protocol.error_text import missing_package
    from mail.server.logs import set_up_logging

    if config is not None:
        os.environ["MAIL_CONFIG_PATH"] = str(config)
    try:
        if stack is not None:
            os.environ.update(bootstrap.read_stack(stack))
        os.environ.update({f"MAIL_{name.upper()}": given for name, given in resources.items() if given})
        if not os.environ.get("MAIL_TABLE") or not os.environ.get("MAIL_TURN_QUEUES"):
            raise click.UsageError("name the deployment with --stack, or give --table and --turn-queues")
        bootstrap.TurnSecrets().read()
        settings = AwsConfig.from_environ()
        set_up_logging(settings.server)
        system, made = bootstrap.worker(settings, concurrency=concurrency)
    except ImportError as error:
        raise ConfigurationError(f"mail worker needs {missing_package(error)}") from error
    startup.end()
    asyncio.run(_run(system, made, grace, None if port is None else (host, port)))


async def _run(
    system: "AwsSystem", worker: "SQSWorker", grace: float, address: tuple[str, int] | None
) -> None:
    """Run the worker until a signal stops it."""
    import asyncio
    from contextlib import AsyncExitStack

    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    async with AsyncExitStack() as resources:
        resources.push_async_callback(system.stop)
        if address is not None:
            await resources.enter_async_context(await _serve_live(*address, worker))
        if system.config.telemetry.log_format == "json":
            resources.callback(asyncio.create_task(_report(worker)).cancel)
        await worker.run(stopping, grace)


async def _report(worker: "SQSWorker") -> None:
    """Write the number of running turns as a metric, over and over."""
    import asyncio

    from mail.bootstrap import write_metrics

    while True:
        write_metrics({"RunningTurns": worker.running})
        await asyncio.sleep(REPORT_SECONDS)


async def _serve_live(host: str, port: int, worker: "SQSWorker") -> "asyncio.Server":
    """Answer any request with the number of running turns: an event loop that answers renews its leases."""
    import asyncio

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                await reader.readuntil(b"\r\n\r\n")
                body = b'{"status":"ok","running":%d}' % worker.running
                head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
                writer.write(b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body))
                await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    try:
        return await asyncio.start_server(answer, host, port)
    except OSError as error:
        raise ConfigurationError(f"can't listen on {host}:{port}: {error.strerror}") from error
