"""The command line: `mail <command>`. One module per noun.

Exit codes: 0 success; 1 failure; 2 the command line or the configuration is not valid; 130 Ctrl+C; 141 the reader of
the output is gone. For commands that wait for a task: 3 the task has failed, 4 it is paused.
"""

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line (default: this process's), and exit with its exit code."""
    from mail.cli.run import run

    sys.exit(run(arguments))
