"""Whether the roles of a template allow requests to AWS: the part of IAM's rules that the template uses.

    roles = Roles(read_template(ROOT / "template.yaml"))
    allowed = all(roles.allow("TurnRole", each) for each in asks("dynamodb", "PutItem", parameters))

No engine on this machine knows the partition keys of DynamoDB as conditions. What this doesn't know raises, so that
nothing counts as allowed or refused unseen. Rules:
https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-single-vs-multi-valued-context-keys.html
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/specifying-conditions.html
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.engines.cloudformation import Functions

ACCOUNT, REGION = "123456789012", "us-east-1"
PARAMETERS = {"SecretsPath": "/mail/secrets", "SecretsKeyArn": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/own"}
"""The values of parameters that have no default which creates everything."""

_PSEUDO = {
    "AWS::Partition": "aws",
    "AWS::Region": REGION,
    "AWS::AccountId": ACCOUNT,
    "AWS::StackName": "mail",
}


@dataclass(frozen=True)
class Ask:
    """What a service asks IAM about a request.

    Attributes:
        resource: the ARN, in which a resource of the template has its logical name.
        context: the condition keys and their values.
    """

    action: str
    resource: str
    context: Mapping[str, Sequence[str]] = field(default_factory=dict)


class Roles(Functions):
    """The policies of a template's roles, with its parameters resolved."""

    def __init__(self, template: Mapping[str, Any], **parameters: str) -> None:
        defaults = {name: str(each.get("Default", "")) for name, each in template["Parameters"].items()}
        super().__init__(template, {**_PSEUDO, **defaults, **PARAMETERS, **parameters})

    def allow(self, role: str, ask: Ask) -> bool:
        """Return whether a role allows a request: a statement does, and none denies it."""
        effects = {each["Effect"] for each in self.statements(role) if _applies(each, ask)}
        return effects == {"Allow"}

    def statements(self, role: str) -> list[dict[str, Any]]:
        """Return the statements of all policies of a role."""
        inline = self._resources[role]["Properties"]["Policies"]
        policies = [*inline, *(self._resources[name]["Properties"] for name in self.shared(role))]
        return [each for policy in policies for each in self.resolve(policy["PolicyDocument"]["Statement"])]

    def shared(self, role: str) -> list[str]:
        """Return the managed policies of a role: those that it names, and those that name it."""
        naming = [
            name
            for name, each in self._resources.items()
            if {"Ref": role} in each.get("Properties", {}).get("Roles", ())
            and ("Condition" not in each or self._holds(each["Condition"]))
        ]
        return [*self.resolve(self._resources[role]["Properties"].get("ManagedPolicyArns", [])), *naming]

    def _getatt(self, path: list[str]) -> str:
        return self._arn(path[0])

    def _reference(self, name: str) -> str:
        return name

    def _arn(self, name: str) -> str:
        match self._resources[name]["Type"]:
            case "AWS::DynamoDB::Table":
                return f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/{name}"
            case "AWS::S3::Bucket":
                return f"arn:aws:s3:::{name}"
            case "AWS::SQS::Queue":
                return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"
            case "AWS::Logs::LogGroup":
                return f"arn:aws:logs:{REGION}:{ACCOUNT}:log-group:{name}"
        raise NotImplementedError(name)


def _applies(statement: Mapping[str, Any], ask: Ask) -> bool:
    return (
        any(_like(ask.action, each) for each in listed(statement["Action"]))
        and any(_like(ask.resource, each) for each in listed(statement["Resource"]))
        and all(
            _holds(operator, listed(wanted), ask.context.get(key, ()))
            for operator, keys in statement.get("Condition", {}).items()
            for key, wanted in keys.items()
        )
    )


def _holds(operator: str, wanted: Sequence[str], given: Sequence[str]) -> bool:
    quantifier, _, test = operator.rpartition(":")
    if test == "Null":
        return (not given) == (wanted == ["true"])
    if operator == "StringNotLike":
        return not any(_like(each, pattern) for pattern in wanted for each in given)
    matches = [any(_TESTS[test](each, pattern) for pattern in wanted) for each in given]
    match quantifier:
        case "ForAllValues":
            return all(matches)  # also without any: so says IAM
        case "ForAnyValue":
            return any(matches)
        case "":
            return len(matches) == 1 and matches[0]
    raise NotImplementedError(operator)


