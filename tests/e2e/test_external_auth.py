"""`mail server` with an external authentication service (SPEC, section 10)."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest
from support.processes.server import ServerProcess

KEY, TOKEN = "key-of-ann", "token-of-ann"


class AuthService(BaseHTTPRequestHandler):
    """Knows one key: a user's."""

    def do_POST(self) -> None:
        self._answer(f"Bearer {KEY}", {"token": TOKEN})

    def do_GET(self) -> None:
        self._answer(f"Bearer {TOKEN}", {"role": "user", "id": "ann", "api_key": KEY})

    def _answer(self, expected: str, answer: dict[str, str]) -> None:
        accepted = self.headers.get("Authorization") == expected
        body = json.dumps(answer if accepted else {"detail": "no"}).encode()
        self.send_response(200 if accepted else 401)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def endpoints() -> Iterator[dict[str, str]]:
    service = ThreadingHTTPServer(("127.0.0.1", 0), AuthService)
    thread = threading.Thread(target=service.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{service.server_port}/auth"
    yield {"AUTH_ENDPOINT": f"{url}/login", "TOKEN_INFO_ENDPOINT": f"{url}/check"}
    service.shutdown()
    thread.join()
    service.server_close()


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
