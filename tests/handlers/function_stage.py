"""What the functions of one deployment share, on ministack; and the part that AWS plays between them."""

import asyncio
import json
import os
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from support.engines.aws import aws_environment, endpoint
from support.engines.dynamodb import BUCKET, DynamoDBAdapter
from support.engines.gateway import Gateway
from support.engines.iam import Roles
from support.engines.lambda_runtime import ROOT, Function, LambdaRuntime, built_function, source_function
from support.engines.sqs import SQSQueueAdapter

from mail.adapters.aws.client import Aws
from mail.auth.keys import Caller
from mail.auth.tokens import issue_token
from mail.core.task.documents import CallerRole
from mail.core.task.leases import Lease
from mail.core.task.mailboxes import hook_of
from mail.core.task.task import Task, TaskKey
from mail.local_aws.deployment import read_template

ENGINE = "ministack"
BUILD = Path(os.environ.get("MAIL_TEST_BUILD") or ROOT / ".aws-sam" / "build")
"""What `sam build` has made."""

PLACEHOLDER = re.compile(r"mail_(\w+)_PUT-A-TOKEN-HERE")
NAMES: dict[str, tuple[CallerRole, str]] = {
    "user": ("user", "alice"),
    "admin": ("admin", "root"),
    "agent": ("agent", "swarm-beta"),
}
"""Whose token stands for a role in the sample events."""

ALICE = "user:alice@example-no-proxy"
"""Whose token the sample events of queues carry."""

HTTP = (
    *("root", "health", "whoami", "status", "message", "tasks", "task", "threads", "swarms", "interswarm"),
    "mail2",
)
QUEUES = ("turn", "outbound", "dead_letter")
FUNCTIONS = (*HTTP, *QUEUES, "sweeper", "peer_health")
"""The handlers that Lambda calls; `stream` is a server behind the Web Adapter."""

SERVE_MAIL2 = ("root", "mail2", "stream")
"""The functions that the template has serve MAIL 2.0."""

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


