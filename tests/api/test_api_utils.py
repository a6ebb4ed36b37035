"""The documented helpers of `mail.utils`: import strings, URLs, logs, and memories."""

import json
import logging
from collections.abc import Iterator
from contextlib import suppress
from logging.handlers import TimedRotatingFileHandler
from pathlib import Path

import httpx2
import pytest
from rich.logging import RichHandler
from support.services.loopback import Handler, serve

import mail.utils
from mail import MAILAgentTemplate
from mail.errors import ConfigurationError
from mail.public_urls import PublicTransport, is_public, public_address
from mail.swarms_json.references import resolve_references, resolver
from mail.utils.logger import VERBOSE, get_loggers, init_logger
from mail.utils.parsing import MAX_URL_BYTES, read_url_string
from mail.utils.store import InMemoryStore, get_langmem_store

PAGES: dict[str, tuple[int, bytes]] = {
    "/prompt": (200, b'{"role": "chief", "names": ["\xc3\xa9"]}'),
    "/text": (200, b"not json"),
    "/huge": (200, b'"' + b"x" * MAX_URL_BYTES + b'"'),
    "/away": (302, b""),
}


class Pages(Handler):
    def respond(self) -> None:
        status, body = PAGES.get(self.path, (404, b"{}"))
        with suppress(ConnectionError):
            self.answer(status, body, {"Location": "/prompt"} if status == 302 else {})


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serve(Pages) as url:
        yield url


class TestURLs:
    def test_a_document_becomes_json_text(self, url: str) -> None:
        for text in (f"url::{url}/prompt", f"{url}/prompt", f"{url}/away"):
            assert json.loads(read_url_string(text)) == {"role": "chief", "names": ["é"]}

    @pytest.mark.parametrize("path", ["/text", "/nowhere", "/huge"])
    def test_what_can_not_be_read(self, url: str, path: str, caplog: pytest.LogCaptureFixture) -> None:
        assert read_url_string(f"url::{url}{path}") == f"{url}{path}"
        assert "the URL itself is used" in caplog.text
        with pytest.raises(RuntimeError, match="can't be read"):
            read_url_string(f"url::{url}{path}", raise_on_error=True)

    @pytest.mark.parametrize(
        "text", ["url::", "url::nonsense", "url::ftp://x/y", "url::http://127.0.0.1:1/", "url::http://[::/"]
    )
    def test_no_such_place(self, text: str) -> None:
        assert read_url_string(text) == text.removeprefix("url::")
        with pytest.raises(RuntimeError, match="can't be read"):
            read_url_string(text, raise_on_error=True)

    def test_in_agent_params(self, url: str) -> None:
        params = {"a": [{"system": f"url::{url}/prompt"}], "b": "https://example.com"}
        made = MAILAgentTemplate("a", lambda **_: None, [], [], params)
        assert made.agent_params == {
            "a": [{"system": '{"role": "chief", "names": ["é"]}'}],
            "b": "https://example.com",
        }

    def test_not_for_others(self, url: str) -> None:
        with pytest.raises(ConfigurationError, match=r"127.0.0.1 is not a public address"):
            resolve_references({"a": f"url::{url}/prompt"}, resolver(["mail.stdlib"]))
        with pytest.raises(RuntimeError, match="not a public address"):
            read_url_string(url, raise_on_error=True, allow_private=False)

    def test_public_urls_need_no_allowed_modules(self, url: str) -> None:
        resolve = resolver(["mail.stdlib"], trusts_urls=True)
        assert resolve_references(f"url::{url}/prompt", resolve).startswith("{")


