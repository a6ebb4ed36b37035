"""`python -m mail.server`, the same as `mail server`; the server is imported when the command runs."""

import sys
from pathlib import Path
from typing import Any

import click

from mail import startup
from mail.errors import ConfigurationError, MAILError


@click.command()
@click.option("--host", metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="PORT", help="The port to listen on; 0 picks a free one."
)
@click.option(
    "--reload/--no-reload", default=None, help="Restart when code, swarms.json or mail.toml changes."
)
@click.option("--debug/--no-debug", default=None, help="Log more, and serve the debugging endpoints.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The configuration file. [default: $MAIL_CONFIG_PATH, or mail.toml]",
)
@click.option("--swarm-name", metavar="NAME", help="The swarm to run.")
@click.option(
    "--swarm-source", metavar="SOURCE", help="The swarms.json file that defines it, or python::module:name."
)
@click.option("--swarm-registry", metavar="FILE", help="The file that lists the known swarms.")
@click.option(
    "--print-llm-streams",
    type=click.Choice(("true", "false")),
    help="Print the models' output streams to this server's console.",
)
@click.option(
    "--database",
    metavar="DATABASE",
    help="The task database: a path, sqlite:///path, none, postgresql://user@host/database "
    "or dynamodb://table. [default: as configured]",
)
@click.option(
    "--check/--no-check", default=True, help="Report missing packages, keys and models after the start."
)
def server(config: Path | None, check: bool, print_llm_streams: str | None, **flags: Any) -> None:
    """Run a swarm behind HTTP. Flags override the configuration file, which overrides the defaults."""
    startup.begin()  # `serve` ends it when the server is ready
    from mail.server.process import serve

    flags["print_llm_streams"] = None if print_llm_streams is None else print_llm_streams == "true"
    serve(config, {name: value for name, value in flags.items() if value is not None}, checks=check)


def main() -> None:
    """Run the command; exit with 2 for a configuration error and with 1 for any other error of MAIL."""
    try:
        server.main(prog_name="python -m mail.server")
    except MAILError as error:
        print(f"mail: {error.detail}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)


if __name__ == "__main__":
    main()
