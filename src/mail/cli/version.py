"""`mail version`."""

import sys

import click

import mail
from mail.cli.options import as_json
from mail.cli.output import Output


@click.command()
@as_json
def version(as_json: bool) -> None:
    """Print the versions of MAIL and of the protocol."""
    versions = {"implementation": mail.__version__, "protocol": mail.PROTOCOL_VERSION}
    text = "\n".join(f"MAIL {name} {number}" for name, number in versions.items())
    output = Output(sys.stdout, as_json)
    output.result(versions, lambda: output.text(text))
