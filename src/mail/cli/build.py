"""`mail build`: what `sam deploy` uploads for a project that `mail init` has created."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from mail.cli.options import AsJson
from mail.cli.output import Output


class Architecture(StrEnum):
    """The processors of the functions."""

    X86_64 = "x86_64"
    ARM64 = "arm64"


def build(
    architecture: Annotated[
        Architecture, typer.Option(help="The processors of the functions.")
    ] = Architecture.X86_64,
    as_json: AsJson = False,
) -> None:
    """Collect in .build/ what `sam deploy` uploads.

    That is the swarm in this folder, its modules and its packages.
    """
    from mail.cli.project.bundle import TARGET, make_bundle

    sizes = make_bundle(architecture)
    output = Output(sys.stdout, as_json)
    shown = [*(f"{TARGET / name}  {size / 1e6:.1f} MB" for name, size in sizes.items()), "Next: sam deploy"]
    output.result({"folder": str(TARGET), "bytes": sizes}, lambda: output.text("\n".join(shown)))
