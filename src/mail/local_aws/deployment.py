"""Deployment of a template to the local account, and its result: functions, and what invokes them."""

import asyncio
import io
import json
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from mail.adapters.aws.client import AwsClient
from mail.errors import ConfigurationError, MAILError
from mail.local_aws.ministack import LocalAccount
from mail.local_aws.stack import Cors, EventSource, FunctionSpec, FunctionUrl, Route, Schedule, Stack

Document = dict[str, Any]

_FUNCTION = "AWS::Serverless::Function"
_LAYER = "AWS::Serverless::LayerVersion"
_MONITORING = ("AWS::CloudWatch::", "AWS::SNS::")


def read_template(path: Path) -> Document:
    """Read a template. Raises ConfigurationError if that fails."""
    try:
        import yaml
    except ImportError:
        raise ConfigurationError(
            "to read template.yaml, install PyYAML: pip install 'mail-serverless[aws]'"
        ) from None

    safe_loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's is six times faster

    class Loader(safe_loader):  # type: ignore[misc, valid-type]
        """A loader with the tags of CloudFormation; a new class, as tags are registered per class."""

    def expand(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Document:
        value: Any
        if isinstance(node, yaml.ScalarNode):
            value = loader.construct_scalar(node)
        elif isinstance(node, yaml.SequenceNode):
            value = loader.construct_sequence(node, deep=True)
        else:
            assert isinstance(node, yaml.MappingNode)
            value = loader.construct_mapping(node, deep=True)
        if suffix in ("Ref", "Condition"):
            return {suffix: value}
        if suffix == "GetAtt" and isinstance(value, str):
            value = value.split(".", 1)
        return {f"Fn::{suffix}": value}

    yaml.add_multi_constructor("!", expand, Loader)
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader)  # noqa: S506 - a safe loader, with tags
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not valid YAML: {error}") from error
    if not isinstance(document, dict) or "Resources" not in document:
        raise ConfigurationError(f"{path} is not a template: it has no Resources")
    return document


class Template:
    """A template, and the folder of its relative paths."""

    def __init__(self, path: Path) -> None:
        """Read the template. Raises ConfigurationError if that fails."""
        self._document = read_template(path)
        self._folder = path.parent.resolve()

    def check(self, parameters: Iterable[str]) -> None:
        """Raise ConfigurationError for unknown parameters."""
        known = self._document.get("Parameters", {})
        unknown = set(parameters) - set(known)
        if unknown:
            names = ", ".join(sorted(known)) or "none"
            raise ConfigurationError(f"the template has no parameter {min(unknown)}; it has {names}")

    def codes(self) -> dict[str, Path]:
        """Return the folder of each function's code, by logical id."""
        default = self._of_all_functions("CodeUri", ".")
        return {
            name: self._folder / str(properties.get("CodeUri", default))
            for name, properties in self._functions().items()
        }

    def layers(self) -> dict[str, list[Path]]:
        """Return the folders of each function's layers that the template defines, by logical id.

        Those under a condition are among them.
        """
        common = self._of_all_functions("Layers", [])
        resources = self._document["Resources"]
        return {
            name: [
                self._folder / str(resources[layer]["Properties"]["ContentUri"])
                for layer in _references([*common, *properties.get("Layers", [])])
                if resources.get(layer, {}).get("Type") == _LAYER
            ]
            for name, properties in self._functions().items()
        }

    def idle(self, parameters: Mapping[str, str]) -> set[str]:
        """Return the functions that no queue invokes with these parameters. The account doesn't say."""
        given = {name: each.get("Default") for name, each in self._document.get("Parameters", {}).items()}
        given |= parameters

        def is_off(enabled: Any) -> bool:
            match enabled:
                case {"Fn::FindInMap": [mapping, {"Ref": parameter}, key]}:
                    enabled = self._document["Mappings"][mapping][given[parameter]][key]
            return str(enabled).lower() == "false"

        return {
            name
            for name, properties in self._functions().items()
            for event in properties.get("Events", {}).values()
            if is_off(event["Properties"].get("Enabled", True))
        }

    def deployable(self, code: str) -> Document:
        """Return the template for a local account: with one S3 object as all code, and without alarms and topics."""
        left = deepcopy(self._document)
        resources = left["Resources"]
        monitors = {name for name, resource in resources.items() if resource["Type"].startswith(_MONITORING)}
        for name in monitors:
            del resources[name]
        outputs = left.get("Outputs", {})
        for name in [name for name, output in outputs.items() if _mentions(output, monitors)]:
            del outputs[name]
        for resource in resources.values():
            if resource["Type"] == _FUNCTION:
                resource["Properties"]["CodeUri"] = code
            elif resource["Type"] == _LAYER:
                resource["Properties"]["ContentUri"] = code
                resource.pop("Metadata", None)
        return left

    def _functions(self) -> dict[str, Document]:
        return {
            name: resource["Properties"]
            for name, resource in self._document["Resources"].items()
            if resource["Type"] == _FUNCTION
        }

    def _of_all_functions(self, name: str, default: Any) -> Any:
        return self._document.get("Globals", {}).get("Function", {}).get(name, default)