def _like(text: str, pattern: str) -> bool:
    parts = (".*" if each == "*" else "." if each == "?" else re.escape(each) for each in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


_TESTS = {"StringLike": _like, "ArnLike": _like, "StringEquals": str.__eq__, "Bool": str.__eq__}


def listed(value: Any) -> list[Any]:
    """Return what a policy has one or several of, as a list."""
    return value if isinstance(value, list) else [value]


# ------------------------------------------------------------------------------------------------------- requests


def asks(service: str, operation: str, body: Mapping[str, Any], queues: Mapping[str, str]) -> list[Ask]:
    """Return what IAM is asked for a request to DynamoDB, SQS or SSM, in the JSON of their APIs.

    `queues` has the logical names of queues by URL. There is one table in the template.
    """
    match service:
        case "dynamodb":
            return list(_of_dynamodb(operation, body))
        case "sqs":
            action = operation.removesuffix("Batch")
            return [Ask(f"sqs:{action}", f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queues[body['QueueUrl']]}")]
        case "ssm":
            name = body["Path"] if operation == "GetParametersByPath" else body["Name"]
            context = {"ssm:Recursive": ["true" if body.get("Recursive") else "false"]}
            return [Ask(f"ssm:{operation}", f"arn:aws:ssm:{REGION}:{ACCOUNT}:parameter{name}", context)]
    raise NotImplementedError(service)


def asks_s3(method: str, key: str, source: str = "") -> list[Ask]:
    """Return what IAM is asked for a request to S3: for an object of the template's bucket, or its copy of `source`."""
    action = {"GET": "GetObject", "PUT": "PutObject", "DELETE": "DeleteObject"}[method]
    read = [Ask("s3:GetObject", f"arn:aws:s3:::Bodies/{source}")] if source else []
    return [*read, Ask(f"s3:{action}", f"arn:aws:s3:::Bodies/{key}")]


def _of_dynamodb(operation: str, body: Mapping[str, Any]) -> Iterator[Ask]:
    match operation:
        case "TransactWriteItems":
            for item in body["TransactItems"]:
                ((verb, given),) = item.items()
                yield from _of_dynamodb(
                    "ConditionCheckItem" if verb == "ConditionCheck" else f"{verb}Item", given
                )
        case "BatchGetItem":
            ((_, given),) = body["RequestItems"].items()
            yield _on_table(operation, given["Keys"])
        case "BatchWriteItem":
            ((_, given),) = body["RequestItems"].items()
            writes = [next(iter(each.values())) for each in given]
            yield _on_table(operation, [each.get("Key") or each["Item"] for each in writes])
        case "Scan":
            yield _on_table(operation, [], index=body.get("IndexName"))
        case "Query":
            name = re.match(r"\S+ = (:\w+)", body["KeyConditionExpression"])
            assert name is not None
            values = body["ExpressionAttributeValues"]
            yield _on_table(operation, [{"PK": values[name[1]]}], index=body.get("IndexName"))
        case "GetItem" | "PutItem" | "UpdateItem" | "DeleteItem" | "ConditionCheckItem":
            key = body.get("Key") or body["Item"]
            yield _on_table(
                operation, [key], named=[*key, *body.get("ExpressionAttributeNames", {}).values()]
            )
        case _:
            raise NotImplementedError(operation)


def _on_table(
    operation: str, keys: Sequence[Mapping[str, Any]], *, named: Sequence[str] = (), index: str | None = None
) -> Ask:
    resource = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/Table" + (f"/index/{index}" if index else "")
    leading = [key["PK"]["S"] for key in keys]
    context = {"dynamodb:LeadingKeys": leading, "dynamodb:Attributes": list(dict.fromkeys(named))}
    return Ask(f"dynamodb:{operation}", resource, context)
