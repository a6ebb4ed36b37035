"""Reading `template.yaml`, with short forms (`!Ref`, `!GetAtt`) expanded as in CloudFormation."""

import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from mail.errors import ConfigurationError

Document = dict[str, Any]

_FUNCTION = "AWS::Serverless::Function"
_LAYER = "AWS::Serverless::LayerVersion"
_MONITORING = ("AWS::CloudWatch::", "AWS::SNS::")


def read_template(path: Path) -> Document:
    """Read a template. Raises ConfigurationError if that fails."""
    try:
        import yaml
    except ImportError:
        raise ConfigurationError("to read template.yaml, install PyYAML: pip install pyyaml") from None

    class Loader(yaml.SafeLoader):
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
        """Return the folders of each function's layers that the template defines, by logical id."""
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
        """Return the properties of each function."""
        return {
            name: resource["Properties"]
            for name, resource in self._document["Resources"].items()
            if resource["Type"] == _FUNCTION
        }

    def _of_all_functions(self, name: str, default: Any) -> Any:
        return self._document.get("Globals", {}).get("Function", {}).get(name, default)


def _mentions(value: Any, names: Iterable[str]) -> bool:
    """Return whether a value refers to one of these resources."""
    text = json.dumps(value)
    return any(f'"{name}"' in text or f"${{{name}}}" in text or f"${{{name}." in text for name in names)
