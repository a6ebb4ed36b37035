"""The registry with the methods of MAIL 1.3.6, which programs call; servers do with `mail.net.peers.Registry`."""

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import Any

from mail.core.protocol.awaitables import Done
from mail.net.peers import Registry
from mail.net.secrets import reference_for, variable_for, variable_in
from mail.net.types import SwarmEndpoint

_REMOVALS: set[asyncio.Task[Any]] = set()
"""Removals that nobody has awaited yet."""


class SwarmRegistry(Registry):
    """The other swarms known to a program. It takes the arguments of `Registry`."""

    def unregister_swarm(self, swarm_name: str) -> Awaitable[bool]:
        """Delete an entry, also if the result is not awaited: whether it existed."""
        return self._begin(self._directory.forget(swarm_name))

    def get_swarm_endpoint(self, swarm_name: str) -> SwarmEndpoint | None:
        """Return the entry of a swarm; None if it is unknown."""
        peer = self._directory.get(swarm_name)
        return None if peer is None else self._endpoint(peer)

    def get_all_endpoints(self) -> dict[str, SwarmEndpoint]:
        """Return all entries, by name."""
        return {peer.name: self._endpoint(peer) for peer in self._directory.all()}

    def get_active_endpoints(self) -> dict[str, SwarmEndpoint]:
        """Return the entries of swarms that answered the last health check."""
        return {name: found for name, found in self.get_all_endpoints().items() if found.is_active}

    def get_persistent_endpoints(self) -> dict[str, SwarmEndpoint]:
        """Return the entries that are not volatile."""
        return {name: found for name, found in self.get_all_endpoints().items() if not found.volatile}

    def get_resolved_auth_token(self, swarm_name: str) -> str | None:
        """Return the token for calls to a swarm, if it is available without I/O; see `token_for`."""
        peer = self._directory.get(swarm_name)
        if peer is None:
            return None
        return self._resolve_auth_token_ref(peer.auth_token) or self._directory.given.get(swarm_name)

    def to_dict(self) -> dict[str, Any]:
        """Return the whole registry as JSON values, without tokens."""
        endpoints = self.get_all_endpoints().items()
        return {
            **self._header(),
            "endpoints": {name: endpoint.model_dump(mode="json") for name, endpoint in endpoints},
        }

    def save_persistent_endpoints(self) -> None:
        """Write the file, if one is configured, without volatile entries. Raises ConfigurationError."""
        self._directory.save()

    def load_persistent_endpoints(self) -> None:
        """Read the file; its entries replace those of the same names. Raises ConfigurationError."""
        self._load()

    def cleanup_volatile_endpoints(self) -> Awaitable[list[str]]:
        """Delete the volatile entries, also if the result is not awaited: their names."""
        return self._begin(self._forget_volatile())

    def validate_environment_variables(self) -> dict[str, bool]:
        """Return, for each variable that a persistent entry refers to, whether it is set."""
        return self._variables()

    def migrate_auth_tokens_to_env_refs(self) -> list[str]:
        """Replace tokens in plain text in the file by references.

        Returns the variables to set before the next start; until then this process remembers the tokens.
        """
        plain, self._plain_tokens = self._plain_tokens, []
        if plain:
            self.save_persistent_endpoints()
        return sorted(map(variable_for, plain))

    def _get_auth_token_ref(self, swarm_name: str, auth_token: str | None = None) -> str:
        """Return the reference to store instead of a token."""
        return reference_for(swarm_name, auth_token)

    def _resolve_auth_token_ref(self, auth_token_ref: str | None) -> str | None:
        """Return the value of a reference if it is known, and any other text as it is."""
        variable = variable_in(auth_token_ref or "")
        return self._tokens.known(variable) if variable else auth_token_ref or None

    def _begin[Result](self, removal: Coroutine[Any, Any, Result]) -> Awaitable[Result]:
        """Run a removal at once; without a database it is complete on return."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return Done(asyncio.run(removal))
        task = asyncio.Task(removal, loop=loop, eager_start=True)
        _REMOVALS.add(task)  # the loop itself would not keep it
        task.add_done_callback(_REMOVALS.discard)
        return task
