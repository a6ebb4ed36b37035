"""Wake-ups whose turns failed too often: dead-letter the turn, and notify the sender of the message."""

import logging
from typing import Any

from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from handlers import telemetry
from handlers.wiring import DELIVERY_RECEIVES, REASON, RECEIVES, make_loop, make_system
from mail import startup
from mail.core.engine.leased_turn import TurnReport
from mail.core.task.mailboxes import is_sent
from mail.core.turns.context import CURRENT_TASK
from mail.errors import BadRequest, LeaseLost

logger = logging.getLogger("mail.handlers.dead_letter")

_loop = make_loop()
_system = make_system()
_processor = SqsFifoPartialProcessor(skip_group_on_error=True)
_processor.raise_on_entire_batch_failure = False
startup.end()


def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Dead-letter a turn per record; a record whose mailbox is leased stays in the queue and is retried.

    A turn that was never begun, as its deliveries were throttled or interrupted, is not at fault: it is woken again.
    """
    telemetry.begin_invocation(context)
    return process_partial_response(event, _dead_letter, _processor, context)


def _dead_letter(record: SQSRecord) -> None:
    try:
        wake_up = _system.queue.read(record.body)
    except BadRequest:
        logger.exception("discarded a message that is not a wake-up: %s", record.body)
        return
    key, mailbox = wake_up.key, wake_up.mailbox
    if not mailbox:
        logger.error("%s could not be looked after; a sweep tries it again", key)
        return
    CURRENT_TASK.set(key.task_id)
    _loop.run_until_complete(_system.served.refresh())
    attempts = DELIVERY_RECEIVES if is_sent(mailbox) else RECEIVES
    report = _loop.run_until_complete(
        _system.runtime.dead_letter_turn(key, mailbox, REASON, upto=wake_up.seq, attempts=attempts)
    )
    if report.outcome in (TurnReport.Outcome.BUSY, TurnReport.Outcome.LOST):
        raise LeaseLost
    if report.outcome is TurnReport.Outcome.HANDED_BACK:
        logger.warning(
            "task %s: no worker has started the turn of %s; it is woken up again", key.task_id, mailbox
        )
    if report.outcome is TurnReport.Outcome.COMMITTED:
        logger.error("task %s: dead-lettered a turn of %s", key.task_id, mailbox)
