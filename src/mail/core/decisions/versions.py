"""The version of its swarm that a task runs on, and what an open task needs of it. Pure.

By the needs, people see before an update which tasks it concerns.
"""

from collections.abc import Iterator

from mail.core.protocol.address import parse_agent_address
from mail.core.protocol.values import value
from mail.core.task.mailboxes import agent_of, goes_out
from mail.core.task.swarm import SwarmCore
from mail.core.task.task import ENDED, Task


def version_to_finish(task: Task, present: SwarmCore) -> str | None:
    """Return the version on which a task finishes its run, by the rule of the `present` one; None for the present one.

    A pause doesn't end a run; a task that has ended begins another on the present version. One that tries a draft stays
    on it.
    """
    begun = task.generation.versions[:1]
    if task.generation.tries_draft:
        return begun[0]
    if not present.finishes or task.status in ENDED or not begun or begun[0] == present.digest:
        return None
    return begun[0]


@value
class Need:
    """An agent, or an action of it, without which a task can't continue as it began; `action` is empty for none."""

    agent: str
    action: str = ""


def needs_of(task: Task) -> set[Need]:
    """Return what a running or paused task needs: agents with mail or a question, calls that wait, an approval."""
    needs = [Need(agent_of(agent), action) for agent, action in _named(task) if not goes_out(agent)]
    return {*needs, *(Need(need.agent) for need in needs)}


def _named(task: Task) -> Iterator[tuple[str, str]]:
    yield task.entrypoint, ""
    for mailbox in (*task.pending, *task.waits.reminders):
        yield mailbox, ""
    for agent, names in task.waits.calls.items():
        yield from ((agent, name) for name in names)
    for request in task.requests:
        for address in (request.sender, request.recipient):
            name, swarm = parse_agent_address(address) if address else ("", None)
            if name and swarm is None:
                yield name, ""
    if (waits := task.generation.breakpoint) is not None:
        yield from ((waits.agent, call.name) for call in waits.calls)
