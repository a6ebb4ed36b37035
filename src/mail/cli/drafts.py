"""The commands `mail draft …`, about drafts of the swarm."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from mail.cli.command import Command, Namespace, option, positional, says
from mail.cli.output import Output, one_line
from mail.cli.session import Session, Status
from mail.cli.tasks import FILTERS, find_tasks
from mail.cli.values import JSON, Agent, Integer, json_text, texts
from mail.errors import BadRequest

_STATES = {"": "", "applied": "new tasks use it", "outdated": "published for an earlier version"}


def show_drafts(answer: list[Mapping[str, Any]], output: Output) -> None:
    """Print a line per draft: which agents it changes, and whether new tasks use it."""
    rows = [
        (
            each["name"],
            ", ".join(each["agents"]),
            each["by"],
            each["at"],
            "yes" if each["is_current"] else "no, save it again",
            _STATES[each["published"]],
        )
        for each in answer
    ]
    output.table(("name", "changes", "saved by", "at", "can be tried", "published"), rows, none="no drafts")


def show_draft(answer: Mapping[str, Any], output: Output) -> None:
    """Print how the swarm differs with a draft."""
    state = _STATES[answer["published"]]
    output.text(
        one_line(f"{answer['name']}, saved by {answer['by']} at {answer['at']}; {state}".rstrip("; "))
    )
    output.text(answer["differences"] or "the swarm that runs can't take these changes, or has them already")


async def _save(session: Session, given: Namespace) -> None:
    """Change one agent of a draft, which the server may not have yet."""
    drafts = {each["name"] for each in await session.client.get_swarm_drafts()}
    draft = await session.client.get_swarm_draft(given.name) if given.name in drafts else {}
    known, testers = draft.get("changes", {}), given.testers or draft.get("testers", [])
    before = known.get(given.agent, {})
    changes = {"system": given.system, "llm": given.llm, "actions": given.actions}
    changed = before | {name: each for name, each in changes.items() if each is not None}
    if given.options:
        changed["options"] = before.get("options", {}) | dict(given.options)
    answer = await session.client.save_swarm_draft(given.name, {**known, given.agent: changed}, testers)
    session.output.result(answer, lambda: show_draft(answer, session.output))


async def _undo(session: Session, given: Namespace) -> None:
    """Save the revision before the latest again, as the latest. Raises BadRequest if there is none."""
    revisions = (await session.client.get_swarm_draft(given.name))["revisions"]
    if len(revisions) < 2:
        raise BadRequest(f"draft {given.name!r} has no earlier revision that is kept")
    before = revisions[-2]
    answer = await session.client.save_swarm_draft(given.name, before["agents"], before.get("testers", ()))
    session.output.result(answer, lambda: show_draft(answer, session.output))


async def _try(session: Session, given: Namespace) -> int:
    """Run the last message of tasks again on a draft, some at a time, and compare the answers. Raises MAILError.

    If the server refuses some of them, the others are compared, and it returns 1.
    """
    import asyncio

    from mail.cli.views.drafts import show_tries
    from mail.client.errors import BadAnswer

    client, free = session.client, asyncio.Semaphore(AT_ONCE)
    titles = {await session.find_task(task): None for task in given.tasks} or {
        task_id: task["title"]
        for task_id, task in (await find_tasks(session, given, Status.COMPLETED, forks=False)).items()
    }
    refusals: list[BadAnswer] = []

    async def run(task_id: str, title: str | None) -> dict[str, Any]:
        fork_id = None
        try:
            async with free:
                fork = await client.fork_task(
                    task_id, "message", run=True, actions=given.actions, draft=given.name
                )
                fork_id = fork["task_id"]
                while (await client.get_task(fork_id, summary=True))["status"] == Status.RUNNING:  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)
                return {**await client.get_comparison(fork_id), "refused": ""}
        except BadAnswer as refusal:
            refusals.append(refusal)
            return {"task_id": task_id, "fork_id": fork_id, "title": title, "refused": str(refusal)}

    tried = await asyncio.gather(*(run(*task) for task in titles.items()))
    if refusals and len(refusals) == len(titles):
        raise refusals[0]
    session.output.result(tried, lambda: show_tries(given.name, tried, session.output))
    return int(bool(refusals))


AT_ONCE = 4
"""Tasks that run on a draft at the same time."""

POLL_SECONDS = 0.5


def _options(
    context: click.Context, parameter: click.Parameter, given: Sequence[str]
) -> list[tuple[str, Any]]:
    """Return the options of `NAME=VALUE`, where a value is JSON or a word."""
    from mail.cli.values import any_json

    found = []
    for each in given:
        name, is_pair, value = each.partition("=")
        if not is_pair:
            raise click.BadParameter(f"{each!r} is not NAME=VALUE, such as temperature=0.2")
        try:
            found.append((name, any_json(value)))
        except click.BadParameter:
            found.append((name, value))
    return found


_NAME = positional("name", "The name of the draft.")

COMMANDS = (
    Command(
        name="drafts",
        shell_name="draft list",
        summary="List the drafts of the swarm (admin).",
        operation="get_swarm_drafts",
        view=show_drafts,
    ),
    Command(
        name="draft",
        shell_name="draft show",
        summary="Show what a draft changes, as a diff (admin).",
        details="With --json, also its earlier revisions, and the whole entry of swarms.json with its changes.",
        operation="get_swarm_draft",
        view=show_draft,
        arguments=(_NAME,),
    ),
    Command(
        shell_name="draft save",
        summary="Change an agent in a draft of the swarm (admin).",
        details="Try it with mail task fork TASK --at ID --run --draft NAME.",
        handler=_save,
        arguments=(
            positional("name", "The name of the draft, new or not."),
            positional("agent", "The agent to change.", type=Agent()),
            option(
                "--system",
                help="Its system prompt, or @file. What MAIL adds to it stays.",
                type=JSON(json_text),
            ),
            option("--llm", help="Its model, by its name in litellm.", metavar="MODEL"),
            option(
                "--option",
                "options",
                metavar="NAME=VALUE",
                help="An option of its model calls, such as temperature=0.2. May be repeated.",
                multiple=True,
                callback=_options,
            ),
            option(
                "--actions",
                help="The swarm's actions that it may call: one, or a JSON list.",
                type=JSON(texts),
            ),
            option(
                "--tester",
                "testers",
                metavar="CALLER",
                help="Who may try it besides admins, such as user:ann. May be repeated.",
                multiple=True,
            ),
        ),
    ),
    Command(
        shell_name="draft undo",
        summary="Save the revision of a draft before the latest again (admin).",
        details="Another undo restores the latest.",
        handler=_undo,
        arguments=(_NAME,),
    ),
    Command(
        shell_name="draft try",
        summary="Run tasks again on a draft, and compare the answers.",
        details="Each task is forked as it was after its last message; the tasks themselves stay as they are. Without "
        "tasks, it takes your last completed ones that match, except forks.",
        handler=_try,
        arguments=(
            _NAME,
            positional(
                "tasks",
                "The tasks. [default: your last completed ones]",
                metavar="TASK",
                nargs=-1,
                required=False,
            ),
            *FILTERS,
            option("--limit", type=Integer(1, 50), help="Without tasks: their number, at most.", default=10),
            option(
                "--actions",
                type=click.Choice(["run", "ask", "refuse"]),
                default="refuse",
                help="Whether actions that are not read-only run, wait for your approval, or are refused.",
            ),
        ),
    ),
    Command(
        shell_name="draft publish",
        summary="Let new tasks use a draft (admin).",
        operation="publish_swarm_draft",
        view=says("new tasks use draft {name}"),
        arguments=(_NAME,),
    ),
    Command(
        shell_name="draft withdraw",
        summary="Let new tasks do without a published draft (admin).",
        operation="withdraw_swarm_draft",
        view=says("new tasks no longer use draft {name}"),
        arguments=(_NAME,),
    ),
    Command(
        shell_name="draft delete",
        summary="Delete a draft. Tasks that run on it continue (admin).",
        operation="delete_swarm_draft",
        view=says("draft {name} is deleted"),
        arguments=(_NAME,),
    ),
)
