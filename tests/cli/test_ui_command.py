"""`mail ui`, and the link that `mail server` prints."""

import json
import re
from pathlib import Path

import httpx2
import pytest
from support.processes.server import ServerProcess, run_mail
from support.processes.terminal import Terminal

QUIET = {"DISPLAY": "", "WAYLAND_DISPLAY": "", "BROWSER": "", "MAIL_API_KEY": "", "MAIL_SERVER": ""}


USER = ("user", "user")
ADMIN = ("admin", "admin")


def signed_in(server: str, url: str) -> list[tuple[str, str]]:
    """Whom a link of the server at this address signs in, once or twice."""
    address, _, code = url.partition("#sign-in=")
    assert address == f"{server}/ui"
    session = httpx2.post(f"{server}/sign-in", json={"code": code}, timeout=30).raise_for_status().json()
    found = []
    for token in filter(None, (session["token"], session["admin_token"])):
        headers = {"Authorization": f"Bearer {token}"}
        caller = httpx2.get(f"{server}/whoami", headers=headers, timeout=30).json()
        found.append((caller["role"], caller["id"]))
    return found


@pytest.mark.soak
def test_links_of_a_server_and_of_the_command(tmp_path: Path) -> None:
    with ServerProcess(tmp_path) as server:
        assert "#sign-in=" not in server.output, "it is no terminal"
        assert set(server.tokens) == {"user", "agent"}
        assert "admin  (not shown in a log; " in server.output
        assert "token create --role admin --id admin makes one)" in server.output

        where = ("--server", server.url, "--no-browser", "--json")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        for folder, flags, env, callers in (
            (elsewhere, (), {}, [USER, ADMIN]),
            (tmp_path, (), {"XDG_STATE_HOME": str(elsewhere)}, [USER, ADMIN]),
            (tmp_path, ("--role", "admin"), {}, [ADMIN]),
            (tmp_path, ("--role", "user", "--id", "ann"), {}, [("user", "ann")]),
            (tmp_path, ("--id", "ann"), {}, [("user", "ann")]),
            (tmp_path, ("--api-key", server.tokens["user"]), {}, [USER]),
            (tmp_path, (), {"MAIL_API_KEY": server.tokens["admin"]}, [ADMIN]),
        ):
            done = run_mail("ui", *where, *flags, cwd=folder, env=QUIET | env)
            assert (done.returncode, done.stderr) == (0, "")
            assert signed_in(server.url, json.loads(done.stdout)["url"]) == callers

        text = run_mail("ui", "--server", server.url, cwd=tmp_path, env=QUIET).stdout
        assert "#sign-in=" in text.splitlines()[0]
        assert "works once" in text
        assert "No browser was found" in text

        wrong = run_mail("ui", *where, "--api-key", "wrong", cwd=tmp_path, env=QUIET)
        assert (wrong.returncode, wrong.stdout) == (1, "")


def test_the_first_start_at_a_terminal_shows_a_token_per_role_and_a_link(tmp_path: Path) -> None:
    with Terminal("server", "--port", "0", "--no-check", cwd=tmp_path) as terminal:
        shown = terminal.expect("Only programs on this machine")
        for role in ("admin", "user", "agent"):
            assert re.search(rf"{role} +mail_{role}_\S{{43}}\s", shown)
        (link,) = re.findall(r"Open (\S+#sign-in=\S{43})", shown)
        assert signed_in(link.partition("/ui")[0], link) == [USER, ADMIN]


def test_a_terminal_gets_a_link_at_every_start(tmp_path: Path) -> None:
    run_mail("token", "create", "--role", "user", "--id", "ann", cwd=tmp_path)
    with Terminal("server", "--port", "0", "--no-check", cwd=tmp_path) as terminal:
        shown = terminal.expect("Only programs on this machine")
    assert "first API tokens" not in shown
    assert re.search(r"Open http://\S+/ui#sign-in=\S{43}", shown)
    assert "mail send" not in shown, "people have tokens of their own, so there are no keys for commands"


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
