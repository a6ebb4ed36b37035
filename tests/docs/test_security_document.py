"""docs/security.md: what it promises holds on a server as people run it, and the tests that it names are there."""

import re
import stat
from pathlib import Path

import httpx2
import pytest
from support.processes.document_samples import DOCS, ROOT
from support.processes.server import ServerProcess

from mail.auth.tokens import TOKEN_BYTES
from mail.config import ServerConfig
from mail.core.task.documents import CallerRole

TEXT = (DOCS / "security.md").read_text(encoding="utf-8")
DEFAULTS = ServerConfig.model_validate({})


def ask(server: ServerProcess, method: str, path: str, role: CallerRole | None, **options: object) -> int:
    headers = {"Authorization": f"Bearer {server.tokens[role]}"} if role else {}
    return httpx2.request(method, server.url + path, headers=headers, timeout=30, **options).status_code  # type: ignore[arg-type]


def test_what_needs_no_key(server: ServerProcess) -> None:
    for path in ("/", "/health", "/swarms"):
        assert f"`GET {path}`" in TEXT
        assert ask(server, "GET", path, None) == 200
    for path in ("/whoami", "/status", "/tasks", "/swarms/dump"):
        assert ask(server, "GET", path, None) == 401


def test_a_wrong_role_is_refused_before_its_body_is_read(server: ServerProcess) -> None:
    assert ask(server, "POST", "/health", "user", content=b"no JSON") == 403
    assert ask(server, "POST", "/health", "admin", content=b"no JSON") == 400


def test_what_is_kept_of_tokens(server: ServerProcess) -> None:
    files = [path for path in server.folder.glob("mail.db*") if path.suffix != ".db-shm"]
    kept = b"".join(path.read_bytes() for path in files)
    assert len(kept) > 10_000
    for token in server.tokens.values():
        assert len(token.split("_", 2)[2]) * 6 // 8 == TOKEN_BYTES == 32
        assert token.encode() not in kept
    assert stat.S_IMODE((server.folder / "mail.db").stat().st_mode) == 0o600


def test_the_settings(server: ServerProcess) -> None:
    for module in DEFAULTS.settings.allowed_imports:
        assert f"`{module}`" in TEXT
    assert DEFAULTS.settings.max_body_bytes == 4 * 2**20
    too_large = b"x" * (DEFAULTS.settings.max_body_bytes + 1)
    assert ask(server, "POST", "/message", "user", content=too_large) == 413
    assert ask(server, "GET", "/docs", "user") == 404
    assert ask(server, "POST", "/responses", "user", json={"input": "1+1"}) == 404


@pytest.mark.parametrize("path", re.findall(r"`(tests/\S+\.py)`", TEXT))
def test_its_tests_are_there(path: str) -> None:
    assert "def test_" in (ROOT / Path(path)).read_text(encoding="utf-8")
