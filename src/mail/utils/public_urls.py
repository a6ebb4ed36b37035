"""Asking only public addresses: what a URL that somebody else has given may lead to."""

import socket
from ipaddress import ip_address

import httpx


class PublicTransport(httpx.BaseTransport):
    """Sends a request only where its host has none but public addresses, and to the very address that was checked.

    Looking the name up once and connecting to what was found keeps a name from being public when it is
    checked and private when it is used.
    """

    def __init__(self) -> None:
        self._inner = httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send the request. Raises httpx.ConnectError where it must not be sent."""
        host = request.url.host
        address = public_address(host, request.url.port or (443 if request.url.scheme == "https" else 80))
        request.url = request.url.copy_with(host=address)
        request.extensions = {**request.extensions, "sni_hostname": host}
        return self._inner.handle_request(request)

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


def public_address(host: str, port: int) -> str:
    """An address of the host. Raises httpx.ConnectError for a host that has an address which is not public."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpx.ConnectError(f"{host} has no address: {error}") from error
    addresses = [str(address[0]) for *_, address in found]
    private = [address for address in addresses if not is_public(address)]
    if private:
        raise httpx.ConnectError(f"{host} is {private[0]}, which is not a public address")
    return addresses[0]


def is_public(address: str) -> bool:
    """Whether an IP address is one of the internet's, and not of this machine or its network."""
    ip = ip_address(address.partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None) or ip
    return bool(mapped.is_global and not mapped.is_multicast)
