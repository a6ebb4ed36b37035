"""Commands on the machine of a server find its keys: the person at the terminal is the one on the page."""

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes.server import ServerProcess, eventually, run_mail

from mail.auth.local_keys import find_keys


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder that isn't the server's."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


@pytest.fixture
def local(tmp_path: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path) as server:
        yield server


def files() -> set[str]:
    return {path.name for path in Path(os.environ["XDG_STATE_HOME"]).rglob("*.json")}


def sends(server: ServerProcess, folder: Path, **env: str) -> bool:
    """Whether `mail send` works; if not, it asks for a key."""
    done = run_mail("send", "2**10", "--server", server.url, cwd=folder, env=env)
    assert ("requires an API key" in done.stderr) is (done.returncode == 1), done.stderr
    return done.returncode == 0


def test_what_a_command_begins_is_the_user_s(local: ServerProcess, elsewhere: Path) -> None:
    (hint,) = re.findall(r"In another terminal on this machine: mail (.+)", local.output)
    assert hint == f"send hello --server {local.url}"
    sent = run_mail(*hint.split(), "--task-id", "mine", cwd=elsewhere)
    assert (sent.returncode, sent.stderr) == (0, "")
    assert local.task("mine")["completed"], "the printed user token finds it"

    local.ask("2**11", task_id="theirs")
    url = local.url.replace("127.0.0.1", "localhost")
    env = {"MAIL_SERVER": url, "HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}
    listed = run_mail("task", "list", "--json", cwd=elsewhere, env=env)
    assert {"mine", "theirs"} <= json.loads(listed.stdout).keys()
    chat = run_mail("client", "-c", "whoami", "-c", "swarm-dump", "-c", "whoami", cwd=elsewhere, env=env)
    assert chat.returncode == 0, chat.stderr
    assert chat.stdout.startswith("user (user)"), "an admin's command doesn't make the session an admin's"
    assert chat.stdout.endswith("user (user)\n")


def test_keys_that_are_given_win(local: ServerProcess, elsewhere: Path) -> None:
    where = ("client", local.url, "-c", "whoami")
    admin = local.tokens["admin"]
    assert run_mail(*where, cwd=elsewhere).stdout == "user (user)\n"
    assert run_mail(*where, "--api-key", admin, cwd=elsewhere).stdout == "admin (admin)\n"
    assert run_mail(*where, cwd=elsewhere, env={"MAIL_API_KEY": admin}).stdout == "admin (admin)\n"
    assert run_mail(*where, "--api-key", "wrong", cwd=elsewhere).returncode == 1


def test_keys_end_with_the_server(local: ServerProcess, elsewhere: Path) -> None:
    keys = find_keys(local.url)
    assert keys is not None
    assert keys.user not in local.output + local.errors
    local.flags = ("--port", local.url.rpartition(":")[2])
    assert local.stop() == 0
    assert find_keys(local.url) is None

    local.start()
    with local.client() as client:
        former = client.get("/whoami", headers={"Authorization": f"Bearer {keys.user}"})
    assert former.status_code == 401
    assert sends(local, elsewhere), "a later start has the first callers, too"

    local.kill()
    stale = find_keys(local.url)
    assert stale is not None
    local.flags = (*local.flags, "--reload")
    local.start()
    assert find_keys(local.url) != stale
    assert sends(local, elsewhere), "processes of the reloader accept what it has written"
    assert local.stop(signal.SIGINT) == 0
    eventually(lambda: find_keys(local.url) is None, "the file is deleted")


def test_with_tokens_of_one_s_own_there_are_no_keys(tmp_path: Path, elsewhere: Path) -> None:
    run_mail("token", "create", "--role", "user", "--id", "ann", cwd=tmp_path)
    before = files()
    with ServerProcess(tmp_path) as server:
        assert files() == before
        assert "another terminal" not in server.output
        assert not sends(server, elsewhere)


def test_with_an_authentication_service_there_are_no_keys(tmp_path: Path, elsewhere: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        service = f"http://127.0.0.1:{nobody.getsockname()[1]}"
        env = {"AUTH_ENDPOINT": f"{service}/auth", "TOKEN_INFO_ENDPOINT": f"{service}/token"}
        before = files()
        with ServerProcess(tmp_path, "--host", "127.0.0.1", env=env) as server:
            assert files() == before
            assert not sends(server, elsewhere)


def test_a_server_for_the_network_has_keys_for_its_own_machine(tmp_path: Path, elsewhere: Path) -> None:
    with ServerProcess(tmp_path, "--host", "0.0.0.0") as server:
        assert server.url.startswith("http://localhost:")
        assert sends(server, elsewhere)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="there is no folder that nobody can write to")
def test_a_server_starts_where_no_file_can_be_written(tmp_path: Path, elsewhere: Path) -> None:
    with ServerProcess(tmp_path, env={"XDG_STATE_HOME": "/proc/nothing"}) as server:
        assert len(re.findall("--api-key", server.errors)) == 1
        assert "another terminal" not in server.output
        assert not sends(server, elsewhere, XDG_STATE_HOME="/proc/nothing")
        assert server.ask("2**10")
