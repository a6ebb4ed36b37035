"""What template.yaml promises: a function per handler, a route per operation, and no permission that isn't used."""

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy_tools import METRIC_MATH, ROOT

from handlers.wiring import DELIVERY_RECEIVES, RECEIVES
from mail.adapters.aws.schema import create_table
from mail.core.protocol.message import Tier
from mail.core.task.leases import AHEAD_SECONDS

Template = dict[str, Any]

TIERS = [tier.value for tier in Tier]
OF_ONE_FUNCTION = {"TurnFunction": "TurnLayer", "ProtocolsFunction": "ProtocolsLayer"}
"""Layers with packages that no other function imports."""

STREAMING = {"StreamFunction", "ProtocolsFunction"}
SILENT = {"DeadLetterFunction", "SweeperFunction", "PeerHealthFunction"}
"""Functions that answer no request and run no turn."""

LEAST_OF_A_TIER, MOST_OF_A_TIER = 2, 1000
"""What Lambda takes for the event source of a queue."""

NEW_ACCOUNT = 10
"""The functions that a new account may run at once."""

READ = {"dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query", "s3:GetObject", "s3:ListBucket"}
CALL_MODELS = {"bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream"}
CHANGE = {
    "dynamodb:PutItem",
    "dynamodb:UpdateItem",
    "dynamodb:DeleteItem",
    "dynamodb:BatchWriteItem",
    "s3:PutObject",
    "s3:DeleteObject",
    "sqs:SendMessage",
}
TAKE = {"sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:ChangeMessageVisibility", "sqs:GetQueueAttributes"}
LOG = {"logs:CreateLogStream", "logs:PutLogEvents"}
KEEP_PEERS = {"dynamodb:GetItem", "dynamodb:Query", "dynamodb:UpdateItem", "dynamodb:DeleteItem"}
READ_TOKEN = {"ssm:GetParameter", "kms:Decrypt"}
CALL_PEERS = {"lambda:InvokeFunctionUrl", "lambda:InvokeFunction"}

ALLOWED = {
    "RootFunction": LOG,
    "HealthFunction": LOG | {"dynamodb:GetItem", "dynamodb:UpdateItem"},
    "WhoamiFunction": LOG | KEEP_PEERS | {"dynamodb:BatchWriteItem"},
    "StatusFunction": LOG | READ | {"dynamodb:UpdateItem"},
    "TasksFunction": LOG | READ | CHANGE | READ_TOKEN | {"dynamodb:Scan"},
    "TaskFunction": LOG | READ | CHANGE,  # with BreakGlass; else it may change nothing but the audit
    "ThreadsFunction": LOG | READ | {"dynamodb:UpdateItem"},
    "Mail2Function": LOG | KEEP_PEERS | {"dynamodb:BatchGetItem", "dynamodb:PutItem", "sqs:SendMessage"},
    "MessageFunction": LOG | READ | CHANGE | READ_TOKEN,
    "SwarmsFunction": LOG | KEEP_PEERS | READ_TOKEN | CALL_PEERS,
    "InterswarmFunction": LOG | READ | CHANGE,
    "StreamFunction": LOG | READ | CHANGE | READ_TOKEN | CALL_PEERS | {"dynamodb:Scan"},
    "ProtocolsFunction": LOG | READ | CHANGE,
    "TurnFunction": LOG
    | READ
    | CHANGE
    | TAKE
    | {"ssm:GetParametersByPath", "kms:Decrypt"}
    | CALL_MODELS
    | CALL_PEERS,
    "OutboundFunction": LOG | READ | CHANGE | TAKE | READ_TOKEN | CALL_PEERS,
    "DeadLetterFunction": LOG | READ | CHANGE | TAKE,
    "SweeperFunction": LOG | READ | CHANGE,
    "PeerHealthFunction": LOG | KEEP_PEERS | CALL_PEERS,
}
"""From each function to all that it may do."""

INDEXES = {
    "StatusFunction": {"tasks", "running"},
    "TasksFunction": {"tasks", "dead"},
    "ThreadsFunction": {"tasks"},
    "MessageFunction": {"tasks"},
    "InterswarmFunction": {"tasks"},
    "StreamFunction": {"tasks", "running", "dead"},
    "ProtocolsFunction": {"tasks"},
    "SweeperFunction": {"running", "tasks"},
    "OutboundFunction": {"tasks"},
}
"""From a function to the indexes that it may query."""


def of_type(template: Template, kind: str) -> dict[str, dict[str, Any]]:
    """From logical id to properties."""
    found = template["Resources"].items()
    return {name: resource["Properties"] for name, resource in found if resource["Type"] == kind}


def functions(template: Template) -> dict[str, dict[str, Any]]:
    return of_type(template, "AWS::Serverless::Function")


def modules_with_handlers() -> set[str]:
    """The modules of `handlers` that have what Lambda calls."""
    return {
        path.stem
        for path in (ROOT / "src" / "handlers").glob("*.py")
        if {"handler", "app"} & set(names_at_top_level(path))
    }


