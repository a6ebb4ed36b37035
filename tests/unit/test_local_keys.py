"""Keys for commands on the machine of a server: where they are, who can read them, and for which address they are."""

import os
import stat
from pathlib import Path

import pytest

from mail.auth.keys import Caller
from mail.auth.local_keys import LocalAuthenticator, find_keys, offer_keys
from mail.errors import Unauthenticated


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    return tmp_path / "mail" / "servers"


def test_keys_are_found_while_the_server_runs(folder: Path) -> None:
    with offer_keys("127.0.0.1", 8123) as keys:
        assert keys is not None
        assert find_keys("http://127.0.0.1:8123") == find_keys("http://localhost:8123/") == keys
        assert keys.user != keys.admin
    assert find_keys("http://127.0.0.1:8123") is None
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:8124",
        "http://127.0.0.1",
        "http://127.0.0.2:8123",
        "http://[::1]:8123",
        "https://127.0.0.1:8123",
        "http://127.0.0.1.example.com:8123",
        "http://localhost.example.com:8123",
        "http://127.0.0.1:8123@example.com",
        "http://example.com:8123",
        "http://127.0.0.1:8123/proxied",
    ],
)
def test_keys_are_for_one_address_only(url: str) -> None:
    with offer_keys("127.0.0.1", 8123):
        assert find_keys(url) is None


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8123"),
        ("", "http://127.0.0.1:8123"),
        ("localhost", "http://127.0.0.1:8123"),
        ("::1", "http://[::1]:8123"),
        ("::", "http://[::1]:8123"),
    ],
)
def test_a_name_leads_to_the_address_that_the_server_listens_on(host: str, url: str) -> None:
    with offer_keys(host, 8123) as keys:
        found = find_keys("http://localhost:8123")
        assert found == keys == find_keys(url)
        assert found is not None
        assert found.url == url


def test_servers_on_one_machine_do_not_mix() -> None:
    with offer_keys("127.0.0.1", 8123) as first, offer_keys("127.0.0.1", 8124) as second:
        with offer_keys("::1", 8123) as third:
            urls = ("http://127.0.0.1:8123", "http://127.0.0.1:8124", "http://[::1]:8123")
            assert [find_keys(url) for url in urls] == [first, second, third]
            assert find_keys("http://localhost:8123") == first
        assert find_keys("http://localhost:8123") == first


@pytest.mark.parametrize("host", ["192.168.0.5", "127.0.0.2", "mail.example"])
def test_other_hosts_have_none(folder: Path, host: str) -> None:
    with offer_keys(host, 8123) as keys:
        assert keys is None
        assert not folder.exists()


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
def test_only_the_user_can_read_them(folder: Path) -> None:
    folder.mkdir(parents=True, mode=0o755)
    with offer_keys("127.0.0.1", 8123):
        (file,) = folder.iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.skipif(os.name != "posix", reason="links need no rights on POSIX")
def test_a_link_in_the_way_is_not_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(parents=True)
    target = tmp_path / "precious"
    target.write_text("stays")
    (folder / "127.0.0.1-8123.json").symlink_to(target)
    with offer_keys("127.0.0.1", 8123) as keys:
        assert find_keys("http://127.0.0.1:8123") == keys
    assert target.read_text() == "stays"


def test_a_file_that_was_left_behind_is_replaced_or_deleted(folder: Path) -> None:
    with offer_keys("127.0.0.1", 8123) as stale:
        with offer_keys("127.0.0.1", 8123) as fresh:
            assert find_keys("http://127.0.0.1:8123") == fresh != stale
        with offer_keys("127.0.0.1", 8123):
            pass
    with offer_keys("127.0.0.1", 8123), offer_keys("127.0.0.1", 8123, wanted=False) as keys:
        assert keys is None
        assert list(folder.iterdir()) == []


def test_only_the_server_that_wrote_a_file_deletes_it() -> None:
    with offer_keys("127.0.0.1", 8123):
        later = offer_keys("127.0.0.1", 8123)
        keys = later.__enter__()
    assert find_keys("http://127.0.0.1:8123") == keys
    later.__exit__(None, None, None)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"url": "http://127.0.0.1:9", "user": "u", "admin": "a"}']
)
def test_a_damaged_file_counts_as_none(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "127.0.0.1-8123.json").write_text(text)
    assert find_keys("http://127.0.0.1:8123") is None


def test_a_folder_that_can_not_be_written_is_one_line_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mail").write_text("a file")
    with offer_keys("127.0.0.1", 8123) as keys:
        assert keys is None
    assert len(caplog.records) == 1
    assert "--api-key" in caplog.text


async def test_a_server_accepts_its_own_keys_and_asks_about_others() -> None:
    class Nobody:
        async def authenticate(self, bearer: str) -> Caller:
            raise Unauthenticated

    with offer_keys("127.0.0.1", 8123) as keys, offer_keys("127.0.0.1", 8124) as others:
        assert keys is not None
        assert others is not None
        authenticator = LocalAuthenticator(keys, Nobody())
        for key, role in ((keys.user, "user"), (keys.admin, "admin")):
            caller = await authenticator.authenticate(key)
            assert (caller.role, caller.id, caller.is_local) == (role, role, True)
        with pytest.raises(Unauthenticated):
            await authenticator.authenticate(others.user)
