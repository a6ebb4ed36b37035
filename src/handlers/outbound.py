"""Tokens of other swarms' mailboxes: each says that there is mail for a swarm, and hands the next of it over."""

import time
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from handlers import telemetry
from handlers.tokens import run_turn
from handlers.wiring import make_loop, make_system

_loop = make_loop()
_system = make_system()
_metrics = telemetry.make_metrics()
_processor = BatchProcessor(event_type=EventType.SQS)
_processor.raise_on_entire_batch_failure = False


def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Try a delivery per record. One that its swarm can't take now is no failure: it has a token for the next try."""
    telemetry.begin_invocation(context)
    try:
        return process_partial_response(event, _deliver, _processor, context)
    finally:
        _metrics.flush_metrics()
        _system.telemetry.flush()


def _deliver(record: SQSRecord, lambda_context: LambdaContext) -> None:
    begin = time.monotonic()
    try:
        report = run_turn(_system, _loop, record, lambda_context)
    except Exception:
        _metrics.add_metric("FailedDeliveries", "Count", 1)
        raise
    telemetry.measure_delivery(_metrics, report, time.monotonic() - begin)
