"""The client that the commands use, built from the command line, the environment and the configuration."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from mail.auth.local_keys import LocalKeys, find_keys
from mail.cli.program import DEFAULT_PORT, configured_server, program
from mail.client import EventStream, MAILClient
from mail.client.connection import read_json, read_server
from mail.client.errors import InvalidConnection, ServerUnreachable
from mail.client.messaging import MessageOptions
from mail.client.operations import OPERATIONS, Request
from mail.config import ClientConfig, load_config
from mail.errors import MAILError

if TYPE_CHECKING:
    import httpx2

KEY_VARIABLE = "MAIL_API_KEY"

UNAUTHORIZED = 401

PROBE_TIMEOUT = 1.0
"""Seconds to look for a server under the other scheme."""

_HOST_AND_PORT = re.compile(r"(?P<host>[\w.-]+|\[[\da-fA-F:]+\]):\d+/?")
_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|\[::1\]")


class MissingKey(MAILError):
    """The server requires a key, and none was given."""


class CommandClient(MAILClient):
    """A client with methods for the commands' own forms of some operations.

    Without a key it uses those that a server on this machine has written for its commands: its admin's where only
    admins are allowed, else its user's. They are sent to the one address that the server listens on, never anywhere
    else.
    """

    local_keys: LocalKeys | None = None

    async def post(self, text: str, options: MessageOptions) -> dict[str, Any]:
        """Send a message, and return the answer with its events."""
        return await self._post(text, options, show_events=True)

    async def post_stream(self, text: str, options: MessageOptions) -> EventStream:
        """Send a message, and return the stream of its events."""
        return await self._post_stream(text, options)

    async def post_interswarm(
        self, text: str, targets: list[str], token: str | None, options: MessageOptions, **fields: Any
    ) -> dict[str, Any]:
        """Send a message to agents of other swarms."""
        return await self._send_interswarm(text, targets, token, options, **fields)

    async def post_responses(self, **fields: Any) -> dict[str, Any]:
        """Perform `debug_post_responses`, but return the JSON, without loading the openai package."""
        return await self._post_responses(**fields)

    async def ask_mail(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Return the answer of the server of MAIL 2.0, which is below `/v2`; parameters that are None are left out."""
        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        request = Request(method, f"/v2{path}", given, body)
        async with self._deadline(str(request)):
            return dict(read_json(await self._send(request)))

    async def post_mcp(self, message: bytes, headers: Mapping[str, str]) -> "httpx2.Response":
        """Send a message of MCP, and return the response, of any status, which is still to be read."""
        headers = {"Content-Type": "application/json", **headers}
        return await self._send(Request("POST", "/mcp", content=message, headers=headers), stream=True)

    async def _request(
        self, operation: str, parameters: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> "httpx2.Response":
        if self.local_keys is not None and self.api_key is None and OPERATIONS[operation].for_admins:
            headers = {"Authorization": f"Bearer {self.local_keys.admin}", **(headers or {})}
        return await super()._request(operation, parameters, headers)

    async def _send(self, request: Request, *, stream: bool = False) -> "httpx2.Response":
        """Send a request; errors name the URL that the user knows, and what to do."""
        keys = self.local_keys if self.api_key is None else None
        if keys is not None and request.url.startswith("/"):
            request = replace(request, url=keys.url + request.url)
        if keys is not None and request.url.startswith(f"{keys.url}/"):
            request = replace(request, headers={"Authorization": f"Bearer {keys.user}", **request.headers})
        try:
            response = await super()._send(request, stream=stream)
        except ServerUnreachable as error:
            hint = await other_scheme(self.base_url) or self._start_hint()
            raise ServerUnreachable(f"cannot connect to {self.base_url}{hint}") from error
        if response.status_code == UNAUTHORIZED and self.api_key is None:
            await response.aclose()
            raise MissingKey(f"{self.base_url} requires an API key: give --api-key, or set {KEY_VARIABLE}")
        return response

    def _start_hint(self) -> str:
        """Return how to start the server, if it would be on this machine."""
        host = urlsplit(self.base_url).netloc.rpartition(":")[0]
        return f"; start a server there with: {program()} server" if _LOOPBACK.fullmatch(host) else ""


async def other_scheme(base_url: str) -> str:
    """Return the end of an error message if a MAIL server answers at this address, but over http instead of https."""
    import httpx2

    url = httpx2.URL(base_url)
    other = url.copy_with(scheme="http" if url.scheme == "https" else "https")
    try:
        async with httpx2.AsyncClient(timeout=PROBE_TIMEOUT) as client:
            answer = await client.get(f"{str(other).rstrip('/')}/health")
    except (httpx2.HTTPError, ValueError):
        return ""
    return f", but {str(other).rstrip('/')} answers" if answer.is_success else ""


def is_on_this_machine(base_url: str) -> bool:
    """Return whether a URL is of a server on this machine."""
    host = urlsplit(base_url).hostname or ""
    return _LOOPBACK.fullmatch(f"[{host}]" if ":" in host else host) is not None


def connect(
    server: str | None = None,
    api_key: str | None = None,
    *,
    timeout: float | None = None,
    verbose: bool = False,
    config: Path | None = None,
) -> CommandClient:
    """Return a client of the server on the command line, or of the configured one.

    Raises click.BadParameter, ConfigurationError.

    The server of a swarm:// link never gets the key of the environment: anybody can make such a link, and
    `mail register` lets browsers open it.
    """
    configured = load_config(config).client
    settings = {
        "timeout": configured.timeout if timeout is None else timeout,
        "verbose": verbose or configured.verbose,
    }
    given = ClientConfig.model_validate(settings)
    return _client(configured_server(config) if server is None else server, api_key, given)


def connect_anonymously(server: str | None, *, timeout: float) -> CommandClient:
    """Return a client that sends no key, even if one is configured. Raises click.BadParameter."""
    client = _client(
        configured_server() if server is None else server,
        None,
        ClientConfig.model_validate({"timeout": timeout}),
    )
    client.api_key = client.local_keys = None
    return client


def _client(server: str, api_key: str | None, config: ClientConfig) -> CommandClient:
    if _LOOPBACK.fullmatch(server):
        server = f"{server}:{DEFAULT_PORT}"
    if bare := _HOST_AND_PORT.fullmatch(server):
        server = f"{'http' if _LOOPBACK.fullmatch(bare['host']) else 'https'}://{server}"
    try:
        address = read_server(server)
    except InvalidConnection as error:
        raise click.BadParameter(error.detail) from None
    is_link = urlsplit(server).scheme == "swarm"
    from_environment = None if is_link else os.environ.get(KEY_VARIABLE)
    client = CommandClient(address.url, api_key or address.token or from_environment or None, config=config)
    if client.api_key is None and not is_link:
        client.local_keys = find_keys(client.base_url)
    return client
