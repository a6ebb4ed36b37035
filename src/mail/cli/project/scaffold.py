"""The files of a new project, from the texts in `files/`."""

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from importlib.util import find_spec
from string import Template
from types import MappingProxyType
from typing import Any

import mail
from mail.cli.project.bundle import DISTRIBUTION
from mail.errors import ConfigurationError
from mail.factories.models import is_claude
from mail.factories.ports import Way, way_to
from mail.factories.providers import credentials_of
from mail.factories.table import without_routes

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,62}")

SETTINGS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "ollama": ("OLLAMA_API_BASE", "http://localhost:11434"),
        "ollama_chat": ("OLLAMA_API_BASE", "http://localhost:11434"),
        "hosted_vllm": ("HOSTED_VLLM_API_BASE", "http://localhost:8000/v1"),
        "bedrock": ("AWS_REGION", "us-east-1"),
    }
)
"""The variables of providers that need no key, with values to begin with."""

_GROUP_OF_REGIONS = re.compile(r"(us|us-gov|eu|apac|jp|au|ca|global)\.")

_REGIONS: Mapping[str, str] = MappingProxyType(
    {
        "us-gov": "us-gov-west-1",
        "eu": "eu-central-1",
        "apac": "ap-northeast-1",
        "jp": "ap-northeast-1",
        "au": "ap-southeast-2",
        "ca": "ca-central-1",
    }
)
"""A region from which each group of regions can be called; the others can from `us-east-1`."""

QUESTION, DATE_ANSWER = "What day is it?", "It is a fine day."
SHOUTED = "hello"

CALENDAR_PROMPT = "You know the date. Look it up, never guess it."
ASSISTANT_PROMPT = "You answer questions in one or two sentences; calendar knows the date."
RULES = "from mail.factories.rules import Call, View, complete, request, respond, rule_based, wait\n"
SCRIPT = f"""\
SCRIPT = {{
    "assistant": [[request("calendar", "Which day is it?"), wait()], "{DATE_ANSWER}"],
    "calendar": [[call("today")], "A fine day."],
}}"""
"""The replies of the agents in the project's test."""


