"""The commands about callers: `mail caller show`, `delete`, `hold`, `release`, `holds`."""

from collections.abc import Mapping, Sequence
from typing import Any

from mail.cli.command import Command, option, positional
from mail.cli.output import Output, one_line

_CALLER = positional("caller", "The caller, such as user:ann.", metavar="CALLER")
_TASK = option("--task", "task_id", metavar="TASK", help="Only this task of the caller.")


def show_caller(answer: Mapping[str, Any], output: Output) -> None:
    """Print how far the deletion of a caller has come, and what is on hold."""
    caller, deletion = answer["caller"], answer["deletion"]
    if deletion is None:
        output.text(f"{caller} is not being deleted")
    elif deletion["ended"]:
        output.text(f"everything of {caller} was deleted at {deletion['ended']}; tasks: {deletion['tasks']}")
    else:
        left = f"; left: {deletion['left']}, such as: {deletion['problem']}" if deletion["left"] else ""
        output.text(one_line(f"{caller} is being deleted; tasks so far: {deletion['tasks']}{left}"))
    if answer["holds"]:
        show_holds(answer["holds"], output)


def show_holds(holds: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Print a line per hold."""
    rows = [
        (hold["caller"], hold["task_id"] or "everything", hold["since"], hold["by"], hold["reason"])
        for hold in holds
    ]
    output.table(("caller", "task", "since", "by", "reason"), rows, none="no holds")


COMMANDS = (
    Command(
        name="caller",
        shell_name="caller show",
        summary="Show how far the deletion of a caller has come, and holds.",
        operation="get_caller",
        view=show_caller,
        arguments=(_CALLER,),
    ),
    Command(
        shell_name="caller delete",
        summary="Delete everything that the server stores about a caller.",
        details="Tasks that run are cancelled. This can't be undone; it resumes after a crash, and mail caller show "
        "says how far it has come.",
        operation="delete_caller",
        view=show_caller,
        arguments=(_CALLER,),
    ),
    Command(
        shell_name="caller hold",
        summary="Keep everything of a caller, or one task, from being deleted.",
        details="Nobody can delete it, and it doesn't expire, until mail caller release.",
        operation="set_hold",
        view=lambda hold, output: show_holds([hold], output),
        arguments=(_CALLER, positional("reason", "The reason, which admins see.", metavar="REASON"), _TASK),
    ),
    Command(
        shell_name="caller release",
        summary="Lift a hold.",
        operation="lift_hold",
        view=lambda answer, output: output.text(
            f"the hold on {answer['task_id'] or answer['caller']} is lifted"
        ),
        arguments=(_CALLER, _TASK),
    ),
    Command(
        name="holds",
        shell_name="caller holds",
        summary="List what nobody may delete.",
        operation="get_holds",
        view=show_holds,
    ),
)
