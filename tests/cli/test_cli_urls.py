"""The URLs by which people name a server."""

import pytest
import typer

from mail.cli.urls import server_url


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://localhost:8000/", "http://localhost:8000"),
        ("https://example.com/prod/", "https://example.com/prod"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("swarm://connect?server=example.com", "https://example.com"),
        ("swarm://connect?server=example.com&token=secret", "https://example.com"),
        ("swarm://invite?server=example.com%3A8443", "https://example.com:8443"),
    ],
)
def test_reads(text: str, url: str) -> None:
    assert server_url(text) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com",
        "localhost:8000",
        "http://",
        "http://[::1",
        "swarm://connect",
        "swarm://other?server=example.com",
        "swarm://connect?server=a&server=b",
        "swarm://connect?server=user@example.com",
        "swarm://connect?server=example.com/path",
    ],
)
def test_refuses(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        server_url(text)