def names_at_top_level(module: Path) -> Iterator[str]:
    for node in ast.parse(module.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def references(value: Any) -> Iterator[str]:
    """Every name that the value refers to."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if key == "Ref":
                yield inner
            elif key == "Fn::GetAtt":
                yield (inner if isinstance(inner, list) else inner.split("."))[0]
            elif key == "Fn::Sub":
                text = inner[0] if isinstance(inner, list) else inner
                yield from (name.split(".")[0] for name in re.findall(r"\$\{([^}]+)\}", text))
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def statements(template: Template, role: str) -> Iterator[dict[str, Any]]:
    """What a role allows, whatever the parameters are."""
    resource = template["Resources"][role]["Properties"]
    shared = [next(references(policy)) for policy in resource.get("ManagedPolicyArns", ())]
    policies = [*resource["Policies"], *(template["Resources"][name]["Properties"] for name in shared)]
    for policy in policies:
        for statement in policy["PolicyDocument"]["Statement"]:
            yield statement["Fn::If"][1] if "Fn::If" in statement else statement


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


# --------------------------------------------------------------------------------------------- functions and routes


def test_every_handler_has_a_function_and_every_function_a_handler(template: Template) -> None:
    handlers = [properties["Handler"] for properties in functions(template).values()]
    modules = [re.fullmatch(r"handlers\.(\w+)(?:\.handler|:app)", handler) for handler in handlers]
    assert sorted(found[1] for found in modules if found) == sorted(modules_with_handlers())
    assert len(handlers) == len(set(handlers))


def test_every_operation_of_the_protocol_has_a_route_and_every_route_is_one(template: Template) -> None:
    routes = [
        (event["Properties"]["Method"], event["Properties"]["Path"].replace("+}", "}"))
        for properties in functions(template).values()
        for event in properties.get("Events", {}).values()
        if event["Type"] == "HttpApi" and "Path" in event["Properties"]
    ]
    document = yaml.safe_load((ROOT / "spec" / "openapi.yaml").read_text(encoding="utf-8"))
    operations = [(verb.upper(), path) for path, item in document["paths"].items() for verb in item]
    operations.remove(("GET", "/metrics"))  # functions keep none; CloudWatch has theirs
    operations += [
        (verb, "/approvals/{approval_id}/{token}") for verb in ("GET", "POST")
    ]  # a page for people
    operations += [("GET", "/v2"), ("ANY", "/v2/{path}")]  # MAIL 2.0, with a document of its own
    assert sorted(routes) == sorted(operations)


def test_what_no_route_takes_goes_to_one_function(template: Template) -> None:
    default = [
        name
        for name, properties in functions(template).items()
        for event in properties.get("Events", {}).values()
        if event["Type"] == "HttpApi" and "Path" not in event["Properties"]
    ]
    assert default == ["RootFunction"]


def test_only_one_function_has_what_only_it_needs(template: Template) -> None:
    for name, properties in functions(template).items():
        own = {layer["Ref"] for layer in properties["Layers"] if "Ref" in layer}
        assert own == {OF_ONE_FUNCTION.get(name, "ApiLayer")}, name


def test_functions_that_check_keys_know_the_identity_provider(template: Template) -> None:
    named = {"MAIL_JWT_ISSUER", "MAIL_JWT_AUDIENCE", "MAIL_JWT_CLIENT_ID"}
    for name, properties in functions(template).items():
        variables = properties.get("Environment", {}).get("Variables", {})
        checks = "AUTH_ENDPOINT" in variables or name == "PeerHealthFunction"
        assert named & variables.keys() == (named if checks else set()), name
        layers = set(references(properties["Layers"])) & {"IdentityLayer", "ProtocolsLayer"}
        assert len(layers) == checks, name


def test_functions_behind_the_http_api_end_before_it_gives_up(template: Template) -> None:
    shared = template["Globals"]["Function"]["Timeout"]
    for name, properties in functions(template).items():
        if any(event["Type"] == "HttpApi" for event in properties.get("Events", {}).values()):
            assert properties.get("Timeout", shared) == 29, name


def test_what_steps_turns_may_call_itself(template: Template) -> None:
    for name, properties in functions(template).items():
        takes_from_queues = any(event["Type"] == "SQS" for event in properties.get("Events", {}).values())
        assert (properties.get("RecursiveLoop") == "Allow") == takes_from_queues, name


@pytest.mark.parametrize("name", sorted(STREAMING))
def test_the_streaming_functions_stream(template: Template, name: str) -> None:
    properties = functions(template)[name]
    variables = properties["Environment"]["Variables"]
    assert template["Resources"][f"{name}Url"]["Properties"]["InvokeMode"] == "RESPONSE_STREAM"
    assert variables["AWS_LWA_INVOKE_MODE"] == "response_stream"
    assert variables["AWS_LAMBDA_EXEC_WRAPPER"] == "/opt/run.sh"
    assert properties["Timeout"] == 900


# ----------------------------------------------------------------------------------------------------------- queues


def test_there_is_a_queue_with_dead_letters_for_each_tier(template: Template) -> None:
    queues = of_type(template, "AWS::SQS::Queue")
    of_tiers = {f"{kind}{tier}" for kind in ("Turns", "Dead") for tier in TIERS}
    assert queues.keys() == of_tiers | {"DeliveryQueue", "DeadDeliveryQueue", "DeadTaskEvents"}
    for tier in TIERS:
        redrive = queues[f"Turns{tier}"]["RedrivePolicy"]
        assert next(references(redrive["deadLetterTargetArn"])) == f"Dead{tier}"
        assert redrive["maxReceiveCount"] == RECEIVES
    for name in of_tiers:
        properties = queues[name]
        assert properties["FifoQueue"] is True, name
        assert properties["DeduplicationScope"] == "messageGroup", name
        assert properties["FifoThroughputLimit"] == "perMessageGroupId", name


def test_mail_to_other_swarms_has_a_queue_that_can_hold_it_back(template: Template) -> None:
    """Only a standard queue knows a delay per message; its dead letters go to one of its kind."""
    queues = of_type(template, "AWS::SQS::Queue")
    delivery, dead = queues["DeliveryQueue"], queues["DeadDeliveryQueue"]
    assert "FifoQueue" not in delivery
    assert "FifoQueue" not in dead
    assert next(references(delivery["RedrivePolicy"]["deadLetterTargetArn"])) == "DeadDeliveryQueue"
    assert delivery["RedrivePolicy"]["maxReceiveCount"] == DELIVERY_RECEIVES
    assert delivery["VisibilityTimeout"] >= functions(template)["OutboundFunction"]["Timeout"] + 30


def test_the_sweeper_comes_twice_at_least_in_the_time_that_it_looks_ahead(template: Template) -> None:
    """Once more than it takes to be in time: a schedule may be late by a minute."""
    (tick,) = functions(template)["SweeperFunction"]["Events"].values()
    assert tick["Properties"]["ScheduleExpression"] == "rate(1 minute)"
    assert AHEAD_SECONDS >= 2 * 60


def test_queues_are_encrypted_and_dead_letters_are_kept_for_long(template: Template) -> None:
    for name, properties in of_type(template, "AWS::SQS::Queue").items():
        assert properties["SqsManagedSseEnabled"] is True, name
        if name.startswith("Dead"):
            assert properties["MessageRetentionPeriod"] == 14 * 24 * 3600, name


@pytest.mark.parametrize(
    ("function", "queues"),
    [
        ("TurnFunction", [f"Turns{tier}" for tier in TIERS]),
        ("OutboundFunction", ["DeliveryQueue"]),
        ("DeadLetterFunction", [*(f"Dead{tier}" for tier in TIERS), "DeadDeliveryQueue"]),
    ],
)
def test_queues_feed_their_function_one_message_at_a_time(
    template: Template, function: str, queues: list[str]
) -> None:
    events = [event["Properties"] for event in functions(template)[function]["Events"].values()]
    assert [next(references(event["Queue"])) for event in events] == queues
    for event in events:
        assert event["BatchSize"] == 1
        assert event["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert "MaximumConcurrency" in event["ScalingConfig"]
        assert ("Enabled" in event) == (function == "TurnFunction"), "workers may run turns in its place"


def _if_so(given: Any) -> Any:
    """What a value is where its condition holds."""
    return given["Fn::If"][1] if isinstance(given, dict) and "Fn::If" in given else given


def test_publishers_get_the_queues_in_the_order_of_their_tiers(template: Template) -> None:
    publishers = set()
    for name, properties in functions(template).items():
        variables = properties.get("Environment", {}).get("Variables", {})
        urls, deliveries = (
            _if_so(variables.get(each)) for each in ("MAIL_TURN_QUEUES", "MAIL_DELIVERY_QUEUE")
        )
        if urls is not None:
            publishers.add(name)
            assert urls == {"Fn::Join": [",", [{"Ref": f"Turns{tier}"} for tier in TIERS]]}
            assert deliveries == {"Ref": "DeliveryQueue"}
    senders = {name for name, allowed in ALLOWED.items() if "sqs:SendMessage" in allowed}
    assert publishers == senders - {"Mail2Function"}, "its mail to agents is delivered by OutboundFunction"


def test_a_message_stays_hidden_for_longer_than_its_turn_may_take(template: Template) -> None:
    allowed = template["Parameters"]["TurnSeconds"]["AllowedValues"]
    limits = template["Mappings"]["TurnLimits"]
    assert limits.keys() == {str(seconds) for seconds in allowed}
    for seconds in allowed:
        assert limits[str(seconds)]["Hidden"] == seconds + 30
        assert limits[str(seconds)]["Late"] >= 2 * limits[str(seconds)]["Hidden"]
    queues, dead_letters = of_type(template, "AWS::SQS::Queue"), functions(template)["DeadLetterFunction"]
    for tier in TIERS:
        assert queues[f"Turns{tier}"]["VisibilityTimeout"] == {
            "Fn::FindInMap": ["TurnLimits", {"Ref": "TurnSeconds"}, "Hidden"]
        }
        assert queues[f"Dead{tier}"]["VisibilityTimeout"] >= dead_letters["Timeout"] + 30
    assert queues["DeadDeliveryQueue"]["VisibilityTimeout"] >= dead_letters["Timeout"] + 30


def test_functions_keep_the_shares_of_tiers_beside_workers(template: Template) -> None:
    events = template["Resources"]["TurnFunction"]["Properties"]["Events"]
    for tier in TIERS:
        most = events[f"Tier{tier}"]["Properties"]["ScalingConfig"]["MaximumConcurrency"]
        assert most == {"Fn::FindInMap": ["TurnShares", {"Ref": "TurnConcurrency"}, f"Tier{tier}"]}


def test_chatter_leaves_turns_to_people_who_may_take_all(template: Template) -> None:
    allowed = template["Parameters"]["TurnConcurrency"]["AllowedValues"]
    shares = template["Mappings"]["TurnShares"]
    assert shares.keys() == {str(total) for total in allowed}
    for total, share in ((int(total), share) for total, share in shares.items()):
        chatter = share["Tier4"] + share["Tier5"]
        urgent = {share[f"Tier{tier}"] for tier in (1, 2, 3)}
        assert urgent == {min(total, MOST_OF_A_TIER) if total > NEW_ACCOUNT else LEAST_OF_A_TIER}
        assert chatter <= 0.8 * total
        assert 2 <= share["Deliveries"] <= max(2, total / 5)
        assert min(share.values()) >= LEAST_OF_A_TIER
        assert max(share.values()) <= MOST_OF_A_TIER


def test_by_default_a_new_account_has_room_for_requests_beside_its_turns(template: Template) -> None:
    """Not while all queues have mail: Lambda takes no less than two for each, and there are six of them."""
    parameters = template["Parameters"]
    assert parameters["TurnConcurrency"]["Default"] == NEW_ACCOUNT
    assert parameters["StreamConcurrency"]["Default"] == 0, "it has none to reserve"
    share = template["Mappings"]["TurnShares"][str(NEW_ACCOUNT)]
    assert NEW_ACCOUNT - sum(share[f"Tier{tier}"] for tier in (2, 3, 5)) >= 2
    assert sum(share.values()) - len(share) * LEAST_OF_A_TIER <= 2, "no more than it must be"
    about = " ".join(parameters["TurnConcurrency"]["Description"].split())
    assert "six turns of chatter, and two of each of the others" in about
    assert (share["Tier4"] + share["Tier5"], *(share[f"Tier{tier}"] for tier in (1, 2, 3))) == (6, 2, 2, 2)


# ------------------------------------------------------------------------------------------------------ permissions


def test_every_function_has_a_role_of_its_own(template: Template) -> None:
    roles = [next(references(properties["Role"])) for properties in functions(template).values()]
    assert sorted([*roles, "TaskEventsRole", "RolloutRole"]) == sorted(of_type(template, "AWS::IAM::Role"))


def test_nothing_is_allowed_that_has_no_name(template: Template) -> None:
    for role in of_type(template, "AWS::IAM::Role").keys() - {"RolloutRole"}:  # it has AWS's own policy
        for statement in statements(template, role):
            if statement["Effect"] == "Deny":
                continue
            assert not [action for action in listed(statement["Action"]) if "*" in action], role
            for resource in listed(statement["Resource"]):
                assert list(references(resource)), f"{role}: {resource} names nothing of this stack"


def test_functions_may_do_what_they_need_and_no_more(template: Template) -> None:
    allowed = {
        name: {
            action
            for statement in statements(template, next(references(properties["Role"])))
            for action in listed(statement["Action"])
        }
        for name, properties in functions(template).items()
    }
    assert allowed == ALLOWED


def test_functions_query_the_indexes_that_they_need(template: Template) -> None:
    for name, properties in functions(template).items():
        text = json.dumps(list(statements(template, next(references(properties["Role"])))))
        assert set(re.findall(r"index/(\w+)", text)) == INDEXES.get(name, set()), name


def test_functions_write_only_their_own_log(template: Template) -> None:
    for name, properties in functions(template).items():
        log = properties["LoggingConfig"]["LogGroup"]["Ref"]
        for statement in statements(template, next(references(properties["Role"]))):
            if set(listed(statement["Action"])) == LOG:
                assert list(references(statement["Resource"])) == [log], name
        assert of_type(template, "AWS::Logs::LogGroup")[log]["RetentionInDays"] == {"Ref": "LogDays"}


def test_only_turns_see_secrets(template: Template) -> None:
    """Those that call other swarms or webhooks may read what they need for that, one by one, and nothing else."""
    read_all, read_tokens, read_secrets = set(), set(), set()
    for name, properties in functions(template).items():
        for statement in statements(template, next(references(properties["Role"]))):
            for action in listed(statement["Action"]):
                if action == "ssm:GetParametersByPath":
                    read_all.add(name)
                elif action.startswith("ssm:"):
                    kind = statement["Resource"]["Fn::Sub"].rpartition("${SecretsPath}/outbound/")[2]
                    {"SWARM_AUTH_TOKEN_*": read_tokens, "WEBHOOK_SECRET_*": read_secrets}[kind].add(name)
    assert read_all == {"TurnFunction"}
    assert read_tokens == {"SwarmsFunction", "StreamFunction", "OutboundFunction"}
    assert read_secrets == {"MessageFunction", "TasksFunction", "StreamFunction", "OutboundFunction"}
    knows_where = {
        name for name, properties in functions(template).items() if "SecretsPath" in references(properties)
    }
    assert knows_where == read_all | read_tokens | read_secrets


# ------------------------------------------------------------------------------------------------- signed requests


def test_other_swarms_may_call_a_function_url_if_they_are_named(template: Template) -> None:
    """New function URLs want both actions allowed: https://docs.aws.amazon.com/lambda/latest/dg/urls-auth.html"""
    url = template["Resources"]["PeerUrl"]
    assert url["Condition"] == "HasPeers"
    assert url["Properties"]["TargetFunctionArn"] == {"Ref": "InterswarmFunction"}
    assert url["Properties"]["AuthType"] == "AWS_IAM"
    given: dict[tuple[str, int], list[Any]] = {}
    for name, resource in template["Resources"].items():
        properties = resource.get("Properties", {})
        if resource["Type"] == "AWS::Lambda::Permission" and properties["Principal"] != "*":
            assert properties["FunctionName"] == {"Ref": "InterswarmFunction.Alias"}, name
            place, items = properties["Principal"]["Fn::Select"]
            assert items == {"Fn::Split": [",", {"Fn::Sub": ",".join(["${PeerPrincipals}"] * 3)}]}
            assert resource["Condition"] == "HasPeers"
            given[properties["Action"], place] = [
                properties.get("FunctionUrlAuthType"),
                properties.get("InvokedViaFunctionUrl"),
            ]
    assert given == {
        **{("lambda:InvokeFunctionUrl", place): ["AWS_IAM", None] for place in range(3)},
        **{("lambda:InvokeFunction", place): [None, True] for place in range(3)},
    }


@pytest.mark.parametrize(
    ("principals", "fits"),
    [
        ("", True),
        ("111122223333", True),
        ("111122223333,arn:aws:iam::444455556666:role/beta,777788889999", True),
        ("111122223333,444455556666,777788889999,123456789012", False),
        ("1111", False),
        ("*", False),
        ("111122223333,", False),
    ],
)
def test_principals_are_accounts_or_roles_and_three_at_most(
    template: Template, principals: str, fits: bool
) -> None:
    pattern = template["Parameters"]["PeerPrincipals"]["AllowedPattern"]
    assert (re.search(pattern, principals) is not None) == fits


def test_functions_that_call_peers_may_only_use_their_urls(template: Template) -> None:
    by_url, invoke = template["Resources"]["CallPeers"]["Properties"]["PolicyDocument"]["Statement"]
    assert by_url["Condition"] == {"StringEquals": {"lambda:FunctionUrlAuthType": "AWS_IAM"}}
    assert invoke["Condition"] == {"Bool": {"lambda:InvokedViaFunctionUrl": "true"}}
    assert by_url["Resource"] == invoke["Resource"] == {"Fn::Split": [",", {"Ref": "PeerFunctionArns"}]}


ANTHROPIC = "arn:aws:bedrock:*::foundation-model/anthropic.claude-x"


@pytest.mark.parametrize(
    ("models", "fits"),
    [
        ("", True),
        (ANTHROPIC, True),
        (f"{ANTHROPIC},arn:aws:bedrock:*:*:inference-profile/eu.x", True),
        ("claude", False),
    ],
)
def test_models_of_bedrock_are_arns(template: Template, models: str, fits: bool) -> None:
    pattern = template["Parameters"]["BedrockModels"]["AllowedPattern"]
    assert (re.search(pattern, models) is not None) == fits


def test_only_turns_may_call_models_of_bedrock(template: Template) -> None:
    (permit,) = _values(template["Resources"], "CallsBedrock")
    assert permit[1] == {
        "Effect": "Allow",
        "Action": ["bedrock:InvokeModel", "bedrock:InvokeModelWithResponseStream"],
        "Resource": {"Fn::Split": [",", {"Ref": "BedrockModels"}]},
    }
    assert permit in _values(template["Resources"]["RunTurns"], "CallsBedrock")
    for name, properties in of_type(template, "AWS::IAM::Role").items():
        assert ({"Ref": "RunTurns"} in properties.get("ManagedPolicyArns", ())) == (name == "TurnRole"), name


def _values(node: Any, condition: str) -> list[Any]:
    """The arguments of each `Fn::If` with a condition."""
    if isinstance(node, dict):
        found = [node["Fn::If"]] if node.get("Fn::If", [None])[0] == condition else []
        return found + [each for value in node.values() for each in _values(value, condition)]
    return [each for value in node for each in _values(value, condition)] if isinstance(node, list) else []


# -------------------------------------------------------------------------------------------------------- versions


def test_new_code_publishes_a_new_version_and_keeps_the_earlier_one(template: Template) -> None:
    shared = template["Globals"]["Function"]
    layers = of_type(template, "AWS::Serverless::LayerVersion")
    for name, properties in functions(template).items():
        assert properties["AutoPublishAliasAllProperties"] is True
        assert template["Resources"][name]["UpdateReplacePolicy"] == "Retain"
        for layer in (*shared["Layers"], *properties["Layers"]):
            if layer.get("Ref") in layers:
                assert layers[layer["Ref"]]["PublishLambdaVersion"] is True
    assert "VersionDeletionPolicy" not in shared, "SAM's default keeps them, too"


def test_http_functions_start_from_snapshots_where_that_is_wanted(template: Template) -> None:
    """The others run all the time, and the runtime of the streaming function is not Python's."""
    shared = template["Globals"]["Function"]["SnapStart"]
    assert shared == {"ApplyOn": {"Fn::If": ["HttpUsesSnapStart", "PublishedVersions", "None"]}}
    other = {name: each["SnapStart"] for name, each in functions(template).items() if "SnapStart" in each}
    assert other.pop("TurnFunction") == {
        "ApplyOn": {"Fn::If": ["UsesSnapStart", "PublishedVersions", "None"]}
    }
    never = (
        *STREAMING,
        "OutboundFunction",
        "DeadLetterFunction",
        "SweeperFunction",
        "PeerHealthFunction",
    )
    assert other == {name: {"ApplyOn": "None"} for name in never}


LONG = {
    "DomainName",
    "SwarmName",
    "SwarmSource",
    "SecretsPath",
    "AuthEndpoint",
    "TokenInfoEndpoint",
    "EndpointUrl",
    "ExistingTableArn",
    "ExistingBucket",
    "SubnetIds",
    "SecurityGroupIds",
    "WebAdapterArn",
}
"""Parameters whose values may have any length, or are mostly much shorter than they may be."""

NUMBER_OF_LAYER = {
    "Fn::Join": ["", [" ", {"Fn::Select": [7, {"Fn::Split": [":", {"Ref": "IdentityLayer"}]}]}]]
}
"""What stands for the parameters of the identity provider: each of their values makes another version of the layer."""

TOGETHER = 182
"""How many characters these may have, by docs/deploy.md."""


def test_the_description_of_a_version_fits(template: Template) -> None:
    parameters = template["Parameters"]

    def longest(name: str) -> str:
        parameter = parameters[name]
        known = [*map(str, parameter.get("AllowedValues", ())), str(parameter.get("MaxValue", ""))]
        return max([*known, "x" * 5], key=len)

    for name, properties in functions(template).items():
        text = properties["VersionDescription"]["Fn::Sub"]
        if isinstance(text, list):
            own = {name: value["Fn::If"][1] for name, value in text[1].items()}
            assert own.pop("Snap", " snap") == " snap"
            assert own.pop("NoMail2", "") == ""
            assert own in ({}, {"Issuer": NUMBER_OF_LAYER}), name
            text = (
                text[0].replace("${Snap}", " snap").replace("${Issuer}", " 99999").replace("${NoMail2}", "-")
            )
        fixed = re.sub(r"\$\{(\w+)\}", lambda found: "" if found[1] in LONG else longest(found[1]), text)
        assert len(fixed) + TOGETHER <= 256, name
    assert f"may have {TOGETHER} characters together" in (ROOT / "docs" / "deploy.md").read_text()


def test_turns_know_a_url_for_callbacks(template: Template) -> None:
    """That of the function that streams, as one behind the HTTP API would wait for turns, and turns for it."""
    url = functions(template)["TurnFunction"]["Environment"]["Variables"]["MAIL_BASE_URL"]
    own = {"Fn::Sub": "https://${DomainName}"}
    assert url == {"Fn::If": ["HasDomain", own, {"Fn::GetAtt": ["StreamFunctionUrl", "FunctionUrl"]}]}


def test_functions_that_use_the_host_of_mail2_have_the_same(template: Template) -> None:
    """RootFunction serves `GET /v2/` alone, which names no host; the sweeper takes the one that these have stored."""
    named = {
        name: each["Environment"]["Variables"].get("MAIL_HOST")
        for name, each in functions(template).items()
        if "MAIL_SERVES_MAIL2" in each.get("Environment", {}).get("Variables", {})
        or name == "OutboundFunction"
    }
    assert named.pop("RootFunction") is None
    assert named.keys() == {"Mail2Function", "StreamFunction", "OutboundFunction"}
    assert all(host == {"Ref": "DomainName"} for host in named.values())


def test_the_cost_page_counts_what_is_billed(template: Template) -> None:
    alarms = of_type(template, "AWS::CloudWatch::Alarm")
    by_condition: Counter[str] = Counter()
    for name, properties in alarms.items():
        by_condition[template["Resources"][name].get("Condition", "")] += (
            len(measured(properties)) if "Metrics" in properties else 1
        )
    always = by_condition[""] + by_condition["LimitsModelCalls"]
    page = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    assert f"{always}, and {by_condition['IsGradual']} more with gradual rollouts" in page


def test_an_update_is_rolled_back_when_any_new_version_fails(template: Template) -> None:
    rollouts = template["Mappings"]["Rollouts"]
    assert [*rollouts] == template["Parameters"]["Rollout"]["AllowedValues"]
    assert {name for name, of in rollouts.items() if of["IsGradual"] == "false"} == {"AllAtOnce"}
    resources = template["Resources"]
    for name, properties in functions(template).items():
        condition, alarms, otherwise = properties["DeploymentPreference"]["Alarms"]["Fn::If"]
        watched = [alarm["Ref"] for alarm in alarms]
        assert (condition, otherwise) == ("IsGradual", [{"Ref": "AWS::NoValue"}])
        answers = "RolloutStreamFailuresAlarm" if name == "StreamFunction" else "RolloutTurnsAlarm"
        assert answers in watched
        failing = {
            metric["Dimensions"][0]["Value"]["Ref"]
            for alarm in watched
            for metric in measured(resources[alarm]["Properties"])
            if metric["Namespace"] == "AWS/Lambda"
        }
        assert failing == ({name} if name == "StreamFunction" else functions(template).keys())
        for alarm in watched:
            assert resources[alarm]["Condition"] == "IsGradual"
            rule = resources[alarm]["Properties"]
            own = {metric["Namespace"] for metric in measured(rule)} == {"MAIL"}
            assert rule.get("DatapointsToAlarm", rule["EvaluationPeriods"]) == (2 if own else 1)
            assert len(measured(rule)) <= 10, "an alarm has no more"


def test_the_failures_that_lambda_does_not_count_are_those_of_new_versions(template: Template) -> None:
    counted = set()
    for alarm in ("RolloutFailuresAlarm", "RolloutStreamFailuresAlarm", "RolloutTurnsAlarm"):
        for metric in measured(template["Resources"][alarm]["Properties"]):
            service, version = metric["Dimensions"]
            assert service == {"Name": "service", "Value": {"Ref": "AWS::StackName"}}
            (separator, (name, number)) = version["Value"]["Fn::Join"]
            assert (version["Name"], separator) == ("version", ":"), "as `write_failure` has it"
            assert number == {"Fn::GetAtt": [name["Ref"], "Version.Version"]}
            counted.add((metric["MetricName"], name["Ref"]))
    of_queues = {("FailedTurns", "TurnFunction"), ("FailedDeliveries", "OutboundFunction")}
    answering = functions(template).keys() - {name for _, name in of_queues} - SILENT
    assert counted == of_queues | {("ServerErrors", name) for name in answering}


def measured(alarm: dict[str, Any]) -> list[dict[str, Any]]:
    """The metrics of an alarm that are not calculated."""
    return [each["MetricStat"]["Metric"] for each in alarm["Metrics"] if "MetricStat" in each]


def test_function_urls_reach_the_version_that_is_rolled_out(template: Template) -> None:
    of_streams = {f"{name}Url": name for name in STREAMING}
    for name, function in {**of_streams, "PeerUrl": "InterswarmFunction"}.items():
        url = template["Resources"][name]
        assert url["Properties"]["Qualifier"] == "live"
        assert url["DependsOn"] == f"{function}Aliaslive"
    for properties in of_type(template, "AWS::Lambda::Permission").values():
        assert properties["FunctionName"]["Ref"].endswith(".Alias")


# ------------------------------------------------------------------------------------------------------------- data


class Recorder:
    """A client of DynamoDB that only remembers how the table was to be made."""

    def __init__(self) -> None:
        self.calls: dict[str, dict[str, Any]] = {}

    async def call(self, operation: str, **arguments: Any) -> dict[str, Any]:
        self.calls[operation] = arguments
        return {"Table": {"TableStatus": "ACTIVE"}}


async def test_the_table_is_the_one_that_the_store_makes_for_itself(template: Template) -> None:
    recorder = Recorder()
    await create_table(recorder, "mail")  # type: ignore[arg-type]
    table = of_type(template, "AWS::DynamoDB::Table")["Table"]
    made = recorder.calls["create_table"]
    for key in ("AttributeDefinitions", "KeySchema", "GlobalSecondaryIndexes", "BillingMode"):
        assert table[key] == made[key]
    specification = recorder.calls["update_time_to_live"]["TimeToLiveSpecification"]
    assert table["TimeToLiveSpecification"] == specification
    assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
    assert table["SSESpecification"] == {"SSEEnabled": True}


def test_data_outlives_the_stack(template: Template) -> None:
    for name in ("Table", "Bodies"):
        assert template["Resources"][name]["DeletionPolicy"] == "RetainExceptOnCreate"
        assert template["Resources"][name]["UpdateReplacePolicy"] == "Retain"


def test_the_table_and_bucket_of_the_parameters_are_used_if_they_are_given(template: Template) -> None:
    choices = {"UsesExistingTable": "ExistingTableArn", "UsesExistingBucket": "ExistingBucket"}
    template = deepcopy(template)
    for condition, parameter in choices.items():
        for choice in _values(template, condition):
            assert parameter in references(choice[1])
            choice[2] = None
    of_the_own = ("Table", "Bodies", "BodiesPolicy", "TaskEvents", "TaskEventsRole")
    others = {name: each for name, each in template["Resources"].items() if name not in of_the_own}
    used = {*references(others), *references(template["Globals"]), *references(template["Outputs"])}
    assert not used & {"Table", "Bodies"}


def test_two_regions_of_an_account_have_a_stack_of_the_same_name(template: Template) -> None:
    """Dashboards, roles, policies and buckets are known in all regions; CloudFormation names all but the first."""
    dashboard = of_type(template, "AWS::CloudWatch::Dashboard")["Dashboard"]
    assert dashboard["DashboardName"] == {"Fn::Sub": "${AWS::StackName}-${AWS::Region}"}
    for kind, key in (
        ("AWS::IAM::Role", "RoleName"),
        ("AWS::IAM::ManagedPolicy", "ManagedPolicyName"),
        ("AWS::S3::Bucket", "BucketName"),
    ):
        assert not [name for name, properties in of_type(template, kind).items() if key in properties]


def test_a_new_account_can_deploy_the_defaults(template: Template) -> None:
    """It may run ten functions at once, and Lambda refuses to reserve any of them."""
    assert template["Parameters"]["StreamConcurrency"]["Default"] == 0
    reserved = {
        name: properties["ReservedConcurrentExecutions"]
        for name, properties in functions(template).items()
        if "ReservedConcurrentExecutions" in properties
    }
    limit = {"Fn::If": ["LimitsStreams", {"Ref": "StreamConcurrency"}, {"Ref": "AWS::NoValue"}]}
    assert reserved == dict.fromkeys(STREAMING, limit)


def test_functions_but_those_that_stream_can_live_in_a_vpc(template: Template) -> None:
    """Lambda makes their network interfaces with their role, so it needs the permission before the function."""
    shared = template["Globals"]["Function"]["VpcConfig"]
    assert shared["Fn::If"][0] == "IsInVpc"
    policy = template["Resources"]["UseNetwork"]["Properties"]
    inside = functions(template).keys() - STREAMING
    assert {role["Ref"] for role in policy["Roles"]} == {
        next(references(functions(template)[name]["Role"])) for name in inside
    }
    assert all(template["Resources"][name]["DependsOn"] == "UseNetwork" for name in inside)
    assert all(functions(template)[name]["VpcConfig"] == {"Ref": "AWS::NoValue"} for name in STREAMING)
    deny, allow = policy["PolicyDocument"]["Statement"]
    assert deny["Effect"] == "Deny"
    assert "lambda:SourceFunctionArn" in deny["Condition"]["ArnLike"], "the code of a function"
    assert allow["Fn::If"][0] == "IsInVpc"
    assert all(action.startswith("ec2:") for action in allow["Fn::If"][1]["Action"])


# --------------------------------------------------------------------------------------------------------- watching


def test_every_queue_and_function_is_watched(template: Template) -> None:
    alarms = of_type(template, "AWS::CloudWatch::Alarm")
    watched = {name for alarm in alarms.values() for name in references(alarm)}
    assert functions(template).keys() <= watched
    assert of_type(template, "AWS::SQS::Queue").keys() <= watched
    for name, alarm in alarms.items():
        assert len(alarm.get("Metrics", ())) <= 10 + 1, f"{name}: ten metrics and an expression at most"


@pytest.mark.parametrize(
    ("calls", "turns", "raises"),
    [
        pytest.param(20, 10, True, id="ten turns lose their output within seconds"),
        pytest.param(20, None, True, id="turns call, and none of them ends"),
        pytest.param(20, 18, False, id="a few calls are repeated"),
        pytest.param(2, 1, False, id="the only turn makes a summary first"),
    ],
)
def test_one_burst_of_repeated_model_calls_raises_the_alarm(
    template: Template, calls: int, turns: int | None, raises: bool
) -> None:
    alarm = template["Resources"]["RepeatedModelCallsAlarm"]["Properties"]
    assert alarm["EvaluationPeriods"] == 1
    *metrics, ratio = alarm["Metrics"]
    assert {each["MetricStat"]["Period"] for each in metrics} == {15 * 60}
    assert alarm["ComparisonOperator"] == "GreaterThanThreshold"
    assert alarm["TreatMissingData"] == "notBreaching"
    value = eval(ratio["Expression"], dict(METRIC_MATH), {"calls": calls, "turns": turns})
    assert (value > template["Parameters"]["ModelCallsPerTurn"]["Default"]) is raises


def test_the_dashboard_is_json_and_shows_our_metrics(template: Template) -> None:
    body = of_type(template, "AWS::CloudWatch::Dashboard")["Dashboard"]["DashboardBody"]["Fn::Sub"][0]
    widgets = json.loads(body)["widgets"]
    shown = {
        metric[1] for widget in widgets for metric in widget["properties"]["metrics"] if metric[0] == "MAIL"
    }
    of_turns = {"Turns", "TurnSeconds", "AgentSeconds", "Conflicts", "DeadLetters"}
    assert shown == of_turns | {"DeliveryAttempts", "DeliverySeconds", "ActivePeers", "SilentPeers"}
    places = [(widget["x"], widget["y"]) for widget in widgets]
    assert len(places) == len(set(places))


# ------------------------------------------------------------------------------------------------------------- docs


def test_every_parameter_is_documented(template: Template) -> None:
    text = (ROOT / "docs" / "deploy.md").read_text(encoding="utf-8")
    missing = [name for name in template["Parameters"] if f"`{name}`" not in text]
    assert not missing
    used = set(re.findall(r"\b([A-Z][a-z]\w+)=(?!=)", text))
    assert used <= template["Parameters"].keys()
    for name in template["Outputs"]:
        assert name in text, name
