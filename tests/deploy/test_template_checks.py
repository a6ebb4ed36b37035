"""What the tools for templates say to ours."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from deploy_tools import ROOT, environment, expand, find_tool

pytestmark = pytest.mark.timeout(300)

GRADUAL = {"Rollout": "Canary10Percent5Minutes"}


@pytest.mark.soak
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


@pytest.mark.soak
def test_a_gradual_rollout_makes_a_valid_stack(tmp_path: Path) -> None:
    """In which nothing depends on itself: functions know the URL of another, and alarms end the rollout of both."""
    (expanded,) = expand((ROOT / "template.yaml").read_text(), [GRADUAL])
    resources = expanded["Resources"]
    aliases = {name: each for name, each in resources.items() if each["Type"] == "AWS::Lambda::Alias"}
    assert len(aliases) == sum(each["Type"] == "AWS::Lambda::Function" for each in resources.values())
    for alias in aliases.values():
        group = alias["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]["DeploymentGroupName"]["Ref"]
        assert resources[group]["Properties"]["AutoRollbackConfiguration"]["Enabled"] is True
    for each in resources.values():
        if each["Type"] == "AWS::Lambda::EventSourceMapping":
            assert each["Properties"]["FunctionName"]["Ref"] in aliases
        elif each["Type"] == "AWS::Scheduler::Schedule":
            assert each["Properties"]["Target"]["Arn"]["Ref"] in aliases
    (api,) = [each for each in resources.values() if each["Type"] == "AWS::ApiGatewayV2::Api"]
    called = set(re.findall(r"functions/\$\{(\w+)\}", json.dumps(api)))
    assert len(called) >= 10
    assert called <= aliases.keys()
    path = tmp_path / "expanded.json"
    path.write_text(json.dumps(expanded))
    # SAM has used the mapping of rollouts up, and the metadata that waives the others.
    command = [find_tool("sam", "cfn-lint"), "--ignore-checks", "W7001", "W3011", "W1033", "--", str(path)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_without_a_gradual_rollout_there_is_no_codedeploy_and_with_it_no_role_without_the_boundary() -> None:
    at_once, gradual = expand((ROOT / "template.yaml").read_text(), [{}, GRADUAL])
    types = {each["Type"] for each in at_once["Resources"].values()}
    assert not [kind for kind in types if "CodeDeploy" in kind]
    roles = {name: each for name, each in gradual["Resources"].items() if each["Type"] == "AWS::IAM::Role"}
    assert [name for name, role in roles.items() if "PermissionsBoundary" not in role["Properties"]] == []


@pytest.mark.soak
def test_the_template_of_the_firewall_is_valid(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "firewall.md").read_text()
    block = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert block is not None
    path = tmp_path / "firewall.yaml"
    path.write_text(block[1])

    def lint() -> str:
        command = [
            find_tool("sam", "cfn-lint"),
            "--regions",
            "us-east-1",
            "--ignore-checks",
            "W1030",
            "--",
            str(path),
        ]
        return subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
        ).stdout

    assert lint() == ""
    path.write_text(block[1].replace("OriginReadTimeout: 60", "OriginReadTimeout: soon"))
    assert "not of type 'integer'" in lint()


ASKED = """
import sys
from samcli.commands.deploy.auth_utils import auth_per_resource
from samcli.lib.providers.sam_stack_provider import SamLocalStackProvider
for template in sys.argv[1:]:
    stacks, _ = SamLocalStackProvider.get_stacks(template)
    found = auth_per_resource(stacks)
    assert found
    print(*(name for name, is_authorized in found if not is_authorized))
"""
"""What `sam deploy --guided` takes for open by mistake, per template; its default answer ends the deployment."""


@pytest.mark.soak
def test_a_guided_deployment_asks_nothing_about_authentication(tmp_path: Path) -> None:
    ours, open_one = ROOT / "template.yaml", tmp_path / "template.yaml"
    text = ours.read_text()
    open_one.write_text(text.replace("Auth: { EnableIamAuthorizer: true }", "Auth: {}"))
    command = [find_tool("sam", "python"), "-c", ASKED, str(ours), str(open_one)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True)
    asked = done.stdout.splitlines()
    assert asked[0] == ""
    assert "MessageFunction" in asked[1]
