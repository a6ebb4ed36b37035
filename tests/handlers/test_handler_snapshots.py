"""Functions that start from a snapshot of SnapStart, through the hooks of Lambda's runtime client."""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from support.engines.lambda_runtime import ROOT
from support.services.loopback import Handler, serve

from mail.local_aws.processes import system_environment

SNAPSHOT = """
import json, os, random
from awslambdaric.bootstrap import on_init_complete
from handlers import wiring

systems = []
make_system = wiring.make_system
wiring.make_system = lambda *given: systems.append(make_system(*given)) or systems[-1]
import handlers.{handler}

[system] = systems
dynamodb = system.store._table._client.botocore
send = lambda: dynamodb.get_item(TableName="mail", Key={{"pk": {{"S": "-"}}}})
send()  # leaves a connection open

from mail.adapters.shared import codec
from mail.core.protocol.message import MAILMessage

class RuntimeClient:
    def restore_next(self):
        self.is_prepared = MAILMessage.__pydantic_complete__ and codec.STORED_TYPES[0].pydantic_complete
        self.child = os.fork()  # both go on, as do all processes that are restored from one snapshot

client = RuntimeClient()
name = system.runtime.turns._name
on_init_complete(client, None)
send()
seen = {{
    "is_prepared": client.is_prepared,
    "is_renamed": name != system.runtime.turns._name,
    "name": system.runtime.turns._name,
    "random": random.random(),
    "keeps_client": dynamodb is system.store._table._client.botocore,
}}
os.write(1, (json.dumps(seen) + "\\n").encode())
if client.child:
    os.waitpid(client.child, 0)
os._exit(0)
"""


class Database:
    """Answers every request with nothing, and counts its connections and requests."""

    url: str

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.requests: list[str] = []


@pytest.fixture
def database() -> Iterator[Database]:
    database = Database()

    class Connection(Handler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            database.connections += 1

        def respond(self) -> None:
            self.body()
            database.requests.append(self.headers["X-Amz-Target"].rpartition(".")[2])
            self.answer(body=b"{}")

    with serve(Connection) as database.url:
        yield database


@pytest.mark.soak(on="message")
@pytest.mark.parametrize("handler", ["turn", "message"])
def test_restored_processes_keep_what_was_built_and_share_nothing(handler: str, database: Database) -> None:
    environment = {
        **system_environment(),
        "PYTHONPATH": str(ROOT / "src"),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": database.url,
        "MAIL_TABLE": "mail",
        "MAIL_TURN_QUEUES": ",".join(f"https://queue.example/turns-{tier}.fifo" for tier in range(1, 6)),
        "POWERTOOLS_METRICS_NAMESPACE": "MAIL",
    }
    done = subprocess.run(
        [sys.executable, "-c", SNAPSHOT.format(handler=handler)],
        env=environment,
        cwd=ROOT / "swarm",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    copies = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(copies) == 2
    assert all(copy["is_prepared"] and copy["is_renamed"] and copy["keeps_client"] for copy in copies)
    assert len({copy["name"] for copy in copies}) == len({copy["random"] for copy in copies}) == 2
    assert database.requests == ["GetItem"] * 3, "what is prepared is not sent"
    assert database.connections == 3, "neither copy uses the connection of before"
