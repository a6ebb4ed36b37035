"""Asking only public addresses: what a URL that somebody else has given may lead to."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

import httpx


class NotPublic(httpx.ConnectError):
    """The host has an address that is not public; nothing was sent to it."""


class PublicTransport(httpx.BaseTransport):
    """Sends a request only where its host has none but public addresses, and to the very address that was checked.

    Looking the name up once and connecting to what was found keeps a name from being public when it is
    checked and private when it is used.
    """

    def __init__(self) -> None:
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request. Raises httpx.ConnectError where it must not be sent."""
        _lead_to(request, public_address(request.url.host, _port(request)))
        return self._inner.handle_request(request)

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


class AsyncPublicTransport(httpx.AsyncBaseTransport):
    """`PublicTransport` for async clients.

    Each host has connections of its own: as they are made by address, a pool would lend one host's to another that
    has the same address, and for which its certificate was never checked.
    """

    def __init__(self, limits: httpx.Limits) -> None:
        self._limits = limits
        self._ssl = httpx.create_ssl_context()
        self._inner: dict[str, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request. Raises httpx.ConnectError where it must not be sent."""
        host = request.url.host
        _lead_to(request, await async_public_address(host, _port(request)))
        inner = self._inner.get(host)
        if inner is None:
            inner = self._inner[host] = httpx.AsyncHTTPTransport(verify=self._ssl, limits=self._limits)
        return await inner.handle_async_request(request)

    async def aclose(self) -> None:
        """Close the connections."""
        for inner in self._inner.values():
            await inner.aclose()


def public_address(host: str, port: int) -> str:
    """An address of the host.

    Raises NotPublic for a host that has an address which is not public, httpx.ConnectError for one that has none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _no_address(host, error) from error
    return _first_of_public(host, found)


async def async_public_address(host: str, port: int) -> str:
    """`public_address` that doesn't hold up the event loop."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise _no_address(host, error) from error
    return _first_of_public(host, found)


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet's, and not of this machine or its network."""
    ip = ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None) or ip
    return bool(mapped.is_global and not mapped.is_multicast)


def _port(request: httpx.Request) -> int:
    return request.url.port or (443 if request.url.scheme == "https" else 80)


def _lead_to(request: httpx.Request, address: str) -> None:
    """Send the request to an address of its host; TLS and the Host header still name the host."""
    request.extensions = {**request.extensions, "sni_hostname": request.url.host}
    request.url = request.url.copy_with(host=address)


def _no_address(host: str, error: Exception) -> httpx.ConnectError:
    return httpx.ConnectError(f"{host} has no address: {error}")


def _first_of_public(host: str, found: Sequence[tuple[Any, ...]]) -> str:
    addresses = [str(address[0]) for *_, address in found]
    private = [address for address in addresses if not is_public(address)]
    if private:
        raise NotPublic(f"{host} is {private[0]}, which is not a public address")
    return addresses[0]