class Stage:
    """A table, a bucket, six queues, keys of callers, and functions that run on them, from source or as built.

    A context manager. Functions are started when they are first needed, and kept. Each has the role that the template
    gives it.

    Attributes:
        environment: what the variables of all functions have in common.
        gateway: what they reach AWS through.
        secrets: the path of secrets; a function knows it if `start` gets it as a variable.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        self.table = DynamoDBAdapter(ENGINE)
        self.queues = SQSQueueAdapter(ENGINE)
        self._keys: dict[str, str] = {}
        self._running: dict[str, LambdaRuntime] = {}
        self._resources = ExitStack()

    def __enter__(self) -> "Stage":
        asyncio.run(self.table.open())
        queues = {url: f"Turns{tier}" for tier, url in enumerate(self.queues.urls, 1)}
        queues[self.queues.outbound_url] = "DeliveryQueue"
        self.secrets = f"/mail/{self.table.table}"
        roles = Roles(read_template(ROOT / "template.yaml"), SecretsPath=self.secrets)
        self.gateway = self._resources.enter_context(Gateway(endpoint(ENGINE), roles, queues))
        self.environment = {
            "MAIL_TABLE": self.table.table,
            "MAIL_BUCKET": BUCKET,
            "MAIL_TURN_QUEUES": ",".join(self.queues.urls),
            "MAIL_DELIVERY_QUEUE": self.queues.outbound_url,
            "MAIL_RETENTION_DAYS": "90",
            "MAIL_CONFIG_PATH": "mail.toml",
            "MAIL_WEBHOOKS_ALLOW_PRIVATE": "true",
            "POWERTOOLS_SERVICE_NAME": "mail",
            "POWERTOOLS_METRICS_NAMESPACE": "MAIL",
        }
        return self

    def __exit__(self, *_: object) -> None:
        for running in self._running.values():
            running.stop()
        self._resources.close()
        asyncio.run(self.table.close())

    def function(self, name: str, **changes: Any) -> Function:
        """A function of this deployment, but for some changes."""
        if self.code == "source":
            function = source_function(f"handlers.{name}.handler")
        else:
            function = built_function(f"{name.title().replace('_', '')}Function", BUILD)
        return replace(function, **changes)

    def variables(self, name: str) -> dict[str, str]:
        """The environment of a function, with the credentials of its role."""
        role = f"{name.title().replace('_', '')}Role"
        serves = {"MAIL_SERVES_MAIL2": "true"} if name in SERVE_MAIL2 else {}
        return {**self.environment, **serves, **self.gateway.environment(role)}

    def start(self, name: str, variables: Mapping[str, str] = NO_VARIABLES, **changes: Any) -> LambdaRuntime:
        """An execution environment of a function, with further variables, that is the caller's to stop."""
        return LambdaRuntime(self.function(name, **changes), {**self.variables(name), **variables})

    def put_secret(self, name: str, value: str) -> dict[str, str]:
        """Store a parameter below the path of secrets; returns the variables of functions that know the path."""
        with patch.dict(os.environ, aws_environment(endpoint(ENGINE))):
            ssm = Aws().client("ssm").botocore
        ssm.put_parameter(Name=f"{self.secrets}/{name}", Value=value, Type="SecureString", Overwrite=True)
        ssm.close()
        return {"MAIL_SECRETS_PATH": self.secrets}

    def invoke(self, name: str, event: dict[str, Any]) -> Any:
        """What a function returns; all invocations share one execution environment."""
        return self.running(name).invoke(event)

    def ask(self, name: str, **changes: Any) -> Any:
        """What a function answers to a `request`."""
        return self.invoke(name, self.request(name, **changes))

    def running(self, name: str) -> LambdaRuntime:
        """The execution environment that `invoke` uses."""
        if name not in self._running:
            self._running[name] = self.start(name)
        return self._running[name]

    def key(self, role: CallerRole, name: str) -> str:
        """The key of a caller; always the same one."""
        if name not in self._keys:
            self._keys[name] = asyncio.run(issue_token(self.table.records, Caller(role, name)))
        return self._keys[name]

    def load(self, task_id: str, instance: str = ALICE) -> Task:
        """A task, which must be there."""
        task = asyncio.run(self.table.store.load(TaskKey(instance, task_id)))
        assert task is not None
        return task

    def lose_worker(self, task_id: str, mailbox: str = "supervisor") -> None:
        """Let a worker begin a turn and die; its lease has expired."""
        store, key, lease = self.table.another(), TaskKey(ALICE, task_id), Lease("gone/1", expires=1.0)
        if hook_of(mailbox) is not None:
            asyncio.run(store.claim(key, mailbox, lease, now=0.0))
        else:
            asyncio.run(store.open_turn(key, mailbox, lease, now=0.0, history_after=0))

    # ------------------------------------------------------------------------------------ what AWS does

    def event(self, name: str) -> dict[str, Any]:
        """The sample event of a function, with a key that is valid here."""
        text = (ROOT / "events" / f"{name}.json").read_text(encoding="utf-8")
        event: dict[str, Any] = json.loads(PLACEHOLDER.sub(lambda found: self.key(*NAMES[found[1]]), text))
        return event

    def request(
        self,
        name: str,
        *,
        method: str = "",
        body: Any = None,
        path: str = "",
        query: str = "",
        key: str | None = None,
        **headers: str,
    ) -> dict[str, Any]:
        """The sample event of a function behind the HTTP API, asking for something else, by POST if it has a body.

        Bytes and text are sent as they are, anything else as JSON.
        """
        event = self.event(name)
        if body is not None:
            data = body if isinstance(body, bytes) else body if isinstance(body, str) else json.dumps(body)
            event |= {"body": data, "isBase64Encoded": isinstance(data, bytes)}
            if isinstance(data, bytes):
                event["body"] = b64encode(data).decode()
            event["headers"] |= {"content-length": str(len(data)), "content-type": "application/json"}
        if method or body is not None:
            event["requestContext"]["http"]["method"] = method or "POST"
        if key is not None:
            event["headers"]["authorization"] = f"Bearer {key}"
        if path:
            event["rawPath"] = event["requestContext"]["http"]["path"] = path
        if query:
            event["rawQueryString"] = query
            event["queryStringParameters"] = dict(each.split("=") for each in query.split("&"))
        event["headers"] |= headers
        return event

    def records(self, hidden: int = 30) -> Iterator[dict[str, Any]]:
        """The messages in the queues, urgent tiers first, as an event source brings them; those that come
        later, too. Their queues hide them for so many seconds.
        """
        sqs = self.queues.client.botocore
        while True:
            for url in self.queues.urls:
                answer = sqs.receive_message(
                    QueueUrl=url, MessageSystemAttributeNames=["All"], VisibilityTimeout=hidden
                )
                if messages := answer.get("Messages"):
                    yield self.record(url, messages[0])
                    break
            else:
                return

    def deliveries(self) -> list[dict[str, Any]]:
        """The messages in the queue for other swarms' mail that may be taken now, as an event source brings them."""
        return [self.record(self.queues.outbound_url, message) for message in self.queues.deliveries()]

    def record(self, url: str, message: dict[str, Any]) -> dict[str, Any]:
        """A message, as an event source brings it."""
        answer = self.queues.client.botocore.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return {
            **self.event("turn" if url in self.queues.urls else "outbound")["Records"][0],
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message["Attributes"],
            "md5OfBody": message["MD5OfBody"],
            "eventSourceARN": answer["Attributes"]["QueueArn"],
        }

    def delete(self, record: dict[str, Any]) -> None:
        """What an event source does with a message that was dealt with."""
        name = record["eventSourceARN"].rpartition(":")[2]
        urls = (*self.queues.urls, self.queues.outbound_url)
        (url,) = [url for url in urls if url.endswith(f"/{name}")]
        self.queues.client.botocore.delete_message(QueueUrl=url, ReceiptHandle=record["receiptHandle"])

    def work_off(self) -> int:
        """Run turns until no queue has a message; returns how many invocations that took."""
        count = 0
        for record in self.records():
            assert self.invoke("turn", {"Records": [record]}) == {"batchItemFailures": []}
            self.delete(record)
            count += 1
        return count


def why_not_built() -> str:
    """Why functions can't be run as built; empty where they can."""
    template = BUILD / "template.yaml"
    if not template.exists():
        return "run: sam build"
    newest = max(path.stat().st_mtime for path in Path(ROOT, "src").rglob("*.py"))
    return "the build is older than the code; run: sam build" if newest > template.stat().st_mtime else ""
