"""What the tries of a draft look like in a terminal."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from mail.cli.output import Output, one_line


def compare(task: Mapping[str, Any], fork: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a task and its fork answered to the same message, with the calls, the cost and the time of each."""
    return {
        "task_id": task["task_id"],
        "title": task["title"],
        "fork_id": fork["task_id"],
        "before": _facts(task),
        "draft": _facts(fork),
        "refused": "",
    }


def refused(task: Mapping[str, Any], fork_id: str | None, refusal: Exception) -> dict[str, Any]:
    """Return what `compare` returns, of a task that the server has not run on the draft."""
    return {
        "task_id": task["task_id"],
        "title": task["title"],
        "fork_id": fork_id,
        "before": _facts(task),
        "draft": None,
        "refused": str(refusal),
    }


def _facts(task: Mapping[str, Any]) -> dict[str, Any]:
    work = [item for item in task["items"] if item["kind"] == "work" and item["ended"]]
    answers = [item["text"] for item in task["items"] if item["kind"] in ("answer", "failed")]
    usage = task["usage"]["total"]
    return {
        "status": task["status"],
        "answer": answers[-1] if answers else None,
        "seconds": _seconds(work[-1]) if work else None,
        "calls": usage["calls"],
        "cost": usage["cost"],
        "unpriced_calls": usage["unpriced_calls"],
    }


def _seconds(work: Mapping[str, Any]) -> float:
    return (datetime.fromisoformat(work["ended"]) - datetime.fromisoformat(work["time"])).total_seconds()


def show_tries(name: str, tried: Sequence[Mapping[str, Any]], output: Output) -> None:
    """Print a paragraph per task: before and with the draft, what it has cost, and how the answer begins."""
    if not tried:
        output.text("no tasks to try it on")
        return
    width = max(len(name), len("before"))
    for each in tried:
        fork = f" (fork {each['fork_id']})" if each["fork_id"] else ""
        output.text(one_line(f"{each['title'] or each['task_id']}{fork}"), style="bold")
        for title, facts in (("before", each["before"]), (name, each["draft"])):
            words = _in_words(facts) if facts else f"refused: {each['refused']}"
            output.text(f"  {title:<{width}}  {one_line(words)}")
    compared = [each for each in tried if not each["refused"]]
    sums = [_sum([each[side] for each in compared]) for side in ("before", "draft")]
    whole = "All" if len(compared) == len(tried) else "The other"
    output.text(f"{whole} {len(compared)}: {sums[0]} before, {sums[1]} with {name}")


def _in_words(facts: Mapping[str, Any]) -> str:
    seconds = "" if facts["seconds"] is None else f", {facts['seconds']:.1f} s"
    answer = facts["answer"]
    said = facts["status"] if answer is None else f"{len(answer)} characters: {answer[:200]}"
    return f"{_sum([facts])}{seconds}; {said}"


def _sum(facts: Sequence[Mapping[str, Any]]) -> str:
    calls, unpriced = (sum(each[name] for each in facts) for name in ("calls", "unpriced_calls"))
    cost = sum(each["cost"] for each in facts)
    priced = "price unknown" if calls and unpriced >= calls else f"{'≥ ' if unpriced else ''}${cost:.4g}"
    return f"{calls} calls, {priced}"
