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


ASKED = """
import sys
from samcli.commands.deploy.auth_utils import auth_per_resource
from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider
stacks, _ = SamLocalStackProvider.get_stacks(sys.argv[1])
found = auth_per_resource(stacks)
assert found
print(*(name for name, is_authorized in found if not is_authorized))
"""
"""What `sam deploy --guided` takes for open by mistake; its default answer ends the deployment."""


def test_a_guided_deployment_asks_nothing_about_authentication(tmp_path: Path) -> None:
    def asked(template: Path) -> str:
        command = [find_tool("sam", "python"), "-c", ASKED, str(template)]
        return subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True
        ).stdout.strip()

    assert asked(ROOT / "template.yaml") == ""
    text = (ROOT / "template.yaml").read_text()
    open_one = tmp_path / "template.yaml"
    open_one.write_text(text.replace("Auth: { EnableIamAuthorizer: true }", "Auth: {}"))
    assert "MessageFunction" in asked(open_one)
