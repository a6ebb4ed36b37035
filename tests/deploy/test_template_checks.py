"""What the tools for templates say to ours."""

import subprocess
from pathlib import Path

import pytest
from deploy_tools import ROOT, environment, find_tool

pytestmark = pytest.mark.timeout(300)


def test_checkov_sees_what_is_wrong(tmp_path: Path) -> None:
    text = (ROOT / "template.yaml").read_text()
    worse = tmp_path / "template.yaml"
    worse.write_text(text.replace("PointInTimeRecoveryEnabled: true", "PointInTimeRecoveryEnabled: false"))
    assert worse.read_text() != text
    checkov = find_tool("checkov", "checkov")
    command = [checkov, "--file", str(worse), "--quiet", "--compact", "--skip-download"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "AWS::DynamoDB::Table.Table" in done.stdout
