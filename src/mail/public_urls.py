"""HTTP transports that connect only to public addresses, for URLs from untrusted sources (SSRF)."""

import asyncio
import socket
import ssl
from functools import cache
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import httpx2

NAT64 = IPv6Network("64:ff9b::/96")

GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The global unicast range of IPv6 (RFC 4291). `ipaddress` counts some addresses outside it as public although they
lead into a local network: site-local ones, local NAT64 prefixes (RFC 8215), IPv4 in old notations."""

DOCUMENTATION = IPv6Network("3fff::/20")
"""The documentation range of RFC 9637, which `ipaddress` doesn't know yet."""

DEFAULT_LIMITS = httpx2.Limits()


@cache
def tls() -> ssl.SSLContext:
    """Return the trusted certificates, cached as reading them is slow."""
    return httpx2.create_ssl_context()


class NotPublic(httpx2.ConnectError):
    """The host has a private address; no request was sent."""


class NoAddress(httpx2.ConnectError):
    """The host has no address; no request was sent."""


class PublicTransport(httpx2.BaseTransport):
    """Sends a request only if all addresses of its host are public, and to an address that was checked.

    One lookup serves both the check and the connection, so that a name can't change in between (DNS rebinding).
    """

    def __init__(self) -> None:
        self._inner = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises httpx2.ConnectError if its host is not public."""
        host = _host(request)
        return self._inner.handle_request(_readdress(request, host, public_address(host, _port(request))))

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


class AsyncPublicTransport(httpx2.AsyncBaseTransport):
    """`PublicTransport` for async clients.

    Each host has its own pool: connections are made by address, so a shared pool would reuse one host's connection for
    another host on the same address, whose certificate was never checked.
    """

    def __init__(
        self, limits: httpx2.Limits = DEFAULT_LIMITS, *, verify: ssl.SSLContext | None = None
    ) -> None:
        self._limits = limits
        self._ssl = verify or httpx2.create_ssl_context()
        self._inner: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request. Raises httpx2.ConnectError if its host is not public."""
        host = _host(request)
        checked = _readdress(request, host, await asyncio.to_thread(public_address, host, _port(request)))
        inner = self._inner.get(host)
        if inner is None:
            inner = self._inner[host] = httpx2.AsyncHTTPTransport(verify=self._ssl, limits=self._limits)
        return await inner.handle_async_request(checked)

    async def aclose(self) -> None:
        """Close the connections."""
        for inner in self._inner.values():
            await inner.aclose()


def public_address(host: str, port: int) -> str:
    """Return an address of the host.

    Raises NotPublic if any of its addresses is private, NoAddress if it has none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NoAddress(f"{host} has no address: {error}") from error
    addresses = [str(address[0]) for *_, address in found]
    private = [address for address in addresses if not is_public(address)]
    if private:
        where = "" if host == private[0] else f"{private[0]}, which is "
        raise NotPublic(f"{host} is {where}not a public address")
    return addresses[0]


def is_public(address: str) -> bool:
    """Return whether an IP address is on the internet, not on this machine or its network."""
    ip = ip_address(address.partition("%")[0])
    target = _inside(ip) if isinstance(ip, IPv6Address) else ip
    if isinstance(target, IPv6Address) and (target not in GLOBAL_UNICAST or target in DOCUMENTATION):
        return False
    return bool(target.is_global and not target.is_multicast)


def _inside(ip: IPv6Address) -> IPv4Address | IPv6Address:
    """Return the IPv4 address inside an IPv6 one: mapped, 6to4 (RFC 3056) or NAT64 (RFC 6052)."""
    if ip in NAT64:
        return IPv4Address(ip.packed[-4:])
    return ip.ipv4_mapped or ip.sixtofour or ip


def _port(request: httpx2.Request) -> int:
    return request.url.port or (443 if request.url.scheme == "https" else 80)


def _host(request: httpx2.Request) -> str:
    return request.url.raw_host.decode("ascii")


def _readdress(request: httpx2.Request, host: str, address: str) -> httpx2.Request:
    """Return a copy of the request that goes to an address; TLS and the Host header still name the host.

    The original stays as it is, because redirects are resolved against its URL.
    """
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )
