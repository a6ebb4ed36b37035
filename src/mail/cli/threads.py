"""The commands about threads: `mail inbox`, `mail thread`."""

from collections.abc import Mapping
from typing import Any

from mail.cli.command import Command, Completes, Namespace, option, positional, switch
from mail.cli.output import Output
from mail.cli.session import Session

TASK = option(
    "--task", key="task_id", metavar="TASK", help="Only messages of this task.", completes=Completes.TASK
)
ACK_WITHIN = option(
    "--ack-within",
    metavar="SECONDS",
    type=float,
    minimum=0,
    help="Seconds after which a waiting message is overdue. [default: 900]",
)


def show_threads(answer: Mapping[str, Any], output: Output) -> None:
    """Print a line per thread. Raises MAILError."""
    from mail.cli.views import threads

    threads.show_threads(answer, output)


async def thread(session: Session, given: Namespace) -> None:
    """Print a thread, or answer the request for help in it and print the outcome."""
    from mail.cli.replies import reply, show_reply
    from mail.cli.views.threads import show_thread

    if given.reply is None:
        answer = await session.client.get_thread(
            given.thread_id, task_id=given.task_id, ack_within=given.ack_within
        )
        session.output.result(answer, lambda: show_thread(answer, session.output))
        return
    done = await reply(session.client, given.thread_id, given.reply, task_id=given.task_id)
    session.add_task(done.task_id)
    session.set_status(done.task_id, done.status)
    session.output.result(done.as_json, lambda: show_reply(done, session.output))


COMMANDS = (
    Command(
        name="threads",
        also=("inbox",),
        shell_name="inbox",
        summary="List threads of mail by bead or task: who works on it, what is pending, and what is overdue.",
        operation="get_threads",
        view=show_threads,
        arguments=(
            switch("--pending", help="Only threads with messages that have to be acknowledged."),
            switch("--overdue", help="Only threads with messages that have waited for too long."),
            option("--bead", help="Only threads about this bead."),
            TASK,
            ACK_WITHIN,
            option(
                "--limit",
                type=int,
                minimum=1,
                maximum=100,
                default=20,
                help="The number of newest tasks to read, at most.",
            ),
            option("--cursor", help="Continue after the page that ended with this cursor."),
        ),
    ),
    Command(
        name="thread",
        shell_name="thread",
        summary="Show a thread: its facts, and each message below the one it answers.",
        details="With --reply, exit codes: 3 the task has failed, 4 it is paused again.",
        handler=thread,
        arguments=(
            positional(
                "thread_id",
                "The thread: usually the id of a bead or of a task.",
                metavar="ID",
                completes=Completes.TASK,
            ),
            option("--reply", metavar="TEXT", help="Answer the request for help that has paused a task."),
            TASK,
            ACK_WITHIN,
        ),
    ),
)
