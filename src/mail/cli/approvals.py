"""The commands about calls that wait for a decision: `mail approvals list`, `show`, `approve`, `answer`, `reject`."""

from collections import Counter
from collections.abc import Mapping
from typing import Any, Literal

from mail.cli.command import Command, Handler, Namespace, option, positional
from mail.cli.output import Output, one_line
from mail.cli.session import Session, short_approval
from mail.cli.values import JSON, Approval, json_object


async def list_needs(session: Session, _: Namespace) -> None:
    """Print a line for each call that waits, and for each task that needs its owner."""
    needs = await session.client.get_needs()
    for each in needs["tasks"]:
        session.memory.add_task(each["task"]["task_id"])
    session.output.result(needs, lambda: show_needs(needs, session.output))


def show_needs(needs: Mapping[str, Any], output: Output) -> None:
    """Print calls and tasks as tables."""
    tasks = [
        (
            output.id(each["task"]["task_id"]),
            _NEEDS[each["need"]],
            output.time(each["task"]["updated"]),
            one_line(each["task"]["question"] or each["reason"] or each["task"]["title"] or ""),
        )
        for each in needs["tasks"]
    ]
    if needs["approvals"] or not tasks:
        show_approvals(needs["approvals"], output)
    if tasks:
        output.table(("task", "needs you", "since", "what"), tasks, none="")


def show_approvals(answer: list[Mapping[str, Any]], output: Output) -> None:
    """Print a line for each call that waits; on a terminal with a short form of its id, if no other has the same."""
    short = Counter(short_approval(each["id"]) for each in answer)
    rows = [
        (
            _shown_id(each["id"], short, output),
            "you" if each["can_decide"] else ", ".join(each["reviewers"]),
            output.time(each["decide_by"] or ""),
            _in_words(each),
        )
        for each in answer
    ]
    columns = ("id", "decides", "decide by", "what")
    output.table(columns, rows, none="nothing waits for a decision")


def _shown_id(approval_id: str, known: Mapping[str, int], output: Output) -> str:
    short = short_approval(approval_id)
    return short if output.is_terminal and known[short] == 1 else approval_id


def _in_words(call: Mapping[str, Any]) -> str:
    from mail.core.protocol.question_text import describe_call, describe_question

    who, name, arguments = call["agent"], call["name"], call["arguments"]
    describe = describe_call if call["needs_approval"] else describe_question
    return one_line(describe(who, name, arguments))


def show_approval(answer: Mapping[str, Any], output: Output) -> None:
    """Print a call with its arguments, as JSON in ASCII in which nothing is hidden."""
    wants = "wants to call" if answer["needs_approval"] else "asks with"
    output.text(f"{answer['agent']} {wants} {answer['name']} for {answer['requested_by']}:")
    if answer["needs_approval"] and answer["question"]:
        output.text(f"  {one_line(answer['question'])}")
    output.text(f"  {answer['arguments_text']}")
    output.text(f"  SHA-256 {answer['arguments_sha256']}")
    output.text(f"  asked {answer['asked']}, decide by {answer['decide_by'] or 'any time'}")
    if not answer["can_decide"]:
        output.text(f"  You can't decide; it waits for: {', '.join(answer['reviewers'])}")


def _decide(decision: Literal["approve", "answer", "reject"]) -> Handler:
    """Return what makes a decision on the arguments that the server has now, or on those of `--sha256` only."""

    async def decide(session: Session, given: Namespace) -> None:
        call = await session.client.get_approval(given.approval_id)
        edited = getattr(given, "arguments", None)
        answer = await session.client.decide_approval(
            given.approval_id,
            decision if edited is None else "edit",
            arguments=edited,
            reason=getattr(given, "reason", ""),
            answer=getattr(given, "answer", ""),
            arguments_sha256=given.sha256 or call["arguments_sha256"],
        )
        said = f"{answer['decision']}: {call['name']} with {call['arguments_text']}"
        session.output.result(answer, lambda: session.output.text(said))

    return decide


_NEEDS = {
    "question": "asks you",
    "dead_letters": "has dead letters",
    "failure": "has failed",
    "others": "waits for others",
}

_ID = positional(
    "approval_id",
    "The id of the approval, its short form, or its first 12 characters or more.",
    metavar="ID",
    type=Approval(),
)
_SHA256 = option(
    "--sha256", help="The SHA-256 of the arguments that you have seen; for others, nothing is decided."
)

COMMANDS = (
    Command(
        name="approvals",
        shell_name="approvals list",
        summary="List the approvals, questions and failures that wait for you.",
        handler=list_needs,
    ),
    Command(
        name="approval",
        shell_name="approvals show",
        summary="Show a call that waits for a decision.",
        operation="get_approval",
        view=show_approval,
        arguments=(_ID,),
    ),
    Command(
        shell_name="approvals approve",
        summary="Approve a call, so that it runs.",
        handler=_decide("approve"),
        arguments=(
            _ID,
            option("--arguments", help="A JSON object to call it with instead.", type=JSON(json_object)),
            option("--reason", help="Why, for the record.", default=""),
            _SHA256,
        ),
    ),
    Command(
        shell_name="approvals answer",
        summary="Answer the question of a call.",
        handler=_decide("answer"),
        arguments=(_ID, positional("answer", "The answer, for the agent to read.", metavar="TEXT"), _SHA256),
    ),
    Command(
        shell_name="approvals reject",
        summary="Reject a call, so that it does not run.",
        handler=_decide("reject"),
        arguments=(_ID, option("--reason", help="Why; the agent reads it.", default=""), _SHA256),
    ),
)
