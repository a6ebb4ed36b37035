"""What the tries of a draft look like in a terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from mail.cli.output import Output, counted, one_line


def show_tries(name: str, tried: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Print a paragraph per task: before and with the draft, what it has cost, and how the answer begins."""
    if not tried:
        output.text("no tasks to try it on")
        return
    width = max(len(name), len("before"))
    for each in tried:
        fork = f" (fork {each['fork_id']})" if each["fork_id"] else ""
        output.text(one_line(f"{each['title'] or each['task_id']}{fork}"), style="bold")
        if each["refused"]:
            output.text(f"  {name:<{width}}  refused: {one_line(each['refused'])}")
            continue
        for title, facts in (("before", each["before"]), (name, each["after"])):
            output.text(f"  {title:<{width}}  {one_line(_in_words(facts))}")
    compared = [each for each in tried if not each["refused"]]
    sums = [_sum([each[side] for each in compared]) for side in ("before", "after")]
    whole = "All" if len(compared) == len(tried) else "The other"
    output.text(f"{whole} {len(compared)}: {sums[0]} before, {sums[1]} with {name}")


def _in_words(facts: Mapping[str, Any]) -> str:
    answer = facts["answer"]
    said = facts["status"] if answer is None else f"{len(answer)} characters: {answer[:200]}"
    return f"{_sum([facts])}; {said}"


def _sum(facts: Sequence[Mapping[str, Any]]) -> str:
    names = ("turns", "calls", "unpriced_calls", "cost", "seconds")
    turns, calls, unpriced, cost, seconds = (sum(each[name] for each in facts) for name in names)
    priced = "price unknown" if calls and unpriced >= calls else f"{'≥ ' if unpriced else ''}${cost:.4g}"
    return f"{counted(turns, 'turn')}, {counted(calls, 'call')}, {priced}, {seconds:.1f} s"
