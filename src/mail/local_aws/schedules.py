"""Functions that are invoked by the clock."""

import asyncio
import logging
from datetime import UTC, datetime
from uuid import uuid4

from mail.local_aws.functions import LambdaFunction
from mail.local_aws.ministack import REGION
from mail.local_aws.stack import Schedule

logger = logging.getLogger(__name__)


async def keep_schedule(schedule: Schedule, function: LambdaFunction) -> None:
    """Invoke a function again and again, never twice at once."""
    while True:
        await asyncio.sleep(schedule.seconds)
        event = {
            "version": "0",
            "id": str(uuid4()),
            "detail-type": "Scheduled Event",
            "source": "aws.scheduler",
            "account": "000000000000",
            "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": REGION,
            "resources": [schedule.name],
            "detail": "{}",
        }
        done = await function.invoke(event)
        if not done.succeeded:
            logger.warning("%s: %s: %s", done.function, done.outcome, done.payload.decode(errors="replace"))
