"""What AWS charges: us-east-1, on demand, beyond the free tier; from the price lists of autumn 2026.

Not in here, as turns don't cause it or others do: the model, the HTTP API ($1.00 per million requests), logs
($0.50 per GB), storage ($0.25 per GB and month in the table, and again $0.20 for its backups), alarms.
"""

from dataclasses import dataclass

LISTED = "autumn 2026"

WRITE_UNITS = 0.625 / 1e6
"""Per write request unit of DynamoDB: 1 KB, and two of them inside a transaction."""

READ_UNITS = 0.125 / 1e6
"""Per read request unit of DynamoDB: 4 KB, read consistently."""

SQS_REQUESTS = 0.50 / 1e6
"""Per request to a FIFO queue, of up to 64 KB, empty answers included."""

INVOCATIONS = 0.20 / 1e6
GB_SECONDS = 0.0000166667
"""Of Lambda on x86; on Arm, a fifth less."""

EMPTY_RECEIVES = 5 * 3600 * 24 * 30 / 20
"""How often in a month an event source asks a queue that stays empty: five pollers, each for 20 seconds at a time."""


@dataclass(frozen=True, slots=True)
class Bill:
    """Dollars."""

    dynamodb: float
    sqs: float
    function: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.dynamodb + self.sqs + self.function


def bill(
    *, write_units: float, read_units: float, sqs_requests: float, gigabytes: float, seconds: float
) -> Bill:
    """What one invocation costs that consumes this."""
    return Bill(
        dynamodb=write_units * WRITE_UNITS + read_units * READ_UNITS,
        sqs=sqs_requests * SQS_REQUESTS,
        function=INVOCATIONS + gigabytes * seconds * GB_SECONDS,
    )
