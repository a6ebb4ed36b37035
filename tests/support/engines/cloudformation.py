"""What the functions of CloudFormation return in a template."""

import re
from collections.abc import Mapping
from typing import Any

_NOTHING = object()


class Functions:
    """A template with the values of its parameters. What a reference to a resource is, subclasses say."""

    def __init__(self, template: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self._template = template
        self._values = values
        self._resources = template["Resources"]

    def resolve(self, node: Any) -> Any:
        """Return a value without functions."""
        if isinstance(node, list):
            return [each for each in map(self.resolve, node) if each is not _NOTHING]
        if not isinstance(node, dict):
            return str(node) if isinstance(node, int) else node
        if len(node) == 1 and (next(iter(node)) == "Ref" or next(iter(node)).startswith("Fn::")):
            ((function, argument),) = node.items()
            return getattr(self, f"_{function.removeprefix('Fn::').lower()}")(argument)
        found = {key: self.resolve(value) for key, value in node.items()}
        return {key: value for key, value in found.items() if value is not _NOTHING}

    def _ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return _NOTHING
        return self._values[name] if name in self._values else self._reference(name)

    def _getatt(self, path: list[str]) -> str:
        raise NotImplementedError

    def _reference(self, name: str) -> str:
        raise NotImplementedError

    def _sub(self, argument: Any) -> str:
        text, own = argument if isinstance(argument, list) else (argument, {})

        def value(found: re.Match[str]) -> str:
            name, _, attribute = found[1].partition(".")
            if name in own:
                return str(self.resolve(own[name]))
            return self._getatt([name, attribute]) if attribute else str(self._ref(name))

        return re.sub(r"\$\{([^}]+)\}", value, text)

    def _if(self, argument: list[Any]) -> Any:
        return self.resolve(argument[1 if self._holds(argument[0]) else 2])

    def _holds(self, condition: str) -> bool:
        return bool(self.resolve(self._template["Conditions"][condition]))

    def _equals(self, sides: list[Any]) -> bool:
        left, right = map(self.resolve, sides)
        return bool(left == right)

    def _not(self, argument: list[Any]) -> bool:
        return not self._all_of(argument)[0]

    def _and(self, argument: list[Any]) -> bool:
        return all(self._all_of(argument))

    def _or(self, argument: list[Any]) -> bool:
        return any(self._all_of(argument))

    def _all_of(self, conditions: list[Any]) -> list[bool]:
        return [
            self._holds(each["Condition"]) if "Condition" in each else bool(self.resolve(each))
            for each in conditions
        ]

    def _findinmap(self, argument: list[Any]) -> Any:
        name, key, attribute = map(self.resolve, argument)
        return self.resolve(self._template["Mappings"][name][key][attribute])

    def _join(self, argument: list[Any]) -> str:
        return str(argument[0]).join(self.resolve(argument[1]))

    def _split(self, argument: list[Any]) -> list[str]:
        parts: list[str] = self.resolve(argument[1]).split(argument[0])
        return parts

    def _select(self, argument: list[Any]) -> Any:
        return self.resolve(argument[1])[int(argument[0])]
