"""With which token a peer is called: entries hold references such as `${SWARM_AUTH_TOKEN_B}`, resolved at each use."""

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from mail.adapters.aws.client import AwsClient, Refused
from mail.errors import BadRequest

PREFIX = "SWARM_AUTH_TOKEN_"

SECONDS = 60.0
"""For how long a parameter of SSM is remembered, also that there is none."""

MANY = 1000
"""How many parameters are remembered at most; callers may ask for ever new ones."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def variable_for(swarm: str) -> str:
    """The environment variable of a swarm's token: `SWARM_AUTH_TOKEN_MY_SWARM` for `my-swarm`."""
    return PREFIX + re.sub(r"[^A-Z0-9]", "_", swarm.upper())


def reference_to(variable: str) -> str:
    """What an entry holds in the place of a token."""
    return f"${{{variable}}}"


def variable_in(text: str) -> str | None:
    """The variable that a reference names; None for any other text, such as a token itself."""
    found = _REFERENCE.fullmatch(text)
    return found[1] if found else None


def reference_for(swarm: str, token: str | None) -> str:
    """What is kept of a swarm's token: the reference that was given in its place, else one by the swarm's name.

    Raises BadRequest for a reference to any other variable: who registers a swarm must not be able to have it sent
    whatever is in the environment.
    """
    variable = variable_in(token or "") or variable_for(swarm)
    if not variable.startswith(PREFIX):
        raise BadRequest(f"auth_token may only refer to variables that begin with {PREFIX}")
    return reference_to(variable)


class Tokens(Protocol):
    """Where the values of references are."""

    def known(self, variable: str) -> str | None:
        """The value, as far as it can be told without waiting."""
        ...

    async def find(self, variable: str) -> str | None:
        """The value. Raises StoreUnavailable where nobody can tell."""
        ...


class EnvironmentTokens:
    """`Tokens` in environment variables."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    def known(self, variable: str) -> str | None:
        """The value, unless it is empty."""
        return self._environ.get(variable) or None

    async def find(self, variable: str) -> str | None:
        """The value, unless it is empty."""
        return self.known(variable)


class ParameterTokens:
    """`Tokens` in the environment, else in parameters of SSM, which are called `path` and the variable.

    Unlike the environment of a function, which is read when it starts, a parameter that is put there or changed is
    seen by all processes within a minute. `clock` counts seconds.
    """

    def __init__(
        self,
        ssm: AwsClient,
        path: str,
        environ: Mapping[str, str] | None = None,
        *,
        seconds: float = SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ssm = ssm
        self._path = path.rstrip("/")
        self._environment = EnvironmentTokens(environ)
        self._seconds = seconds
        self._clock = clock
        self._found: dict[str, tuple[float, str | None]] = {}

    def known(self, variable: str) -> str | None:
        """The value in the environment, else the one that was read last."""
        return self._environment.known(variable) or self._found.get(variable, (0.0, None))[1]

    async def find(self, variable: str) -> str | None:
        """The value in the environment, else in SSM."""
        value = self._environment.known(variable)
        if value is not None:
            return value
        read, value = self._found.get(variable, (None, None))
        if read is None or self._clock() >= read + self._seconds:
            value = await self._read(variable)
            if len(self._found) >= MANY:
                self._found.clear()
            self._found[variable] = (self._clock(), value)
        return value

    async def _read(self, variable: str) -> str | None:
        try:
            answer = await self._ssm.call(
                "get_parameter",
                expect=("ParameterNotFound", "ParameterVersionNotFound"),
                Name=f"{self._path}/{variable}",
                WithDecryption=True,
            )
        except Refused:
            return None
        return str(answer["Parameter"]["Value"]) or None
