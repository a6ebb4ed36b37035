"""`mail version`."""

import click

import mail
from mail.cli.options import as_json
from mail.cli.output import Output


@click.command()
@as_json
def version(output: Output) -> None:
    """Print the versions of MAIL and of the protocol."""
    versions = {"implementation": mail.__version__, "protocol": mail.PROTOCOL_VERSION}
    text = "\n".join(f"MAIL {name} {number}" for name, number in versions.items())
    output.result(versions, lambda: output.text(text))