@dataclass(frozen=True)
class Project:
    """A new project.

    Attributes:
        name: the name of the swarm.
        model: the language model of its agents, by its name in litellm; None for agents that follow rules.
        is_python: whether Python defines the swarm, in place of swarms.json.
    """

    name: str
    model: str | None
    is_python: bool

    def __post_init__(self) -> None:
        """Raise ConfigurationError for a name that is not valid."""
        if not NAME.fullmatch(self.name):
            raise ConfigurationError(
                f"{self.name!r} can't be the name of a swarm: begin with a letter, and use letters, digits, - and _"
            )

    @cached_property
    def module(self) -> str:
        """The name of the project's module, which no installed module has."""
        module = self.name.replace("-", "_").lower()
        return f"{module}_swarm" if module in sys.stdlib_module_names or _is_installed(module) else module

    @property
    def key(self) -> tuple[str, str] | None:
        """The environment variable that the model needs, and its value; "" for a key that the user has to fill in."""
        if self.model is None:
            return None
        provider, slash, name = without_routes(self.model).partition("/")
        if not slash:
            provider = "anthropic" if is_claude(self.model) else "openai"
        group = _GROUP_OF_REGIONS.match(name)
        if provider == "bedrock" and group and group[1] in _REGIONS:
            return "AWS_REGION", _REGIONS[group[1]]
        return SETTINGS.get(provider) or (credentials_of(provider)[0], "")

    @property
    def bedrock_models(self) -> str:
        """The ARNs of its model, for the template's `BedrockModels`; "" for a model that Bedrock doesn't have."""
        if self.model is None or way_to(self.model) is not Way.CONVERSE:
            return ""
        name = self.model.partition("/")[2].removeprefix("converse/")
        if name.startswith("arn:"):
            return name
        model = name.rpartition("/")[2]
        base = _GROUP_OF_REGIONS.sub("", model, count=1)
        found = [f"arn:aws:bedrock:*::foundation-model/{base}"]
        return ",".join(
            [f"arn:aws:bedrock:*:*:inference-profile/{model}", *found] if base != model else found
        )

    @property
    def next_steps(self) -> list[str]:
        """The commands that come next, for a user in the project's folder."""
        if self.key is None:
            return ["mail server"]
        name, value = self.key
        return [f"export {name}={value or '...'}", "mail server"]

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the text of each file."""
        yield "mail.toml", _fill("mail.toml.txt", self._values)
        yield ".env.example", _fill("env.txt", self._values)
        yield ".gitignore", _fill("gitignore.txt", self._values)
        yield "README.md", _fill("README.md.txt", self._values)
        yield "AGENTS.md", _fill("AGENTS.md.txt", self._values)
        yield ".agents/skills/mail-swarms/SKILL.md", _read("SKILL.md.txt")
        yield "requirements.txt", _fill("requirements.txt", self._values)
        yield "samconfig.toml", _fill("samconfig.toml.txt", self._values)
        yield "template.yaml", deployment_template()
        yield f"{self.module}.py", self._code()
        yield f"test_{self.module}.py", self._test()
        if not self.is_python:
            yield "swarms.json", json.dumps([self._entry()], indent=2) + "\n"

    @property
    def _values(self) -> dict[str, str]:
        key, value = self.key or ("", "")
        secret = (
            "# Nothing is secret here."
            if value or not key
            else (f'aws ssm put-parameter --type SecureString --name /{self.name}/{key} --value "${key}"')
        )
        override = f"SecretsPath=/{self.name}" if key and not value else ""
        if models := self.bedrock_models:
            override = f"BedrockModels={models}"
        parameters = f'parameter_overrides = ["{override}"]' if override else ""
        about = (
            f"Its agents use the language model `{self.model}`." if self.model else "Its agents follow rules."
        )
        if self.bedrock_models:
            about += " Bedrock knows them by your AWS credentials and, on AWS, by the role of turns."
        code = "its agents" if self.is_python or not self.model else "the actions of its agents"
        table = f"| `{self.module}.py` | {code} |"
        if not self.is_python:
            table = f"| `swarms.json` | the swarm: who is in it, and who may write to whom |\n{table}"
        return {
            "name": self.name,
            "stack": self.name.replace("_", "-"),
            "module": self.module,
            "model": self.model or "",
            "source": f"python::{self.module}:swarm" if self.is_python else "swarms.json",
            "variables": f"{key}={value}"
            if key
            else "# The agents of this swarm follow rules and need no key.",
            "requirement": requirement(self._extra),
            "requirement_for_aws": requirement("[aws]"),
            "about": f"A swarm of agents that work by sending each other mail. {about}",
            "table": table,
            "export": f"export {key}={value or '...'}" if key else "",
            "secret": secret,
            "parameters": parameters,
            "question": QUESTION if self.model else SHOUTED,
            "answer": DATE_ANSWER if self.model else SHOUTED.upper(),
            "calendar_prompt": CALENDAR_PROMPT,
            "assistant_prompt": ASSISTANT_PROMPT,
            "options": "" if self._tool_format is None else f'\n    tool_format="{self._tool_format}",',
        }

    @property
    def _extra(self) -> str:
        if self.model is None:
            return ""
        way = way_to(self.model)
        return "[llm]" if way is Way.LITELLM else f"[{way}]"

    @property
    def _tool_format(self) -> str | None:
        """The API to speak, if it isn't the default: only OpenAI has Responses of its own."""
        return None if self.key == ("OPENAI_API_KEY", "") else "completions"

    def _code(self) -> str:
        if self.model:
            return _fill("swarm.py.txt" if self.is_python else "actions.py.txt", self._values)
        if not self.is_python:
            return _fill("rules.py.txt", {"imports": RULES, "swarm": ""})
        swarm = (
            "\n\n"
            'shouting = Agent("shouter", factory=shouter)\n'
            'asking = Agent("desk", factory=desk, team=[shouting])\n'
            f'swarm = Swarm(asking, name="{self.name}", version="0.1.0")\n\n'
            f'if __name__ == "__main__":\n    print(swarm.ask("{SHOUTED}"))'
        )
        return _fill("rules.py.txt", {"imports": f"from mail import Agent, Swarm\n{RULES}", "swarm": swarm})

    def _test(self) -> str:
        swarm = "swarm" if self.is_python else "SWARM"
        values = {**self._values, "how": "", "imports": "", "script": "", "swarm": swarm}
        if self.model:
            values |= {
                "how": ", with scripted agents in place of the model: no key, no network",
                "imports": "from mail.testing import call, request, wait, with_scripts\n",
                "script": SCRIPT,
                "swarm": f"with_scripts({swarm}, SCRIPT)",
            }
        return _fill("test_python.py.txt" if self.is_python else "test_json.py.txt", values)

    def _entry(self) -> dict[str, Any]:
        """Return the entry of swarms.json."""
        lead, other = ("assistant", "calendar") if self.model else ("desk", "shouter")
        agents: list[dict[str, Any]] = [
            {"name": lead, "comm_targets": [other], "enable_entrypoint": True, "can_complete_tasks": True},
            {"name": other, "comm_targets": [lead]},
        ]
        entry: dict[str, Any] = {"name": self.name, "version": "0.1.0", "entrypoint": lead, "agents": agents}
        for agent in agents:
            if self.model is None:
                agent["factory"] = f"python::{self.module}:{agent['name']}"
            elif self._tool_format is not None:
                agent["tool_format"] = self._tool_format
        if self.model:
            entry["action_imports"] = [f"python::{self.module}:today"]
            agents[0] |= {
                "factory": "python::mail.factories:LiteLLMSupervisorFunction",
                "agent_params": {"llm": self.model, "system": ASSISTANT_PROMPT},
            }
            agents[1] |= {
                "factory": "python::mail.factories:LiteLLMActionAgentFunction",
                "actions": ["today"],
                "agent_params": {"llm": self.model, "system": CALENDAR_PROMPT},
            }
        return entry


