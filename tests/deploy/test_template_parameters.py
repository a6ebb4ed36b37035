"""What a new value of a parameter changes, by what SAM and CloudFormation make of template.yaml.

Lambda publishes a version of a function only if its code or its configuration has changed, and CloudFormation asks for
one whenever the version's resource or its description has. So both have to change together: a configuration without a
version never reaches the callers, and a version without a configuration ends the update with an error.
"""

import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from typing import Any

import pytest
from deploy_tools import ROOT, expand
from support.engines.cloudformation import Functions
from support.plugins.tiers import sized

pytestmark = pytest.mark.timeout(900)

Values = Mapping[str, str]

EXAMPLES = {
    "ModelCallsPerTurn": ["3"],
    "SwarmName": ["team"],
    "SwarmSource": ["other.json"],
    "AuthEndpoint": ["https://auth.example.com/login"],
    "TokenInfoEndpoint": ["https://auth.example.com/info"],
    "JwtIssuer": ["https://login.example.com/team", "https://login.example.com/other"],
    "JwtAudience": ["mail", "api://other"],
    "JwtClientId": ["mail-page", "other-page"],
    "SealingPublicKey": ["j0DFrbaPJWJK5bIU6nZ6bslNgp09e15a0bpvPiE4KF8=", "x" * 43 + "="],
    "SecretsPath": ["/mail/secrets", "/mail/new"],
    "SecretsKeyArn": ["arn:aws:kms:us-east-1:111122223333:key/1a2b"],
    "BedrockModels": ["arn:aws:bedrock:*::foundation-model/anthropic.claude-x"],
    "RetentionDays": ["0", "30"],
    "PeerPrincipals": ["111122223333", "111122223333,arn:aws:iam::444455556666:role/beta"],
    "PeerFunctionArns": ["arn:aws:lambda:us-east-1:444455556666:function:beta"],
    "WebAdapterArn": ["arn:aws-cn:lambda:cn-north-1:753240598075:layer:LambdaAdapterLayerX86:30"],
    "ExistingTableArn": ["arn:aws:dynamodb:us-east-1:111122223333:table/mail-restored"],
    "ExistingBucket": ["mail-bodies-copy"],
    "DomainName": ["mail.example.com"],
    "CertificateArn": ["arn:aws:acm:us-east-1:111122223333:certificate/1a2b"],
    "CorsOrigins": ["https://example.com,https://example.org"],
    "EventBus": ["default"],
    "SubnetIds": ["subnet-0a1b2c3d,subnet-1b2c3d4e", "subnet-0a1b2c3d"],
    "SecurityGroupIds": ["sg-0a1b2c3d", "sg-1b2c3d4e"],
    "PermissionsBoundaryArn": ["arn:aws:iam::111122223333:policy/boundary"],
    "AlarmEmail": ["you@example.com"],
    "AlarmTopicArn": ["arn:aws:sns:us-east-1:111122223333:alarms"],
    "EndpointUrl": ["http://localhost:4566"],
}
"""Values of the parameters that don't list theirs, and aren't numbers."""

COMPANIONS = {
    "SubnetIds": "SecurityGroupIds",
    "SecurityGroupIds": "SubnetIds",
    "JwtAudience": "JwtIssuer",
    "JwtClientId": "JwtIssuer",
    "SealingPublicKey": "JwtIssuer",
}
"""Parameters that have no effect without another one, so that the template has both set or neither."""

ACCOUNT = {"Region": "us-east-1", "AccountId": "111122223333", "Partition": "aws", "StackName": "mail"}
PSEUDO = {f"AWS::{name}": value for name, value in {**ACCOUNT, "URLSuffix": "amazonaws.com"}.items()}

NOT_VERSIONED = {"ReservedConcurrentExecutions", "RecursiveLoop", "Tags"}
"""Properties of a function that aren't part of its versions."""

FIXED = {"AWS::Lambda::Url": ("TargetFunctionArn", "Qualifier")}
"""The properties that a resource is replaced for, by types of resources whose names functions know."""


