"""What tasks have cost, as people ask for it and read it."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from mail.cli.output import Output
from mail.errors import ConfigurationError

if TYPE_CHECKING:
    from mail.client import MAILClient

_AGO = re.compile(r"(\d{1,4})([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class By(StrEnum):
    """What is told apart; each line of what is shown is one of them."""

    AGENT = "agent"
    MODEL = "model"
    CALLER = "caller"
    TASK = "task"


def read_moment(text: str | None, flag: str, now: datetime) -> str | None:
    """`7d`, `12h`, `30m` and `2w` as that long before `now`; a time in ISO 8601 as it is, for the server to read.

    Raises ConfigurationError for what is neither.
    """
    if text is None:
        return None
    if ago := _AGO.fullmatch(text):
        return (now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).isoformat()
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{flag}: {text!r} is no time; write how long ago (30m, 12h, 7d, 2w), or a date or time in ISO 8601, such "
            "as 2026-01-31 or 2026-01-31T08:00:00Z"
        ) from None
    return text


async def ask_usage(
    client: "MAILClient",
    by: By,
    *,
    task_id: str | None,
    caller: str | None,
    since: str | None,
    until: str | None,
) -> dict[str, Any]:
    """`GET /usage`, to its end. Raises ConfigurationError for what is no time."""
    now = datetime.now(UTC)
    return await client.get_usage(
        task_id=task_id,
        caller=caller,
        since=read_moment(since, "--since", now),
        until=read_moment(until, "--until", now),
        per_task=by is By.TASK,
    )


def show_usage(answer: Mapping[str, Any], by: By, output: Output) -> None:
    """Print a line for each agent (or model, …), the dearest first, and one for all of them."""
    total = answer["total"]
    lines = sorted(_lines(answer, by), key=lambda line: (-line[1]["cost"], -_tokens(line[1]), line[0]))
    if not lines and output.is_terminal:
        output.text(f"{_counted(answer['tasks'], 'task')}, and no calls of models")
        return
    headings = (by.value, "calls", "tokens in", "cached", "tokens out", "USD", "unpriced")
    output.table(headings, [_cells(name, usage) for name, usage in (*lines, ("all", total))])
    if output.is_terminal:
        unpriced = total["unpriced_calls"]
        missing = (
            f"; {_counted(unpriced, 'call')} of models without a known price not included" if unpriced else ""
        )
        output.text(f"{_counted(answer['tasks'], 'task')}{missing}", style="dim")


def _lines(answer: Mapping[str, Any], by: By) -> Iterable[tuple[str, Mapping[str, Any]]]:
    if by is By.TASK:
        return [(each["task_id"], each["usage"]) for each in answer["per_task"]]
    return list(answer[f"{by.value}s"].items())


def _cells(name: str, usage: Mapping[str, Any]) -> tuple[str, ...]:
    counts = ("calls", "input_tokens", "cached_tokens", "output_tokens")
    return (
        name,
        *(str(usage[count]) for count in counts),
        f"{usage['cost']:.4f}",
        str(usage["unpriced_calls"]),
    )


def _tokens(usage: Mapping[str, Any]) -> int:
    return int(usage["input_tokens"] + usage["output_tokens"])


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
