"""`mail ui`, and the link that `mail server` prints."""

import json
import re
from pathlib import Path

import httpx2
import pytest
from support.server_process import ServerProcess, run_mail
from support.terminal import Terminal

QUIET = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": "", "MAIL_API_KEY": "", "MAIL_SERVER": ""}


def signed_in(server: ServerProcess, url: str) -> tuple[str, str]:
    """Who a link signs in."""
    address, _, code = url.partition("#sign-in=")
    assert address == f"{server.url}/ui"
    session = httpx2.post(f"{server.url}/sign-in", json={"code": code}, timeout=30).raise_for_status().json()
    headers = {"Authorization": f"Bearer {session['token']}"}
    caller = httpx2.get(f"{server.url}/whoami", headers=headers, timeout=30).json()
    return caller["role"], caller["id"]


def test_links_of_a_server_and_of_the_command(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        (printed,) = re.findall(r"Open (\S+#sign-in=\S+)", server.output)
        assert signed_in(server, printed) == ("admin", "admin")
        assert printed.partition("=")[2] not in server.errors, "the code is in no log"

        where = ("--server", server.url, "--no-browser", "--json")
        for flags, env, caller in (
            ((), {}, ("admin", "admin")),
            (("--role", "user", "--id", "ann"), {}, ("user", "ann")),
            (("--api-key", server.tokens["user"]), {}, ("user", "user")),
            ((), {"MAIL_API_KEY": server.tokens["admin"]}, ("admin", "admin")),
        ):
            done = run_mail("ui", *where, *flags, cwd=tmp_path, env=QUIET | env)
            assert (done.returncode, done.stderr) == (0, "")
            assert signed_in(server, json.loads(done.stdout)["url"]) == caller

        text = run_mail("ui", "--server", server.url, cwd=tmp_path, env=QUIET).stdout
        assert "#sign-in=" in text.splitlines()[0]
        assert "works once" in text
        assert "No browser was found" in text

        wrong = run_mail("ui", *where, "--api-key", "wrong", cwd=tmp_path, env=QUIET)
        assert (wrong.returncode, wrong.stdout) == (1, "")
    server.start()
    assert "#sign-in=" not in server.output, "its output is no terminal, and tokens are not printed again"
    server.kill()


def test_a_terminal_gets_a_link_at_every_start(tmp_path: Path) -> None:
    run_mail("token", "create", "--role", "user", "--id", "ann", cwd=tmp_path)
    with Terminal("server", "--port", "0", "--no-check", cwd=tmp_path) as terminal:
        shown = terminal.expect("works once")
    assert "no API tokens yet" not in shown
    assert re.search(r"Open http://\S+/ui#sign-in=\S{43}", shown)


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (("--server", "http://127.0.0.1:9"), 1, "cannot connect"),
        (("--server", "https://mail.example"), 2, "--api-key"),
        (("--role", "agent", "--server", "http://127.0.0.1:9"), 2, "'admin', 'user'"),
        (("--api-key", "k", "--role", "user", "--server", "http://127.0.0.1:9"), 2, "--role"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: tuple[str, ...], code: int, problem: str) -> None:
    done = run_mail("ui", "--no-browser", *arguments, cwd=tmp_path, env=QUIET)
    assert (done.returncode, done.stdout) == (code, "")
    assert problem in " ".join(done.stderr.split())
