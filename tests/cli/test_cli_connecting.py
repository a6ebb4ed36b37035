"""The server that a command line names, and the key that is sent to it."""

import io
from pathlib import Path

import click
import pytest

from mail.cli.connection import KEY_VARIABLE, connect, connect_anonymously
from mail.cli.output import Output
from mail.cli.program import program
from mail.cli.session import Session

pytestmark = pytest.mark.fast

LINK = "swarm://connect?server=example.com"


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without a configuration."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MAIL_CONFIG_PATH", raising=False)
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("http://localhost:8000", "http://localhost:8000"),
        ("localhost:8000", "http://localhost:8000"),
        ("localhost", "http://localhost:8000"),
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("[::1]:8000", "http://[::1]:8000"),
        ("mail.example.com:8443", "https://mail.example.com:8443"),
        (LINK, "https://example.com"),
        ("swarm://invite?server=example.com%3A8443&token=secret", "https://example.com:8443"),
    ],
)
def test_reads_urls(text: str, url: str) -> None:
    assert connect(text).base_url == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com",
        "localhost:port",
        "swarm://other?server=example.com&token=secret",
    ],
)
def test_refuses_what_names_no_server_and_repeats_no_key(text: str) -> None:
    with pytest.raises(click.BadParameter) as refusal:
        connect(text)
    assert "secret" not in refusal.value.message


def test_the_key_is_the_flags_then_the_links_then_the_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "mine")
    assert connect("http://localhost", "flag").api_key == "flag"
    assert connect("http://localhost").api_key == "mine"
    assert connect(f"{LINK}&token=theirs", "flag").api_key == "flag"
    assert connect(f"{LINK}&token=theirs").api_key == "theirs"


@pytest.mark.parametrize("link", [LINK, LINK.replace("swarm", "SWARM"), LINK.replace("connect", "invite")])
def test_whoever_made_a_link_does_not_get_the_key_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, link: str
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "mine")
    assert connect(link).api_key is None


def test_ping_shows_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "mine")
    assert connect_anonymously("http://localhost", timeout=1).api_key is None
    assert connect_anonymously(f"{LINK}&token=theirs", timeout=1).api_key is None


def test_settings_are_the_flags_then_the_files(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("[client]\ntimeout = 7.0\nverbose = true\n", encoding="utf-8")
    configured = connect("http://localhost", config=file).config
    assert (configured.timeout, configured.verbose) == (7.0, True)
    assert connect("http://localhost", config=file, timeout=2).config.timeout == 2
    assert connect("http://localhost", verbose=True).config.verbose is True
    assert connect("http://localhost").config.timeout == 3600


def test_hints_name_the_program_as_it_was_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "mail"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setattr("sys.argv", [str(script), "demo"])
    assert program() == "bin/mail"
    monkeypatch.setenv("MAIL_PROGRAM", "python3 scripts/dev.py mail")
    assert program() == "python3 scripts/dev.py mail"
    monkeypatch.setenv("PATH", str(script.parent))
    assert program() == "mail"


def test_hints_name_the_server_unless_the_command_finds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAIL_SERVER", raising=False)
    for url, words in (
        ("http://localhost:8000", ""),
        ("http://localhost:9000", " --server http://localhost:9000"),
    ):
        session = Session(connect(url), Output(io.StringIO()), is_prompt=False)
        assert session.shell_command("reply", "asked", '"yes"').endswith(f'mail reply asked "yes"{words}')
    monkeypatch.setenv("MAIL_SERVER", "http://localhost:9000")
    assert "--server" not in session.shell_command("reply", "asked")
