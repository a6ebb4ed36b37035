"""How commands reach a server: which one, with whose key, and how long they wait."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import typer

from mail.client import MAILClient
from mail.client.errors import InvalidConnection, ServerUnreachable
from mail.client.urls import read_server
from mail.config import ClientConfig, load_config
from mail.config.models import AS_GIVEN

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "MAIL_API_KEY"


class CommandClient(MAILClient):
    """The client of the commands: some things are asked for in other ways than programs do."""

    async def post_responses(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """`debug_post_responses` with its fields by name; returns the JSON, and doesn't load the openai package."""
        return await self._post_responses(fields)

    async def _send(self, *arguments: Any, **settings: Any) -> "httpx.Response":
        """Raises ServerUnreachable as people read it, who know the URL but no HTTP library."""
        try:
            return await super()._send(*arguments, **settings)
        except ServerUnreachable as error:
            raise ServerUnreachable(f"cannot connect to {self.base_url}") from error


def connect(
    server: str,
    api_key: str | None = None,
    *,
    timeout: float | None = None,
    verbose: bool = False,
    config: Path | None = None,
) -> CommandClient:
    """A client of the server that a command line names. Raises typer.BadParameter, ConfigurationError.

    The key of the environment is not shown to the server of a swarm:// link: anybody may have made that link, and
    `mail register` lets browsers open it.
    """
    settings = load_config(config).client
    given = {"timeout": timeout, "verbose": verbose or None}
    settings = settings.model_copy(update={name: value for name, value in given.items() if value is not None})
    return _client(server, api_key, settings)


def connect_anonymously(server: str, *, timeout: float) -> CommandClient:
    """A client that shows no key, whatever is configured. Raises typer.BadParameter."""
    config = ClientConfig.model_validate({"timeout": timeout}, context=AS_GIVEN)
    client = _client(server, None, config)
    client.api_key = None
    return client


def _client(server: str, api_key: str | None, config: ClientConfig) -> CommandClient:
    try:
        address = read_server(server)
    except InvalidConnection as error:
        raise typer.BadParameter(error.detail) from None
    is_link = urlsplit(server).scheme == "swarm"
    from_environment = None if is_link else os.environ.get(KEY_VARIABLE)
    return CommandClient(address.url, api_key or address.token or from_environment or None, config=config)
