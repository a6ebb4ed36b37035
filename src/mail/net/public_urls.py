"""Asking only public addresses: what a URL that somebody else has given may lead to."""

import asyncio
import socket
import ssl
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Any

import httpx

NAT64 = IPv6Network("64:ff9b::/96")

GLOBAL_UNICAST = IPv6Network("2000::/3")
"""What IANA has given the internet of IPv6 (RFC 4291). Outside of it is much that leads into a network, some of which
`ipaddress` takes for public: site-local addresses, NAT64 by a prefix of one's own (RFC 8215), IPv4 in old notations."""

DOCUMENTATION = IPv6Network("3fff::/20")
"""RFC 9637, which is newer than what `ipaddress` knows."""

DEFAULT_LIMITS = httpx.Limits()


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
        host = _host(request)
        return self._inner.handle_request(_lead_to(request, host, public_address(host, _port(request))))

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


class AsyncPublicTransport(httpx.AsyncBaseTransport):
    """`PublicTransport` for async clients.

    Each host has connections of its own: as they are made by address, a pool would lend one host's to another that
    has the same address, and for which its certificate was never checked.
    """

    def __init__(
        self, limits: httpx.Limits = DEFAULT_LIMITS, *, verify: ssl.SSLContext | None = None
    ) -> None:
        self._limits = limits
        self._ssl = verify or httpx.create_ssl_context()
        self._inner: dict[str, httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request. Raises httpx.ConnectError where it must not be sent."""
        host = _host(request)
        checked = _lead_to(request, host, await async_public_address(host, _port(request)))
        inner = self._inner.get(host)
        if inner is None:
            inner = self._inner[host] = httpx.AsyncHTTPTransport(verify=self._ssl, limits=self._limits)
        return await inner.handle_async_request(checked)

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
    meant = _inside(ip) if isinstance(ip, IPv6Address) else ip
    if isinstance(meant, IPv6Address) and (meant not in GLOBAL_UNICAST or meant in DOCUMENTATION):
        return False
    return bool(meant.is_global and not meant.is_multicast)


def _inside(ip: IPv6Address) -> IPv4Address | IPv6Address:
    """The IPv4 address that an IPv6 one leads to: mapped, by 6to4 (RFC 3056), or by NAT64 (RFC 6052)."""
    if ip in NAT64:
        return IPv4Address(ip.packed[-4:])
    return ip.ipv4_mapped or ip.sixtofour or ip


def _port(request: httpx.Request) -> int:
    return request.url.port or (443 if request.url.scheme == "https" else 80)


def _host(request: httpx.Request) -> str:
    return request.url.raw_host.decode("ascii")


def _lead_to(request: httpx.Request, host: str, address: str) -> httpx.Request:
    """The request to an address of its host; TLS and the Host header still name the host.

    It is another one, as redirects are read by the URL of the first.
    """
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )


def _no_address(host: str, error: Exception) -> httpx.ConnectError:
    return httpx.ConnectError(f"{host} has no address: {error}")


def _first_of_public(host: str, found: Sequence[tuple[Any, ...]]) -> str:
    addresses = [str(address[0]) for *_, address in found]
    private = [address for address in addresses if not is_public(address)]
    if private:
        raise NotPublic(f"{host} is {private[0]}, which is not a public address")
    return addresses[0]
