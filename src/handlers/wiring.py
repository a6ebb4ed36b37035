"""Objects that each function builds once per process: system, event loop, secrets."""

import asyncio
import logging
import os
import random
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from handlers import telemetry
from mail import bootstrap
from mail.bootstrap import TaskMetrics
from mail.bootstrap.system import AwsSystem
from mail.config.aws import AwsConfig

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext

SECRETS_VARIABLE = "MAIL_SECRETS_PATH"
"""Names the path in SSM whose parameters become environment variables: `/mail/prod/OPENAI_API_KEY`, …"""

RECEIVES = 5
"""Deliveries of a wake-up before it becomes a dead letter: `maxReceiveCount` in `template.yaml`."""

SWEEP_DELAYS = (12, 24, 36, 48)
"""Seconds after a tick of its schedule, which can't come more often than each minute, when the sweeper runs again."""

REASON = "its turn could not be run, again and again; the server's log says more"
"""The reason of such a dead letter."""

logger = logging.getLogger("mail.handlers.wiring")

INITIALIZATION_VARIABLE = "AWS_LAMBDA_INITIALIZATION_TYPE"
SNAP_START = "snap-start"

_secrets: dict[str, str] = {}
"""The variables read from SSM; a process restored from a snapshot reads them again."""


def make_system(metrics: TaskMetrics | None = None) -> AwsSystem:
    """Build the system that the environment describes, measured by `metrics`. Raises ConfigurationError."""
    telemetry.set_up()
    return bootstrap.aws(AwsConfig.from_environ(), observers=(metrics or TaskMetrics(),))


def load_secrets() -> bool:
    """Copy the secrets into the environment, except variables that `template.yaml` sets; return whether one is new.

    Only the turn function calls this. The other functions read single tokens when they need them.
    """
    path = os.environ.get(SECRETS_VARIABLE, "")
    if not path:
        return False
    known = dict(_secrets)
    for variable, value in bootstrap.read_parameters(path).items():
        if variable in _secrets or not os.environ.get(variable):
            os.environ[variable] = _secrets[variable] = value
    return _secrets != known


def make_loop() -> asyncio.AbstractEventLoop:
    """Make the event loop that all invocations of a process share, as their connections belong to it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


def survive_snapshots(system: AwsSystem, after: Callable[[], object] = lambda: None) -> None:
    """If SnapStart makes a snapshot of this process, let those restored from it begin with all that it has built.

    They get their own of what they must not share: connections, the name of the runtime, and the state of `random`.
    `after` runs last.
    """
    if os.environ.get(INITIALIZATION_VARIABLE) != SNAP_START:
        return
    from snapshot_restore_py import register_after_restore, register_before_snapshot

    def before_snapshot() -> None:
        try:
            system.before_snapshot()
        except Exception:
            logger.exception("nothing is prepared before the snapshot; first requests take longer")

    def after_restore() -> None:
        random.seed()
        system.after_restore()
        after()

    register_before_snapshot(before_snapshot)
    register_after_restore(after_restore)


def run_turn(
    system: AwsSystem, loop: asyncio.AbstractEventLoop, record: "SQSRecord", context: "LambdaContext"
) -> None:
    """Do what a wake-up asks for, within the time that the invocation has left; see `SQSQueue.handle`."""

    def seconds_left() -> float:
        return context.get_remaining_time_in_millis() / 1000

    turn = partial(system.run_turn, seconds_left=seconds_left)
    loop.run_until_complete(system.queue.handle(record.raw_event, turn))
