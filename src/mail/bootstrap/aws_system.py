"""A function's process on AWS: tasks in DynamoDB, tokens in SQS. There are no workers: events bring the work."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

from mail.adapters.aws.blobs import Blobs
from mail.adapters.aws.client import Aws, AwsClient
from mail.adapters.aws.documents import DynamoDBRecords
from mail.adapters.aws.queue import SQSQueue
from mail.adapters.aws.store import DynamoDBStore
from mail.bootstrap import peers, webhooks
from mail.bootstrap.shared import auth_endpoints, make_authenticator, read_quotas, serve_swarm
from mail.bootstrap.watched import watch_aws
from mail.config.aws import AwsConfig
from mail.core.engine.runtime import Runtime
from mail.core.engine.telemetry import Observers
from mail.core.protocol.clock import SYSTEM_CLOCK, Clock
from mail.core.task.ports import ServerRecords
from mail.core.task.swarm import SwarmCore
from mail.errors import ConfigurationError, StoreUnavailable
from mail.net import SwarmRegistry
from mail.swarms_json import SwarmEntry
from mail.swarms_json.build import describe_swarm


class AwsSystem:
    """A swarm on the services of AWS, with all that a function needs.

    What takes time once, such as the client of DynamoDB, is made with it: while the function is initialised.
    `entry` is what the swarm was built of, where that is known.
    """

    def __init__(
        self,
        swarm: SwarmCore,
        config: AwsConfig,
        *,
        entry: SwarmEntry | None = None,
        clock: Clock = SYSTEM_CLOCK,
        environ: Mapping[str, str] = os.environ,
        observers: Observers = (),
    ) -> None:
        self.config = config
        self.clock = clock
        self.watched = watch_aws(config.server.telemetry, config.server.swarm.name)
        account = Aws()
        dynamodb = account.client("dynamodb")
        dynamodb.warm_up()
        self.store = DynamoDBStore(
            dynamodb,
            config.table,
            blobs=Blobs(account.client("s3"), config.bucket) if config.bucket else None,
            retention_days=config.retention_days,
            clock=clock,
        )
        self.records: ServerRecords = DynamoDBRecords(dynamodb, config.table)
        sqs = account.client("sqs")
        if config.turn_queues:
            sqs.warm_up()
        self.queue = SQSQueue(sqs, config.turn_queues, config.delivery_queue)
        self.router = peers.aws_router(swarm, self.records, config, clock, account, environ)
        self.runtime = Runtime(
            swarm,
            self.store,
            self.queue,
            clock,
            turn_seconds=config.server.settings.turn_seconds,
            peers=self.router,
            hop_limit=config.server.interswarm.hop_limit,
            quotas=read_quotas(config.server),
            observers=observers,
            tracer=self.watched.tracer,
            webhooks=webhooks.aws_webhooks(self.records, config, clock, account, environ),
        )
        self.served = serve_swarm(self.runtime, self.records, config.server, entry or describe_swarm(swarm))
        self._resources = AsyncExitStack()
        self.authenticator = make_authenticator(auth_endpoints(environ), self.records, self._resources)

    @property
    def swarm(self) -> SwarmCore:
        """The swarm that runs."""
        return self.runtime.swarm

    @property
    def registry(self) -> SwarmRegistry:
        """The other swarms that the functions know."""
        return self.router.swarm_registry


async def create_dynamodb_table(name: str) -> tuple[str, ...]:
    """Make the table where it is missing; returns its name. Raises ConfigurationError where that can't be done."""
    from mail.adapters.aws.schema import create_table

    async with _dynamodb(name) as client:
        await create_table(client, name)
    return (name,)


@asynccontextmanager
async def open_dynamodb_records(name: str) -> AsyncIterator[ServerRecords]:
    """The tokens and settings in a table. Raises ConfigurationError where it can't be used."""
    async with _dynamodb(name) as client:
        yield DynamoDBRecords(client, name)


@asynccontextmanager
async def _dynamodb(table: str) -> AsyncIterator[AwsClient]:
    """A client for an operator, who is told what is wrong in the words of AWS."""
    client = Aws().client("dynamodb")
    try:
        yield client
    except StoreUnavailable as error:
        raise ConfigurationError(f"dynamodb://{table} can't be used: {error.__cause__ or error}") from error
    except ImportError as error:
        raise ConfigurationError(f"dynamodb://{table} needs {error.name}: pip install 'mail[aws]'") from error
    finally:
        client.close()