def requirement(extras: str = "") -> str:
    """Return the line of requirements.txt that installs this MAIL: its version, or where it was installed from.

    Only an installation that is not from an index says where (PEP 610). One that is editable becomes a copy.
    """
    try:
        origin = distribution(DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        origin = None
    if origin is None:
        return f"{DISTRIBUTION}{extras}=={mail.__version__}"
    found = json.loads(origin)
    url = found["url"]
    if commit := found.get("vcs_info"):
        url = f"{commit['vcs']}+{url}@{commit['commit_id']}"
    if "subdirectory" in found:
        url += f"#subdirectory={found['subdirectory']}"
    return f"{DISTRIBUTION}{extras} @ {url}"


def deployment_template() -> str:
    """Return MAIL's template.yaml with the code and the layers that `mail build` collects."""
    text = files("mail.cli.project").joinpath("template.yaml").read_text(encoding="utf-8")
    text = re.sub(r"    Metadata:\n(      .*\n)+?      ContextPath: .*\n", "", text)
    text = re.sub(
        r"(?m)^(  (\w+)Layer:\n(?:    .*\n)*?      ContentUri: )requirements/",
        lambda layer: f"{layer[1]}.build/{layer[2].lower()}/",
        text,
    )
    for before, after in REPLACEMENTS.items():
        if before not in text:
            raise AssertionError(f"template.yaml has no {before!r}")
        text = text.replace(before, after)
    return text


REPLACEMENTS = {
    "  # scripts/build_layer.py fills them. What ContentUri names is what they are made from.\n": (
        "  # `mail build` fills them.\n"
    ),
    "CodeUri: swarm/": "CodeUri: .build/swarm/",
    "ContentUri: src/": "ContentUri: .build/code/",
    "swarm/mail.toml": "mail.toml",
    "a path in swarm/": "a path in this folder",
    "docs/deploy.md": "MAIL's docs/deploy.md",
    "see .checkov.yaml about keys": "instead of keys",
    "those that hold everywhere are in .checkov.yaml": "the tool is checkov",
}
"""What differs in a project's template from MAIL's own."""


def _fill(name: str, values: dict[str, str]) -> str:
    return re.sub(r"\n{4,}", "\n\n\n", Template(_read(name)).substitute(values)).rstrip() + "\n"


def _read(name: str) -> str:
    return files("mail.cli.project").joinpath("files", name).read_text(encoding="utf-8")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ValueError:
        return True