def _references(value: Any) -> Iterator[str]:
    """Yield the names that a value refers to."""
    if isinstance(value, Mapping) and isinstance(value.get("Ref"), str):
        yield value["Ref"]
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _references(each)


def _mentions(value: Any, names: Iterable[str]) -> bool:
    """Return whether a value refers to one of these resources."""
    text = json.dumps(value)
    return any(f'"{name}"' in text or f"${{{name}}}" in text or f"${{{name}." in text for name in names)


STACK = "mail"
_ARTIFACTS = "local-aws-artifacts"
_STUB = "stub.zip"
_TEMPLATE = "template.json"

_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_RATE = re.compile(r"rate\((\d+) (second|minute|hour|day)s?\)")
_CORS = "x-amazon-apigateway-cors"
_INTEGRATED = re.compile(r"\$\{(\w+)(?:\.Arn)?\}")


class Deployment:
    """Deploys a template. The account's own Lambda runs nothing: `mail.local_aws.functions` does."""

    def __init__(self, account: LocalAccount, template: Template) -> None:
        self._account = account
        self._template = template
        self._clients: dict[str, AwsClient] = {}

    async def deploy(self, parameters: Mapping[str, str]) -> Stack:
        """Create the stack, or update it, as `sam deploy` does. Raises MAILError if that fails."""
        try:
            await self._upload(self._template.deployable(f"s3://{_ARTIFACTS}/{_STUB}"))
            return await self._describe(await self._create(parameters), self._template.idle(parameters))
        finally:
            for client in self._clients.values():
                client.close()

    async def _call(self, service: str, operation: str, **arguments: Any) -> dict[str, Any]:
        if service not in self._clients:
            self._clients[service] = self._account.client(service)
        return await self._clients[service].call(operation, **arguments)

    async def _upload(self, document: Document) -> None:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as files:
            files.writestr("nothing.py", "")
        await self._call("s3", "create_bucket", Bucket=_ARTIFACTS)
        for key, body in {_STUB: archive.getvalue(), _TEMPLATE: json.dumps(document, default=str)}.items():
            await self._call("s3", "put_object", Bucket=_ARTIFACTS, Key=key, Body=body)

    async def _create(self, parameters: Mapping[str, str]) -> dict[str, str]:
        stacks = (await self._call("cloudformation", "describe_stacks"))["Stacks"]
        await self._call(
            "cloudformation",
            "update_stack" if any(each["StackName"] == STACK for each in stacks) else "create_stack",
            StackName=STACK,
            TemplateURL=f"{self._account.endpoint}/{_ARTIFACTS}/{_TEMPLATE}",
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
        )
        while True:
            described = await self._call("cloudformation", "describe_stacks", StackName=STACK)
            stack = described["Stacks"][0]
            if stack["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
                return {item["OutputKey"]: item["OutputValue"] for item in stack.get("Outputs", ())}
            if "ROLLBACK" in stack["StackStatus"] or not stack["StackStatus"].endswith("IN_PROGRESS"):
                raise MAILError(f"the template can't be deployed: {await self._first_failure()}")
            await asyncio.sleep(0.1)

    async def _first_failure(self) -> str:
        answer = await self._call("cloudformation", "describe_stack_events", StackName=STACK)
        failures = [
            f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', 'no reason given')}"
            for event in answer["StackEvents"]
            if event["ResourceStatus"].endswith("FAILED")
        ]
        return failures[-1] if failures else "no reason given"

    async def _describe(self, outputs: dict[str, str], idle: Collection[str]) -> Stack:
        answer = await self._call("cloudformation", "describe_stack_resources", StackName=STACK)
        physical = {
            resource["PhysicalResourceId"]: resource["LogicalResourceId"]
            for resource in answer["StackResources"]
            if resource["ResourceType"] == "AWS::Lambda::Function"
        }
        processed = await self._call(
            "cloudformation", "get_template", StackName=STACK, TemplateStage="Processed"
        )
        body = processed["TemplateBody"]
        resources = (body if isinstance(body, dict) else json.loads(body))["Resources"]
        apis, aliases = _http_apis(resources), _aliases(resources)
        functions = await self._functions(physical)
        return Stack(
            functions=functions,
            event_sources=tuple(
                each for each in await self._claim_event_sources(functions) if each.function not in idle
            ),
            routes=tuple(route for api in apis for route in _read_routes(api, aliases)),
            schedules=await self._claim_schedules(functions),
            outputs=outputs,
            api_cors=next((_read_cors(cors) for api in apis if (cors := api.get(_CORS))), None),
            urls=await self._urls(functions),
        )

    async def _functions(self, physical: Mapping[str, str]) -> dict[str, FunctionSpec]:
        codes, layers = self._template.codes(), self._template.layers()
        functions = {}
        for item in (await self._call("lambda", "list_functions"))["Functions"]:
            name = physical[item["FunctionName"]]
            functions[name] = FunctionSpec(
                name=name,
                deployed_name=item["FunctionName"],
                arn=item["FunctionArn"],
                handler=item["Handler"],
                runtime=item["Runtime"],
                environment=item.get("Environment", {}).get("Variables", {}),
                timeout=item["Timeout"],
                memory=item["MemorySize"],
                code=codes[name],
                layers=tuple(layer for layer in layers[name] if (layer / "python").is_dir()),
            )
        return functions

    async def _urls(self, functions: Mapping[str, FunctionSpec]) -> dict[str, FunctionUrl]:
        found = {}
        for function in functions.values():
            answer = await self._call(
                "lambda", "list_function_url_configs", FunctionName=function.deployed_name
            )
            for url in answer["FunctionUrlConfigs"]:
                cors = _read_cors(url["Cors"]) if "Cors" in url else None
                found[function.name] = FunctionUrl(url["AuthType"] == "AWS_IAM", cors)
        return found

    async def _claim_event_sources(self, functions: Mapping[str, FunctionSpec]) -> tuple[EventSource, ...]:
        by_arn = {function.arn: function.name for function in functions.values()}
        sources = []
        for item in (await self._call("lambda", "list_event_source_mappings"))["EventSourceMappings"]:
            await self._call("lambda", "update_event_source_mapping", UUID=item["UUID"], Enabled=False)
            queue = item["EventSourceArn"].rsplit(":", 1)[-1]
            url = (await self._call("sqs", "get_queue_url", QueueName=queue))["QueueUrl"]
            sources.append(
                EventSource(
                    function=by_arn[_unqualified(item["FunctionArn"])],
                    queue_arn=item["EventSourceArn"],
                    queue_url=url,
                    batch_size=item["BatchSize"],
                    concurrency=item.get("ScalingConfig", {}).get("MaximumConcurrency"),
                    reports_failures="ReportBatchItemFailures" in item.get("FunctionResponseTypes", ()),
                )
            )
        return tuple(sources)

    async def _claim_schedules(self, functions: Mapping[str, FunctionSpec]) -> tuple[Schedule, ...]:
        by_arn = {function.arn: function.name for function in functions.values()}
        schedules = []
        for item in (await self._call("scheduler", "list_schedules"))["Schedules"]:
            names = {"Name": item["Name"], "GroupName": item["GroupName"]}
            found = await self._call("scheduler", "get_schedule", **names)
            kept = {key: found[key] for key in ("FlexibleTimeWindow", "ScheduleExpression", "Target")}
            await self._call("scheduler", "update_schedule", **names, **kept, State="DISABLED")
            function = by_arn[_unqualified(found["Target"]["Arn"])]
            schedules.append(Schedule(function, item["Name"], _read_rate(found["ScheduleExpression"])))
        return tuple(schedules)


def _unqualified(arn: str) -> str:
    """Return the ARN of a function without alias or version."""
    return ":".join(arn.split(":")[:7])


def _read_rate(expression: str) -> float:
    rate = _RATE.fullmatch(expression)
    if rate is None:
        raise ConfigurationError(f"the schedule {expression!r} is not supported here; use rate(…)")
    return float(rate[1]) * _UNIT_SECONDS[rate[2]]


def _http_apis(resources: Document) -> list[Document]:
    """Return the HTTP APIs of an expanded template as OpenAPI documents."""
    return [
        resource["Properties"]["Body"]
        for resource in resources.values()
        if resource["Type"] == "AWS::ApiGatewayV2::Api"
    ]


def _aliases(resources: Document) -> dict[str, str]:
    """Return the functions of the aliases of an expanded template, by the logical id of the alias."""
    return {
        name: resource["Properties"]["FunctionName"]["Ref"]
        for name, resource in resources.items()
        if resource["Type"] == "AWS::Lambda::Alias"
    }


def _read_routes(api: Document, aliases: Mapping[str, str]) -> Iterator[Route]:
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            integration = operation.get("x-amazon-apigateway-integration")
            target = _INTEGRATED.search(json.dumps(integration["uri"])) if integration else None
            if target is not None:
                name = "ANY" if method == "x-amazon-apigateway-any-method" else method.upper()
                function = aliases.get(target[1], target[1])
                yield Route(name, "$default" if path == "/$default" else path, function)


def _read_cors(given: Mapping[str, Any]) -> Cors:
    """Return the CORS settings of an HTTP API, or of a function URL, whose keys are capitalized."""
    values = {name[0].lower() + name[1:]: value for name, value in given.items()}
    lists = {
        name: tuple(v.split(",") if isinstance(v, str) else v)
        for name, v in values.items()
        if name != "maxAge"
    }
    return Cors(
        origins=lists.get("allowOrigins", ()),
        methods=lists.get("allowMethods", ()),
        headers=lists.get("allowHeaders", ()),
        exposed=lists.get("exposeHeaders", ()),
        max_age=int(values.get("maxAge", 0)),
    )
