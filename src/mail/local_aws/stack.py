"""A deployed stack as plain data: its functions, and what invokes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

WRAPPER_VARIABLE = "AWS_LAMBDA_EXEC_WRAPPER"
"""Names the script of a layer that Lambda runs instead of the function's runtime."""


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A function of the stack.

    Attributes:
        name: its logical id in the template.
        deployed_name: its name in the account.
        code: the folder with its code, its working directory.
        layers: the folders of its built layers.
        timeout: seconds per invocation.
    """

    name: str
    deployed_name: str
    arn: str
    handler: str
    runtime: str
    environment: Mapping[str, str]
    timeout: int
    memory: int
    code: Path
    layers: tuple[Path, ...]

    @property
    def is_web(self) -> bool:
        """Whether it is a web application behind the Web Adapter, not a handler of events."""
        return WRAPPER_VARIABLE in self.environment


@dataclass(frozen=True, slots=True)
class EventSource:
    """A queue that invokes a function."""

    function: str
    queue_arn: str
    queue_url: str
    batch_size: int
    concurrency: int | None
    reports_failures: bool


@dataclass(frozen=True, slots=True)
class Route:
    """A route of the HTTP API; `method` may be ANY, `path` may be $default."""

    method: str
    path: str
    function: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """A function that is invoked at an interval of `seconds`."""

    function: str
    name: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Cors:
    """CORS settings; `max_age` is in seconds."""

    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[str, ...]
    exposed: tuple[str, ...]
    max_age: int


@dataclass(frozen=True, slots=True)
class FunctionUrl:
    """The URL of a function; `is_signed` if requests must be signed (`AuthType: AWS_IAM`)."""

    is_signed: bool
    cors: Cors | None


@dataclass(frozen=True, slots=True)
class Stack:
    """A deployed stack. `urls` are function URLs by function; `api_cors` belongs to the HTTP API."""

    functions: Mapping[str, FunctionSpec]
    event_sources: tuple[EventSource, ...]
    routes: tuple[Route, ...]
    schedules: tuple[Schedule, ...]
    outputs: Mapping[str, str]
    api_cors: Cors | None = None
    urls: Mapping[str, FunctionUrl] = field(default_factory=dict)
