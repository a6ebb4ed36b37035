"""Which names and URLs can be registered."""

import pytest

from mail.errors import BadRequest
from mail.net.aws_signature import lambda_region
from mail.net.registration import check_name, check_url, host_of, is_loopback, is_name


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://localhost:8001", "http://localhost:8001"),
        (" https://Beta.Example/ ", "https://beta.example"),
        ("https://beta.example/Stage//", "https://beta.example/Stage"),
        ("HTTPS://[2001:DB8::1]:8443/a", "https://[2001:db8::1]:8443/a"),
    ],
)
def test_a_url_has_one_form(given: str, kept: str) -> None:
    assert check_url(given) == kept
    assert check_url(kept) == kept


@pytest.mark.parametrize(
    "url",
    [
        "",
        "beta.example",
        "ftp://beta.example",
        "file:///etc/passwd",
        "http://",
        "http://:80",
        "http://ann:s3cr3t@beta.example",
        "http://s3cr3t@beta.example",
        "http://beta.example?x=s3cr3t",
        "http://beta.example/#s3cr3t",
        "http://beta.example:99999",
        "http://beta.example:0",
        "http://beta example",
        "http://beta.example/\nx",
        "http://[::1",
        "http://" + "x" * 3000,
    ],
)
def test_what_is_no_base_url(url: str) -> None:
    with pytest.raises(BadRequest, match="base_url") as refused:
        check_url(url)
    assert "s3cr3t" not in refused.value.detail


@pytest.mark.parametrize("name", ["b", "swarm-beta", "Bêta 2", "x" * 128])
def test_names(name: str) -> None:
    assert check_name(name) == name
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "a@b", "a:b", "a#b", "a\nb", " a", "a ", "x" * 129])
def test_what_is_no_name(name: str) -> None:
    assert not is_name(name)
    with pytest.raises(BadRequest, match="can't be the name of a swarm"):
        check_name(name)


@pytest.mark.parametrize(
    ("host", "is_it"),
    [
        ("localhost", True),
        ("beta.localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_loopback(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it


def test_hosts_and_regions() -> None:
    assert host_of("https://x.lambda-url.eu-west-1.on.aws/a") == "x.lambda-url.eu-west-1.on.aws"
    assert host_of("") == ""
    assert lambda_region("https://x.lambda-url.eu-west-1.on.aws") == "eu-west-1"
    assert lambda_region("https://x.lambda-url.eu-west-1.on.aws.evil.example") is None
    assert lambda_region("https://beta.example/x.lambda-url.eu-west-1.on.aws") is None
