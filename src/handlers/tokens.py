"""Tokens that queues bring, whatever they ask for: an agent's turn, or a delivery to another swarm."""

import asyncio
import logging

from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from mail.bootstrap.system import AwsSystem
from mail.core.engine.turn_work import TurnReport
from mail.core.task.context import CURRENT_TASK

RECEIVES = 5
"""How often a queue hands a token out before it is a dead letter: `maxReceiveCount` in `template.yaml`."""

logger = logging.getLogger("mail.handlers.tokens")


def run_turn(
    system: AwsSystem, loop: asyncio.AbstractEventLoop, record: SQSRecord, context: LambdaContext
) -> TurnReport:
    """Run the turn that a token asks for. Where this raises, the token comes back soon, less soon each time."""
    try:
        key, mailbox, _ = system.queue.read(record.body)
        CURRENT_TASK.set(key.task_id)
        loop.run_until_complete(system.served.refresh())
        seconds = context.get_remaining_time_in_millis() / 1000
        return loop.run_until_complete(system.runtime.run_turn(key, mailbox, seconds=seconds))
    except Exception:
        logger.exception("a turn could not be run; its token comes back")
        loop.run_until_complete(system.queue.retry_soon(record.raw_event))
        raise
