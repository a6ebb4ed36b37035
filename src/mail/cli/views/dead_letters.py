"""Dead letters as people read them."""

from collections.abc import Iterable, Mapping
from typing import Any

from mail.cli.output import Output, one_line


def show_letters(letters: Iterable[Mapping[str, Any]], output: Output) -> None:
    """Print a line per dead letter."""
    rows = [
        (
            letter["task_id"],
            str(letter["seq"]),
            letter["task_status"],
            letter["mailbox"],
            str(letter["attempts"]),
            letter["sender"],
            letter["subject"],
            letter["reason"],
            letter["caller"],
        )
        for letter in letters
    ]
    if not rows and output.is_terminal:
        output.text("no dead letters")
        return
    headings = ("task", "seq", "status", "for", "tries", "from", "subject", "reason", "caller")
    output.table(headings, rows)


def show_redriven(answer: Mapping[str, Any], output: Output) -> None:
    """Say which dead letters are processed again, and which are not."""
    for letter in answer["redriven"]:
        how = "waits until the task is resumed" if letter["waits"] else "is processed again"
        output.text(one_line(f"{_name(letter)} for {letter['mailbox']} {how}"))
    _show_rest(answer, len(answer["redriven"]), output)


def show_discarded(answer: Mapping[str, Any], output: Output) -> None:
    """Say which dead letters are off the list, and which are not."""
    for letter in answer["discarded"]:
        output.text(one_line(f"{_name(letter)} is discarded"))
    _show_rest(answer, len(answer["discarded"]), output)


def _show_rest(answer: Mapping[str, Any], done: int, output: Output) -> None:
    for letter in answer["failed"]:
        output.text(one_line(f"{_name(letter)} stays: {letter['reason']}"))
    if not done and not answer["failed"]:
        output.text("no dead letters")


def _name(letter: Mapping[str, Any]) -> str:
    return f"{letter['task_id']} {letter['seq'] or '(all)'}"
