"""`template.yaml` as CloudFormation reads it: with its short forms (`!Ref`, `!GetAtt`) spelled out."""

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from mail.errors import ConfigurationError

Document = dict[str, Any]

_FUNCTION = "AWS::Serverless::Function"
_LAYER = "AWS::Serverless::LayerVersion"
_WATCHERS = ("AWS::CloudWatch::", "AWS::SNS::")


def read_template(path: Path) -> Document:
    """Read a template. Raises ConfigurationError where it can't be."""
    try:
        import yaml
    except ImportError:
        raise ConfigurationError("to read template.yaml, install PyYAML: pip install pyyaml") from None

    class Loader(yaml.SafeLoader):
        """Knows the tags of CloudFormation; a class of its own, so that no other YAML gets them."""

    def spell_out(loader: yaml.SafeLoader, suffix: str, node: yaml.Node) -> Document:
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

    yaml.add_multi_constructor("!", spell_out, Loader)
    try:
        document = yaml.load(path.read_text(encoding="utf-8"), Loader)  # noqa: S506 - a safe loader, with tags
    except OSError as error:
        raise ConfigurationError(f"{path} can't be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is no YAML: {error}") from error
    if not isinstance(document, dict) or "Resources" not in document:
        raise ConfigurationError(f"{path} is no template: it has no Resources")
    return document


class Template:
    """A template, and the folder that its paths are relative to."""

    def __init__(self, path: Path) -> None:
        """Read it. Raises ConfigurationError where it can't be."""
        self._document = read_template(path)
        self._folder = path.parent.resolve()

    def check(self, parameters: Iterable[str]) -> None:
        """Raise ConfigurationError where one of these is no parameter of the template."""
        known = self._document.get("Parameters", {})
        unknown = set(parameters) - set(known)
        if unknown:
            names = ", ".join(sorted(known)) or "none"
            raise ConfigurationError(f"the template has no parameter {min(unknown)}; it has {names}")

    def codes(self) -> dict[str, Path]:
        """From each function's logical id to the folder of its code."""
        default = self._of_all_functions("CodeUri", ".")
        return {
            name: self._folder / str(properties.get("CodeUri", default))
            for name, properties in self._functions().items()
        }

    def layers(self) -> dict[str, list[Path]]:
        """From each function's logical id to the folders of those of its layers that the template defines."""
        common = self._of_all_functions("Layers", [])
        resources = self._document["Resources"]
        return {
            name: [
                self._folder / str(resources[layer["Ref"]]["Properties"]["ContentUri"])
                for layer in [*common, *properties.get("Layers", [])]
                if isinstance(layer, Mapping) and resources.get(layer.get("Ref"), {}).get("Type") == _LAYER
            ]
            for name, properties in self._functions().items()
        }

    def deployable(self, code: str) -> Document:
        """What of it a local engine can deploy: with one object in S3 as all code, and without what only watches."""
        left = deepcopy(self._document)
        resources = left["Resources"]
        watchers = {name for name, resource in resources.items() if resource["Type"].startswith(_WATCHERS)}
        for name in watchers:
            del resources[name]
        outputs = left.get("Outputs", {})
        for name in [name for name, output in outputs.items() if _mentions(output, watchers)]:
            del outputs[name]
        for resource in resources.values():
            if resource["Type"] == _FUNCTION:
                resource["Properties"]["CodeUri"] = code
            elif resource["Type"] == _LAYER:
                resource["Properties"]["ContentUri"] = code
                resource.pop("Metadata", None)
        return left

    def _functions(self) -> dict[str, Document]:
        """Return the properties of each function."""
        return {
            name: resource["Properties"]
            for name, resource in self._document["Resources"].items()
            if resource["Type"] == _FUNCTION
        }

    def _of_all_functions(self, name: str, default: Any) -> Any:
        return self._document.get("Globals", {}).get("Function", {}).get(name, default)


def _mentions(value: Any, names: Iterable[str]) -> bool:
    """Return whether some part of a template refers to one of these resources."""
    text = json.dumps(value)
    return any(f'"{name}"' in text or f"${{{name}}}" in text or f"${{{name}." in text for name in names)