class Stack(Functions):
    """The resources that CloudFormation makes of an expanded template with these values."""

    def __init__(self, template: dict[str, Any], values: Values) -> None:
        given = {
            name: value.split(",") if template["Parameters"][name]["Type"] == "CommaDelimitedList" else value
            for name, value in values.items()
        }
        super().__init__(template, PSEUDO | given)

    def versions(self) -> Iterator[tuple[str, Any, Any]]:
        """For each function: its name, its version's resource and description, and its configuration."""
        for name, resource in self._resources.items():
            if resource["Type"] == "AWS::Lambda::Function":
                alias = self._resources[f"{name}Aliaslive"]["Properties"]
                version = alias["FunctionVersion"]["Fn::GetAtt"][0]
                description = self.resolve(self._resources[version]["Properties"]["Description"])
                found = self.resolve(resource["Properties"])
                yield name, (version, description), {k: v for k, v in found.items() if k not in NOT_VERSIONED}

    def _getatt(self, path: list[str]) -> str:
        return f"{self._reference(path[0])}.{path[1]}"

    def _reference(self, name: str) -> str:
        resource = self._resources[name]
        if resource["Type"] == "AWS::Lambda::LayerVersion":  # replaced for any property
            number = sha256(json.dumps(self.resolve(resource["Properties"])).encode()).hexdigest()
            return f"arn:aws:lambda:us-east-1:111122223333:layer:{name}:{number}"
        fixed = [self.resolve(resource["Properties"].get(each)) for each in FIXED.get(resource["Type"], ())]
        return json.dumps([name, *fixed], default=str)


def values_of(name: str, parameter: Mapping[str, Any]) -> list[str]:
    """The default of a parameter, and some other values that it may have."""
    default = str(parameter["Default"])
    allowed = [str(value) for value in parameter.get("AllowedValues", ()) if str(value) != default]
    if name in EXAMPLES:
        pattern = re.compile(parameter.get("AllowedPattern", ""))
        assert all(pattern.search(value) for value in EXAMPLES[name]), name
        return [default, *EXAMPLES[name]]
    assert allowed or parameter["Type"] == "Number", f"{name}: add an example to EXAMPLES"
    return [default, *(allowed[:2] or [str(int(default) + 1)])]


def faults(
    text: str, parameters: Mapping[str, Mapping[str, Any]], names: Collection[str], *, is_whole: bool = True
) -> set[tuple[str, str]]:
    """Each pair of a parameter and a function of which a new value changes only the version or only the configuration.

    Each parameter is changed alone: with all others at their defaults, and with all others set. Without
    `is_whole`, each gets one other value, with all others at their defaults.
    """
    default = {name: str(parameter["Default"]) for name, parameter in parameters.items()}
    full = {name: values_of(name, parameter)[1] for name, parameter in parameters.items()}

    def setting(base: Values, name: str, value: str) -> dict[str, str]:
        other = COMPANIONS.get(name)
        companion = {other: (default if value == default[name] else full)[other]} if other else {}
        return {**base, **companion, name: value}

    groups = [
        (name, [setting(base, name, value) for value in values_of(name, parameters[name])[:most]])
        for base, most in (((default, None), (full, 2)) if is_whole else ((default, 2),))
        for name in names
    ]
    settings = {json.dumps(each): each for _, group in groups for each in group}
    expanded = expand(text, list(settings.values()), has_routes=False)
    templates = dict(zip(settings, expanded, strict=True))
    found = set()
    for name, group in groups:
        versions = [list(Stack(templates[json.dumps(each)], each).versions()) for each in group]
        for before, after in itertools.combinations(versions, 2):
            for (function, version, configuration), (_, later, changed) in zip(before, after, strict=True):
                if (version == later) != (configuration == changed):
                    found.add((name, function))
    return found


@pytest.fixture(scope="module")
def text() -> str:
    return (ROOT / "template.yaml").read_text(encoding="utf-8")


def test_a_version_is_published_exactly_when_the_configuration_changes(
    text: str, template: dict[str, Any]
) -> None:
    parameters = template["Parameters"]
    assert EXAMPLES.keys() <= parameters.keys()
    some = [*parameters][:: sized(fast=4, full=4, soak=1)]
    assert faults(text, parameters, some, is_whole=len(some) == len(parameters)) == set()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("good", "bad", "parameter", "functions"),
    [
        ("${Snap}", "${SnapStart}", "SnapStart", {"Root", "Turn"}),
        ("Qualifier: live", "Qualifier: !If [IsGradual, live, !Ref AWS::NoValue]", "Rollout", {"Message"}),
        (" ${EndpointUrl}", "", "EndpointUrl", {"Root", "Stream", "Sweeper"}),
    ],
)
def test_a_version_without_a_change_and_a_change_without_a_version_are_found(
    text: str, template: dict[str, Any], good: str, bad: str, parameter: str, functions: set[str]
) -> None:
    found = faults(text.replace(good, bad), template["Parameters"], [parameter])
    assert {(parameter, f"{function}Function") for function in functions} <= found
