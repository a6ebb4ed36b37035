"""Objects that each function builds once per process: system, event loop, secrets."""

import asyncio
import logging
import os
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from handlers import telemetry
from mail import bootstrap
from mail.bootstrap import TaskMetrics, TurnMetrics
from mail.bootstrap.system import AwsSystem
from mail.config.aws import AwsConfig
from mail.errors import StoreUnavailable

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext

RECEIVES, DELIVERY_RECEIVES = 1000, 5
"""How often a wake-up of an agent, or for mail that goes out, is received before it becomes a dead letter:
`maxReceiveCount` in `template.yaml`. The store counts the attempts at turns; a throttled wake-up counts here, too."""

REASON = "its turn could not be run, again and again; the server's log says more"
"""The reason of such a dead letter."""

logger = logging.getLogger("mail.handlers.wiring")

INITIALIZATION_VARIABLE = "AWS_LAMBDA_INITIALIZATION_TYPE"
SNAP_START = "snap-start"


def make_system(metrics: TaskMetrics | None = None) -> AwsSystem:
    """Build the system that the environment describes, measured by `metrics`. Raises ConfigurationError."""
    telemetry.set_up()
    return bootstrap.aws(AwsConfig.from_environ(), observers=(metrics or TaskMetrics(),))


class SystemOfTurns:
    """The system of the turn function, which is built as soon as its secrets can be read.

    Many functions that start at the same moment are refused by the Parameter Store, and a function that fails to
    initialize would keep its message hidden for minutes.
    """

    def __init__(self) -> None:
        telemetry.set_up()
        self.built: AwsSystem | None = None
        self._secrets = bootstrap.TurnSecrets()
        self._must_read = True

    def start(self, seconds: float) -> AwsSystem:
        """Return the system; if secrets are due, read them within so many seconds. Raises StoreUnavailable."""
        if self._must_read or self.built is None:
            if self._secrets.read(seconds) or self.built is None:
                self.built = make_system(TurnMetrics())
                self.built.preload()
            self._must_read = False
        return self.built

    def renew(self) -> None:
        """Read the secrets, and build the system again if one is new; if that fails, the next turn does so."""
        self._must_read = True
        with suppress(StoreUnavailable):
            self.start(0.0)


def make_loop() -> asyncio.AbstractEventLoop:
    """Make the event loop that all invocations of a process share, as their connections belong to it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop


def makes_snapshot() -> bool:
    """Return whether this process is initialized for a snapshot of SnapStart."""
    return os.environ.get(INITIALIZATION_VARIABLE) == SNAP_START


def survive_snapshots(system: AwsSystem, after: Callable[[], object] = lambda: None) -> None:
    """If SnapStart makes a snapshot of this process, let those restored from it begin with all that it has built.

    They get their own of what they must not share: connections, the name of the runtime, and the state of `random`.
    `after` runs last.
    """
    if not makes_snapshot():
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
