"""`mail build`: what `sam deploy` uploads for a project that `mail init` has created."""

import click

from mail.cli.options import as_json
from mail.cli.output import Output


@click.command()
@click.option(
    "--architecture",
    type=click.Choice(("x86_64", "arm64")),
    default="x86_64",
    help="The processors of the functions.",
)
@as_json
def build(architecture: str, output: Output) -> None:
    """Collect in .build/ what `sam deploy` uploads.

    That is the swarm in this folder, its modules and its packages.
    """
    from mail.cli.project.bundle import TARGET, make_bundle

    sizes = make_bundle(architecture)
    shown = [*(f"{TARGET / name}  {size / 1e6:.1f} MB" for name, size in sizes.items()), "Next: sam deploy"]
    output.result({"folder": str(TARGET), "bytes": sizes}, lambda: output.text("\n".join(shown)))
