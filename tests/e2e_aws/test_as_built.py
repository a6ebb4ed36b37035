"""What `sam build` has made, run as on AWS: by its own packages alone, and started by its own script."""

import os
from pathlib import Path

import httpx2
import pytest
from support.engines.aws import ROOT
from support.processes.local_aws import LocalAwsProcess, needs_ministack

BUILD = Path(os.environ.get("MAIL_TEST_BUILD") or ROOT / ".aws-sam" / "build")

pytestmark = [
    needs_ministack,
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        not (BUILD / "template.yaml").exists() and not os.environ.get("CI"),
        reason="nothing was built; run: python3 scripts/dev.py build",
    ),
]


@pytest.mark.soak
def test_the_built_functions_answer_and_stream(tmp_path: Path) -> None:
    with LocalAwsProcess(tmp_path, template=BUILD / "template.yaml") as server:
        assert server.ask("weather in Tokyo and 12*(3+4)").endswith("12*(3+4) = 84.")
        key = {"Authorization": f"Bearer {server.tokens['user']}"}
        message = {"body": "12*(3+4)", "stream": True}
        with httpx2.stream(
            "POST", f"{server.stream_url}/message", json=message, headers=key, timeout=60
        ) as stream:
            kinds = [
                line.removeprefix("event: ") for line in stream.iter_lines() if line.startswith("event: ")
            ]
        card = httpx2.get(f"{server.protocols_url}/.well-known/agent-card.json", timeout=60).json()
        assert card["supportedInterfaces"][0]["url"] == f"{server.protocols_url}/a2a"
    assert kinds[0] == "new_message"
    assert kinds[-1] == "task_complete"
