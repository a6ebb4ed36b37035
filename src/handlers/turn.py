"""Wake-ups from the queues: run the next turn of a mailbox that has mail."""

from typing import Any

from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from handlers import telemetry
from handlers.wiring import SystemOfTurns, make_loop, makes_snapshot, run_turn, survive_snapshots
from mail import startup
from mail.bootstrap import SECRETS_SECONDS, aws_queue, write_failure
from mail.bootstrap.system import AwsSystem
from mail.config.aws import AwsConfig
from mail.errors import StoreUnavailable

_loop = make_loop()
_turns = SystemOfTurns()
_processor = SqsFifoPartialProcessor(skip_group_on_error=True)
_processor.raise_on_entire_batch_failure = False
if makes_snapshot():
    survive_snapshots(_turns.start(SECRETS_SECONDS), _turns.renew)
else:
    _turns.renew()
startup.end()


def handler(event: dict[str, Any], context: LambdaContext) -> Any:
    """Run a turn per record; a failed record stays in its queue and is retried with increasing delays."""
    telemetry.begin_invocation(context)
    try:
        return process_partial_response(event, _run, _processor, context)
    finally:
        if _turns.built is not None:
            _turns.built.telemetry.flush()


def _run(record: SQSRecord, lambda_context: LambdaContext) -> None:
    try:
        run_turn(_start(record, lambda_context), _loop, record, lambda_context)
    except Exception:
        write_failure("FailedTurns")
        raise


def _start(record: SQSRecord, lambda_context: LambdaContext) -> AwsSystem:
    """Return the system; if the secrets can't be read, its message is retried soon. Raises StoreUnavailable."""
    half = lambda_context.get_remaining_time_in_millis() / 2000
    try:
        return _turns.start(min(SECRETS_SECONDS, half))
    except StoreUnavailable:
        _loop.run_until_complete(aws_queue(AwsConfig.from_environ()).retry_soon(record.raw_event))
        raise
