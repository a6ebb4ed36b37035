"""Wake-ups of outbound mailboxes: deliver mail to other swarms, and events to webhooks."""

from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from handlers import telemetry
from handlers.wiring import make_loop, make_system, run_turn
from mail import startup
from mail.bootstrap import TurnMetrics, write_failure

_loop = make_loop()
_system = make_system(TurnMetrics())
_processor = BatchProcessor(event_type=EventType.SQS)
_processor.raise_on_entire_batch_failure = False
startup.end()


def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Try one delivery per record. An unreachable swarm is not a failure: a later wake-up is already scheduled."""
    telemetry.begin_invocation(context)
    try:
        return process_partial_response(event, _deliver, _processor, context)
    finally:
        _system.telemetry.flush()


def _deliver(record: SQSRecord, lambda_context: LambdaContext) -> None:
    try:
        run_turn(_system, _loop, record, lambda_context)
    except Exception:
        write_failure("FailedDeliveries")
        raise
