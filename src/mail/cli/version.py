"""`mail version`."""

import json

import typer

import mail
from mail.cli.options import AsJson


def version(as_json: AsJson = False) -> None:
    """Print the version of this implementation and of the protocol it speaks."""
    versions = {"implementation": mail.__version__, "protocol": mail.PROTOCOL_VERSION}
    if as_json:
        typer.echo(json.dumps(versions))
    else:
        typer.echo(f"MAIL implementation {versions['implementation']}")
        typer.echo(f"MAIL protocol {versions['protocol']}")