class TestPublicAddresses:
    @pytest.mark.parametrize(
        ("address", "public"),
        [
            ("8.8.8.8", True),
            ("2001:4860:4860::8888", True),
            ("127.0.0.1", False),
            ("10.1.2.3", False),
            ("169.254.169.254", False),
            ("100.64.0.1", False),
            ("224.0.0.1", False),
            ("0.0.0.0", False),
            ("::1", False),
            ("fe80::1%eth0", False),
            ("fd00::1", False),
            ("::ffff:10.0.0.1", False),
            ("64:ff9b::a00:1", False),  # 10.0.0.1 by NAT64
            ("64:ff9b::808:808", True),
            ("2002:a00:1::", False),  # 10.0.0.1 by 6to4
            ("64:ff9b:1::a00:1", False),  # by NAT64 of the network's own
            ("2001:0:a00:1::1", False),  # Teredo
            ("::a00:1", False),  # in the old form
            ("::ffff:0:a00:1", False),  # by SIIT
            ("fec0::1", False),
            ("5f00::1", False),
            ("3fff::1", False),
            ("ff0e::1", False),
        ],
    )
    def test_addresses(self, address: str, public: bool) -> None:
        assert is_public(address) is public

    def test_every_address_of_a_host_must_be_public(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found = [(2, 1, 6, "", ("8.8.8.8", 80)), (2, 1, 6, "", ("10.0.0.1", 80))]
        monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: found)
        with pytest.raises(httpx2.ConnectError, match=r"sly.example is 10.0.0.1"):
            public_address("sly.example", 80)
        found.pop()
        assert public_address("plain.example", 80) == "8.8.8.8"

    def test_the_address_that_was_checked_is_asked(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("mail.public_urls.public_address", lambda host, port: "127.0.0.1")
        with httpx2.Client(transport=PublicTransport()) as client:
            response = client.get(url.replace("127.0.0.1", "prompts.example") + "/prompt")
        assert response.json()["role"] == "chief"


class TestLogs:
    @pytest.fixture(autouse=True)
    def _restore(self) -> Iterator[None]:
        root, own = logging.getLogger(), logging.getLogger("mail")
        handlers, level = list(root.handlers), own.level
        yield
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)
            handler.close()
        own.setLevel(level)

    def test_console_and_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAIL_LOG_DIR", str(tmp_path / "deep" / "logs"))
        noisy = logging.getLogger(VERBOSE[0])
        noisy.addHandler(logging.NullHandler())
        init_logger()
        init_logger()
        kinds = [type(handler) for handler in logging.getLogger().handlers]
        assert kinds.count(RichHandler) == kinds.count(TimedRotatingFileHandler) == 1
        assert not noisy.handlers
        logging.getLogger("mail.test").info("hello")
        assert "INFO mail.test: hello" in (tmp_path / "deep" / "logs" / "mail.log").read_text()
        assert "mail.test" in get_loggers()

    def test_nowhere_to_write(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").touch()
        monkeypatch.setenv("MAIL_LOG_DIR", str(tmp_path / "file"))
        init_logger()
        assert "logs are not written to" in caplog.text

    def test_level(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAIL_LOG_DIR", str(tmp_path))
        monkeypatch.setenv("MAIL_LOG_LEVEL", "debug")
        init_logger()
        assert logging.getLogger("mail").level == logging.DEBUG
        monkeypatch.setenv("MAIL_LOG_LEVEL", "loud")
        with pytest.raises(ValueError, match="'LOUD' is not a log level"):
            init_logger()


class TestMemories:
    async def test_in_this_process(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("DATABASE_URL", raising=False)
        async with get_langmem_store() as store:
            await store.aput(("ann", "facts"), "1", {"text": "likes tea"})
            await store.aput(("ann", "facts"), "2", {"text": "drinks no coffee"})
            await store.aput(("bob",), "1", {"text": "likes coffee"})
            found = await store.aget(("ann", "facts"), "1")
            assert found.value == {"text": "likes tea"}
            assert len(await store.asearch(("ann",))) == 2
            await store.adelete(("ann", "facts"), "1")
            assert await store.aget(("ann", "facts"), "1") is None

    async def test_words(self) -> None:
        store = InMemoryStore()
        await store.aput(("a",), "1", {"text": "Tea in the morning"})
        await store.aput(("a",), "2", {"text": "tea at night"})
        await store.aput(("a",), "2", {"text": "coffee at night"})
        assert [item.key for item in await store.asearch((), query="morning TEA")] == ["1"]
        assert [item.key for item in await store.asearch((), limit=1, offset=1)] == ["1"]
        assert (await store.aget(("a",), "2")).created_at <= (await store.aget(("a",), "2")).updated_at  # type: ignore[union-attr]

    @pytest.mark.parametrize("scheme", ["postgresql", "postgresql+asyncpg"])
    async def test_in_this_process_if_the_package_for_postgres_is_missing(
        self, scheme: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv("DATABASE_URL", f"{scheme}://nobody:secret@127.0.0.1:1/x")
        async with get_langmem_store() as store:
            await store.aput(("ann",), "1", {"text": "likes tea"})
            assert len(await store.asearch(("ann",))) == 1
        assert "pip install langgraph-checkpoint-postgres" in caplog.text
        assert "secret" not in caplog.text


@pytest.mark.parametrize("name", mail.utils.__all__)
def test_names(name: str) -> None:
    assert getattr(mail.utils, name).__name__ == name


def test_other_names() -> None:
    with pytest.raises(AttributeError, match="no attribute 'read_pyton'"):
        _ = mail.utils.read_pyton
