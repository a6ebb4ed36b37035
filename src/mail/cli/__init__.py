"""The command line: `mail <command>`. One module per command or group; each only translates.

Exit codes: 0 it worked; 1 it did not; 2 the command line or the configuration has to be changed; 130 Ctrl+C; 141
nobody reads the output. Where tasks are asked and watched: 3 the task has failed, 4 it is paused.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (default: this process's) and end the process with its exit code."""
    from mail.cli.app import run

    sys.exit(run(arguments))
