"""A swarm as it is deployed and one on an embedded server help each other: the steps of docs/federate.md."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import httpx2
import pytest
from support.engines.aws import aws_environment
from support.processes.local_aws import LocalAwsProcess, full_size, needs_ministack
from support.processes.server import TIMEOUT, ServerProcess, eventually, run_mail

pytestmark = [needs_ministack, pytest.mark.timeout(240)]

QUESTION = "weather in Tokyo and 12*(3+4)"
SECRETS = "/mail/secrets"
TASKS = full_size("MAIL_TEST_FEDERATION", small=10, full=50)
KILLS = 3
NAMED = ["111122223333", "arn:aws:iam::444455556666:role/beta"]
"""Who may call the URL for signed requests."""

Pair = tuple[LocalAwsProcess, ServerProcess]


def client(service: str, endpoint: str) -> Any:
    """A client of boto3 for the local account."""
    variables = aws_environment(endpoint)
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name=variables["AWS_REGION"],
        aws_access_key_id=variables["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=variables["AWS_SECRET_ACCESS_KEY"],
    )


def output(endpoint: str, name: str) -> str:
    """What the stack says."""
    (stack,) = client("cloudformation", endpoint).describe_stacks(StackName="mail")["Stacks"]
    (value,) = [each["OutputValue"] for each in stack["Outputs"] if each["OutputKey"] == name]
    return str(value)


def token_for(caller: str, *flags: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """A token by which another swarm may call."""
    made = run_mail("token", "create", "--role", "agent", "--id", caller, *flags, cwd=cwd, env=env)
    assert made.returncode == 0, made.stderr
    return re.search(r"mail_\S+", made.stdout)[0]  # type: ignore[index]


def register(server: ServerProcess, name: str, base_url: str, **fields: Any) -> None:
    with server.client("admin") as http:
        response = http.post("/swarms", json={"name": name, "base_url": base_url, **fields})
    assert response.status_code == 200, response.text


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """swarm-alpha as deployed, which has the token for the other in SSM, and swarm-beta on an embedded server."""
    here, there = tmp_path_factory.mktemp("alpha"), tmp_path_factory.mktemp("beta")
    parameters = {"SwarmName": "swarm-alpha", "SecretsPath": SECRETS, "PeerPrincipals": ",".join(NAMED)}
    flags = [text for pair in parameters.items() for text in ("--parameter", "=".join(pair))]
    with LocalAwsProcess(here, *flags) as alpha:
        account = aws_environment(alpha.endpoint)
        database = f"dynamodb://{output(alpha.endpoint, 'TableName')}"
        of_beta = token_for("swarm-beta", "--database", database, cwd=here, env=account)
        variables = {**account, "SWARM_AUTH_TOKEN_SWARM_ALPHA": of_beta}
        as_beta = ("--swarm-name", "swarm-beta", "--host", "127.0.0.1")
        with ServerProcess(there, *as_beta, env=variables) as beta:
            beta.flags = (*as_beta, "--port", beta.url.rpartition(":")[2])  # where it is found again
            client("ssm", alpha.endpoint).put_parameter(
                Name=f"{SECRETS}/outbound/SWARM_AUTH_TOKEN_SWARM_BETA",
                Value=token_for("swarm-alpha", cwd=there),
                Type="SecureString",
            )
            register(alpha, "swarm-beta", beta.url)
            register(beta, "swarm-alpha", alpha.url)
            yield alpha, beta


def test_they_help_each_other(pair: Pair) -> None:
    """What one asks of the other's agents is answered, and its own part of that task ends as well."""
    alpha, beta = pair
    for asked, name, other, other_name in (
        (alpha, "swarm-alpha", beta, "swarm-beta"),
        (beta, "swarm-beta", alpha, "swarm-alpha"),
    ):
        answer = asked.ask(QUESTION, task_id=f"from {name}")
        assert "12*(3+4) = 84." in answer
        assert "The weather in Tokyo today" in answer
        record = asked.task(f"from {name}")
        assert record["remote_swarms"] == [other_name]
        assert f"swarm:{name}@{other_name}" in record["task_contributors"]
        with other.client("admin") as http:
            listed = http.get("/swarms").json()["swarms"]
        assert {each["swarm_name"] for each in listed} == {"swarm-alpha", "swarm-beta"}


