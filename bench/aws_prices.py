"""What AWS charges: us-east-1, on demand, beyond the free tier; from the price lists of autumn 2026.

Not in here, as turns don't cause it or others do: the model, the HTTP API ($1.00 per million requests), logs
($0.50 per GB), storage ($0.25 per GB and month in the table, and again $0.20 for its backups), alarms.
"""

from dataclasses import dataclass

from mail.adapters.aws.items import SHARDS

LISTED = "autumn 2026"

WRITE_UNITS = 0.625 / 1e6
"""Per write request unit of DynamoDB: 1 KB, and two of them inside a transaction."""

READ_UNITS = 0.125 / 1e6
"""Per read request unit of DynamoDB: 4 KB, read consistently."""

SQS_REQUESTS = 0.50 / 1e6
"""Per request to a FIFO queue, of up to 64 KB, empty answers included."""

SQS_CALLS = 4
"""Requests of a turn to SQS: its wake-up is sent, received, hidden while the turn runs, and deleted."""

INVOCATIONS = 0.20 / 1e6
GB_SECONDS = 0.0000166667
"""Of Lambda on x86; on Arm, a fifth less."""

WORKER_HOURS = 0.0395
"""Of a worker with one processor and 2 GB on Arm; on Spot, less than half."""

EMPTY_RECEIVES = 5 * 3600 * 24 * 30 / 20
"""How often in a month an event source asks a queue that stays empty: five pollers, each for 20 seconds at a time."""


SHARD_READS = 0.5
"""Read units of a query of a sweep that finds nothing due; there is one for each shard of the index."""

SWEEP_SECONDS, SWEEP_GIGABYTES = 0.2, 0.5
"""How long a sweep takes that finds nothing, and `ApiMemory` in template.yaml."""


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


def sweeps_of_a_month() -> float:
    """What the sweeps of a month cost in which nothing is due, however many tasks run: one a minute."""
    reads = len(SHARDS) * SHARD_READS
    sweep = bill(
        write_units=0, read_units=reads, sqs_requests=0, gigabytes=SWEEP_GIGABYTES, seconds=SWEEP_SECONDS
    )
    return 60 * 24 * 30 * sweep.total
