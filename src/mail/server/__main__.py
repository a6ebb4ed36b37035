"""`python -m mail.server`: the same as `mail server`."""

import sys

import typer

from mail.errors import ConfigurationError, MAILError
from mail.server.command import server


def main() -> None:
    """Run the command; exit with 2 for a configuration error and with 1 for any other error of MAIL."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command()(server)
    try:
        app(prog_name="python -m mail.server")
    except MAILError as error:
        print(f"mail: {error.detail}", file=sys.stderr)
        sys.exit(2 if isinstance(error, ConfigurationError) else 1)


if __name__ == "__main__":
    main()