def test_a_person_asks_an_agent_elsewhere_and_sees_it_stream(pair: Pair) -> None:
    alpha, _ = pair
    body = {"body": "2+3", "targets": ["math@swarm-beta"]}
    with alpha.client() as http:
        response = http.post("/interswarm/message", json=body)
    assert response.status_code == 200, response.text
    assert response.json()["response"]["message"]["body"] == "2+3 = 5."
    with httpx2.stream(
        "POST",
        f"{alpha.stream_url}/interswarm/message",
        json={**body, "stream": True},
        headers={"Authorization": f"Bearer {alpha.tokens['user']}"},
        timeout=TIMEOUT,
    ) as stream:
        lines = list(stream.iter_lines())
    assert "event: interswarm_message_sent" in lines
    assert "event: task_complete" in lines


@pytest.mark.soak
def test_the_functions_call_an_agent_by_a2a(pair: Pair) -> None:
    """They have no SDK of it; polls are delayed messages of the queue of deliveries."""
    alpha, beta = pair
    made = run_mail("token", "create", "--role", "user", "--id", "partner", cwd=beta.folder)
    client("ssm", alpha.endpoint).put_parameter(
        Name=f"{SECRETS}/outbound/SWARM_AUTH_TOKEN_BETA_BY_A2A",
        Value=made.stdout.strip(),
        Type="SecureString",
    )
    register(alpha, "beta-by-a2a", f"{beta.url}/.well-known/agent-card.json")
    with alpha.client() as http:
        asked = {"body": "2+3", "targets": ["supervisor@beta-by-a2a"]}
        response = http.post("/interswarm/message", json=asked)
    assert response.status_code == 200, response.text
    assert response.json()["response"]["message"]["body"] == "2+3 = 5."


def test_mail_waits_in_its_queue_for_a_server_that_is_down(pair: Pair) -> None:
    alpha, beta = pair
    beta.kill()
    accepted = alpha.post(QUESTION, task_id="patient", headers={"Prefer": "respond-async"})
    assert accepted.status_code == 202
    eventually(lambda: "interswarm_message_error" in kinds(alpha, "patient"), "alpha has tried")
    beta.start()
    eventually(lambda: alpha.task("patient")["completed"], "beta has answered")
    (end,) = [event for event in alpha.task("patient")["events"] if event["event"] == "task_complete"]
    assert "12*(3+4) = 84." in json.loads(end["data"])["response"]
    assert kinds(alpha, "patient").count("interswarm_message_received") == 1


@pytest.mark.soak
def test_many_tasks_while_the_server_dies(pair: Pair) -> None:
    """Of both swarms; each ends with the right answer, and what one has said the other has read once."""
    alpha, beta = pair
    asked = [(alpha if n % 2 else beta, f"many {n}", n) for n in range(TASKS)]
    for server, task_id, n in asked:
        accepted = server.post(
            f"weather in Tokyo and {n}*2", task_id=task_id, headers={"Prefer": "respond-async"}
        )
        assert accepted.status_code == 202
    for _ in range(KILLS):
        time.sleep(0.3)
        beta.kill()
        time.sleep(0.3)
        beta.start()
    for server, task_id, n in asked:
        eventually(lambda at=server, of=task_id: at.task(of)["completed"], f"{task_id} has ended")  # type: ignore[misc]
        (end,) = [event for event in server.task(task_id)["events"] if event["event"] == "task_complete"]
        answer = json.loads(end["data"])["response"]
        assert f"{n}*2 = {n * 2}." in answer
        assert "The weather in Tokyo today" in answer
        assert kinds(server, task_id).count("interswarm_message_received") == 1


def test_signed_requests_come_by_a_url_of_their_own(pair: Pair) -> None:
    alpha, beta = pair
    url = re.search(r"The URL of InterswarmFunction listens on (\S+)", alpha.output)[1]  # type: ignore[index]
    assert httpx2.get(url).status_code == 403
    register(beta, "swarm-alpha", url, auth="aws_iam", metadata={"region": "us-east-1"})
    assert "The weather in Tokyo today" in beta.ask(QUESTION, task_id="signed")
    assert alpha_is_active(beta)


def alpha_is_active(beta: ServerProcess) -> bool:
    with beta.client("admin") as http:
        listed = {each["swarm_name"]: each for each in http.get("/swarms").json()["swarms"]}
    return bool(listed["swarm-alpha"]["is_active"])


def kinds(server: ServerProcess, task_id: str) -> list[str]:
    return [event["event"] for event in server.task(task_id)["events"]]
