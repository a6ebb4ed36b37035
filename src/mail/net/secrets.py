"""Secrets by reference: registry entries hold `${SWARM_AUTH_TOKEN_B}` instead of a token, resolved at each use."""

import os
import re
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from mail.errors import BadRequest

PREFIX = "SWARM_AUTH_TOKEN_"

SECONDS = 60.0
"""Seconds for which a parameter, or its absence, is cached."""

MAX_CACHED = 1000
"""Parameters that are cached; callers choose the names, so the number must be bounded."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


def variable_for(swarm: str) -> str:
    """Return the environment variable of a swarm's token: `SWARM_AUTH_TOKEN_MY_SWARM` for `my-swarm`."""
    return PREFIX + re.sub(r"[^A-Z0-9]", "_", swarm.upper())


def reference_to(variable: str) -> str:
    """Return the reference that an entry holds instead of a token."""
    return f"${{{variable}}}"


def variable_in(text: str) -> str | None:
    """Return the variable that a reference names; None for any other text, such as a token."""
    found = _REFERENCE.fullmatch(text)
    return found[1] if found else None


def reference_for(swarm: str, token: str | None) -> str:
    """Return the reference to store for a swarm: the given one, or the default for the swarm's name.

    Raises BadRequest for a reference to a variable without the prefix: registering a swarm must not be a way to read
    the server's environment.
    """
    variable = variable_in(token or "") or variable_for(swarm)
    if not variable.startswith(PREFIX):
        raise BadRequest(f"auth_token may only refer to variables that begin with {PREFIX}")
    return reference_to(variable)


class Tokens(Protocol):
    """Resolves references to their values."""

    def known(self, variable: str) -> str | None:
        """Return the value if it is available without I/O."""

    async def find(self, variable: str) -> str | None:
        """Return the value. Raises StoreUnavailable if it can't be looked up now."""


class EnvironmentTokens:
    """`Tokens` in environment variables."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ

    def known(self, variable: str) -> str | None:
        """Return the value, unless it is empty."""
        return self._environ.get(variable) or None

    async def find(self, variable: str) -> str | None:
        """Return the value, unless it is empty."""
        return self.known(variable)


class Parameters(Protocol):
    """A remote store of secrets, such as SSM."""

    async def get(self, name: str) -> str | None:
        """Return a value; None if there is none. Raises StoreUnavailable."""


class ParameterTokens:
    """`Tokens` in the environment or, if not there, in a remote store.

    A function reads its environment only when it starts; all processes see a new or changed parameter within a minute.
    `clock` counts seconds.
    """

    def __init__(
        self,
        parameters: Parameters,
        environ: Mapping[str, str] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._parameters = parameters
        self._environment = EnvironmentTokens(environ)
        self._clock = clock
        self._found: dict[str, tuple[float, str | None]] = {}

    def known(self, variable: str) -> str | None:
        """Return the value in the environment, or the one last read."""
        return self._environment.known(variable) or self._found.get(variable, (0.0, None))[1]

    async def find(self, variable: str) -> str | None:
        """Return the value in the environment or in the remote store."""
        value = self._environment.known(variable)
        if value is not None:
            return value
        read, value = self._found.get(variable, (None, None))
        if read is None or self._clock() >= read + SECONDS:
            value = await self._parameters.get(variable)
            if len(self._found) >= MAX_CACHED:
                self._found.clear()
            self._found[variable] = (self._clock(), value)
        return value
