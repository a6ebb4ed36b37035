"""`mail server` with an external authentication service (SPEC, section 10)."""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from support.processes.server import ServerProcess
from support.services.loopback import Handler, serve

KEY, TOKEN = "key-of-ann", "token-of-ann"


class AuthService(Handler):
    """Knows one key: a user's."""

    def respond(self) -> None:
        if self.command == "POST":
            expected, answer = KEY, {"token": TOKEN}
        else:
            expected, answer = TOKEN, {"role": "user", "id": "ann", "api_key": KEY}
        accepted = self.headers.get("Authorization") == f"Bearer {expected}"
        body = json.dumps(answer if accepted else {"detail": "no"}).encode()
        self.answer(200 if accepted else 401, body)


@pytest.fixture
def endpoints() -> Iterator[dict[str, str]]:
    with serve(AuthService) as url:
        yield {"AUTH_ENDPOINT": f"{url}/auth/login", "TOKEN_INFO_ENDPOINT": f"{url}/auth/check"}


def test_keys_of_the_service_are_accepted_and_no_tokens_issued(
    tmp_path: Path, endpoints: dict[str, str]
) -> None:
    with ServerProcess(tmp_path, env=endpoints) as server:
        assert "mail_" not in server.output
        assert server.url.startswith("http://localhost:"), "the configured host: the service guards it"
        server.tokens["user"] = KEY
        assert server.ask("1+1") == "1+1 = 2."
        with server.client() as client:
            assert client.get("/whoami").json() == {"id": "ann", "role": "user"}
        bad = {"Authorization": "Bearer another-key"}
        assert httpx2.get(f"{server.url}/whoami", headers=bad).status_code == 401
        assert server.stop() == 0
