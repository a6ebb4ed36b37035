"""The commands that finish calls of actions: `mail action finish`, `fail`, `report`."""

from collections.abc import Mapping
from typing import Any

from mail.cli.command import Command, positional
from mail.cli.output import Output

_TOKEN = positional("token", "The token of the call, which its action has had as ctx.callback.token.")


def _show(answer: Mapping[str, Any], output: Output) -> None:
    """Print what has become of the call, and until when it must be heard of again."""
    due = answer["due"]
    output.text(answer["status"] if due is None else f"{answer['status']}, due by {due}")


COMMANDS = (
    Command(
        shell_name="action finish",
        summary="Finish a call of an action that finishes later.",
        details="Its agent reads the result as a message. The same result again changes nothing.",
        operation="post_callback",
        view=_show,
        arguments=(_TOKEN, positional("result", "The result, as text.")),
    ),
    Command(
        shell_name="action fail",
        summary="Fail a call of an action that finishes later.",
        operation="post_callback",
        view=_show,
        arguments=(_TOKEN, positional("error", "Why the work failed; the agent reads it.", metavar="REASON")),
    ),
    Command(
        shell_name="action report",
        summary="Report that the work of a call has not ended.",
        operation="post_callback",
        view=_show,
        arguments=(_TOKEN, positional("progress", "How far the work has come.")),
    ),
)
