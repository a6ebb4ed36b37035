"""Tokens whose turns have failed too often: the turn ends as failed, and whoever wrote the message is told."""

import logging
from typing import Any

from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from handlers import telemetry
from handlers.tokens import RECEIVES
from handlers.wiring import make_loop, make_system
from mail.core.engine.telemetry import TurnReport
from mail.core.task.context import CURRENT_TASK
from mail.errors import BadRequest, LeaseLost

REASON = "its turn could not be run, again and again; the server's log says more"

logger = logging.getLogger("mail.handlers.dead_letter")

_loop = make_loop()
_system = make_system()
_processor = SqsFifoPartialProcessor(skip_group_on_error=True)
_processor.raise_on_entire_batch_failure = False


def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Give up a turn per record; one that somebody runs at this moment stays, to be looked at again."""
    telemetry.begin_invocation(context)
    return process_partial_response(event, _give_up, _processor, context)


def _give_up(record: SQSRecord, lambda_context: LambdaContext) -> None:
    try:
        key, mailbox, seq = _system.queue.read(record.body)
    except BadRequest:
        logger.exception("a dead letter is no token, and thrown away: %s", record.body)
        return
    CURRENT_TASK.set(key.task_id)
    _loop.run_until_complete(_system.served.refresh())
    seconds = lambda_context.get_remaining_time_in_millis() / 1000
    report = _loop.run_until_complete(
        _system.runtime.dead_letter_turn(key, mailbox, REASON, upto=seq, seconds=seconds, attempts=RECEIVES)
    )
    if report.outcome in (TurnReport.Outcome.LEASED, TurnReport.Outcome.LOST):
        raise LeaseLost
    if report.outcome is TurnReport.Outcome.COMMITTED:
        logger.error("task %s: gave up a turn of %s", key.task_id, mailbox)
