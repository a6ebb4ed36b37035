"""A table that refuses transactions for a while: turns are committed later, and no model is paid twice."""

import asyncio
import http.client
import time
from collections import Counter
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import pytest
from aws_client import Crowd, answer
from aws_swarm import make_project
from support.processes.local_aws import needs_ministack
from support.processes.projects import entry, supervisor
from support.services.loopback import Handler, serve

from mail.local_aws.system import LocalAws

TURN_SECONDS = 8
REFUSED_SECONDS = 20.0
RECORD_VARIABLE = "TEST_RECORD"

AGENT = f'''
"""An agent whose model takes its time; each call is written down."""

import asyncio
import os

from mail.factories.rules import complete, rule_based


@rule_based
async def make(view):
    with open(os.environ["{RECORD_VARIABLE}"], "a") as record:
        record.write(view.mail.body + "\\n")
    await asyncio.sleep({TURN_SECONDS})
    return [complete("paid")]
'''

pytestmark = [pytest.mark.soak, needs_ministack, pytest.mark.timeout(300)]


class Proxy(Handler):
    """Passes requests on to DynamoDB, and throttles transactions until a time."""

    target = ""
    until = 0.0
    refused: ClassVar[Counter[str]] = Counter()

    def respond(self) -> None:
        operation = self.headers["X-Amz-Target"].rpartition(".")[2]
        if operation == "TransactWriteItems" and time.monotonic() < self.until:
            self.refused[operation] += 1
            kind = "com.amazonaws.dynamodb.v20120810#ThrottlingException"
            self.answer(400, b'{"__type": "%s", "message": "slow down"}' % kind.encode())
            return
        connection = http.client.HTTPConnection(urlsplit(self.target).netloc)
        connection.request("POST", self.path, self.body(), dict(self.headers.items()))
        response = connection.getresponse()
        self.answer(response.status, response.read(), {"Content-Type": "application/x-amz-json-1.0"})
        connection.close()


async def test_twenty_seconds_of_refused_transactions_cost_no_model_call(tmp_path: Path) -> None:
    template = make_project(tmp_path, entry("slow", supervisor("agent", "slow:make")), {"slow": AGENT})
    record = tmp_path / "record.txt"
    names = [f"task {n}" for n in range(10)]
    with serve(Proxy) as url:
        environment = {RECORD_VARIABLE: str(record), "AWS_ENDPOINT_URL_DYNAMODB": url}
        system = LocalAws(template, environment=environment)
        async with system, Crowd(system) as crowd:
            Proxy.target = system.endpoint
            for name in names:
                await crowd.submit(name, name)
            async with asyncio.timeout(60):
                while not record.exists() or len(record.read_text().splitlines()) < len(names):  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            Proxy.until = time.monotonic() + REFUSED_SECONDS
            records = await crowd.finish(names, seconds=120)
    assert [answer(each) for each in records] == ["task_complete: paid"] * len(names)
    assert Proxy.refused["TransactWriteItems"] > len(names)
    assert sorted(record.read_text().splitlines()) == names
