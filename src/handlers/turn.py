"""Wake-ups from the queues: run the next turn of a mailbox that has mail."""

from typing import Any

from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from handlers import telemetry
from handlers.wiring import load_secrets, make_loop, make_system, run_turn, survive_snapshots
from mail import startup
from mail.bootstrap import TurnMetrics, write_metrics

load_secrets()
_loop = make_loop()
_system = make_system(TurnMetrics())
_processor = SqsFifoPartialProcessor(skip_group_on_error=True)
_processor.raise_on_entire_batch_failure = False
_system.preload()


def _renew_secrets() -> None:
    """Read the secrets again after a restore; agents that were built with others are built again."""
    global _system  # noqa: PLW0603
    if load_secrets():
        _system = make_system(TurnMetrics())


survive_snapshots(_system, _renew_secrets)
startup.end()


def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Run a turn per record; a failed record stays in its queue and is retried with increasing delays."""
    telemetry.begin_invocation(context)
    try:
        return process_partial_response(event, _run, _processor, context)
    finally:
        _system.telemetry.flush()


def _run(record: SQSRecord, lambda_context: LambdaContext) -> None:
    try:
        run_turn(_system, _loop, record, lambda_context)
    except Exception:
        write_metrics({"FailedTurns": 1})
        raise
