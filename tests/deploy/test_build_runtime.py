"""Each function that `sam build` has made starts under Lambda's own runtime client, with nothing but its layers."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from deploy_tools import ROOT
from support.engines.lambda_runtime import (
    HOW_TO_INSTALL,
    FunctionFailed,
    LambdaRuntime,
    built_function,
    has_emulator,
)
from support.plugins.tiers import sized

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(not has_emulator(), reason=HOW_TO_INSTALL),
    pytest.mark.skipif(sys.version_info[:2] != (3, 12), reason="the functions run on Python 3.12"),
]

HTTP = ["message", "interswarm", "health", "whoami", "status", "tasks", "task", "swarms"]
NOBODY = "http://127.0.0.1:1"
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_REGION": "us-east-1",
    "AWS_ENDPOINT_URL": NOBODY,
    "MAIL_TABLE": "mail",
    "MAIL_CONFIG_PATH": "mail.toml",
    "MAIL_TURN_QUEUES": ",".join(f"{NOBODY}/123456789012/mail-turns-{tier}.fifo" for tier in range(1, 6)),
    "MAIL_DELIVERY_QUEUE": f"{NOBODY}/123456789012/mail-deliveries",
    "POWERTOOLS_METRICS_NAMESPACE": "MAIL",
    "POWERTOOLS_SERVICE_NAME": "mail",
}
"""Where no service of AWS answers, a function has to say so; for that, it has to have started."""


def ask(build: Path, module: str) -> Any:
    """What a built function makes of its sample event."""
    function = built_function(module.title().replace("_", "") + "Function", build)
    event = json.loads((ROOT / "events" / f"{module}.json").read_text(encoding="utf-8"))
    with LambdaRuntime(function, ENVIRONMENT) as running:
        return running.invoke(event)


@pytest.mark.soak
def test_the_root_answers(built: Path) -> None:
    answer = ask(built, "root")
    assert answer["statusCode"] == 200
    assert json.loads(answer["body"])["swarm"]["name"] == "example-no-proxy"


@pytest.mark.soak(on="interswarm")
@pytest.mark.parametrize("module", HTTP[: sized(fast=2, full=2, soak=len(HTTP))])
def test_a_request_is_told_that_the_store_is_away(built: Path, module: str) -> None:
    answer = ask(built, module)
    assert answer["statusCode"] == 503
    assert "try again later" in json.loads(answer["body"])["detail"]


@pytest.mark.soak(on=("outbound", "dead_letter"))
@pytest.mark.parametrize("module", ["turn", "outbound", "dead_letter"])
def test_a_token_stays_in_its_queue(built: Path, module: str) -> None:
    event = json.loads((ROOT / "events" / f"{module}.json").read_text(encoding="utf-8"))
    failed = [{"itemIdentifier": record["messageId"]} for record in event["Records"]]
    assert ask(built, module) == {"batchItemFailures": failed}


@pytest.mark.soak(on="peer_health")
@pytest.mark.parametrize("module", ["sweeper", "peer_health"])
def test_what_the_clock_calls_fails(built: Path, module: str) -> None:
    with pytest.raises(FunctionFailed, match="StoreUnavailable"):
        ask(built, module)
