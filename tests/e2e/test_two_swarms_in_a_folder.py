"""The two-swarm sample of MAIL 1.3.6, as it is typed in: two servers start in one folder, and nobody names a
database.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx2
import pytest
from support.processes.server import ServerProcess, run_mail

ALPHA, BETA = "swarm-alpha", "swarm-beta"


def server(folder: Path, swarm: str) -> ServerProcess:
    return ServerProcess(
        folder, "--swarm-name", swarm, "--swarm-registry", f"registries/{swarm}.json", log=f"{swarm}-"
    )


@pytest.fixture
def both(tmp_path: Path) -> Iterator[dict[str, ServerProcess]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(server(tmp_path, name)) for name in (ALPHA, BETA)}


def register(where: ServerProcess, name: str, peer: ServerProcess) -> None:
    with where.client("admin") as client:
        answer = client.post(
            "/swarms", json={"name": name, "base_url": peer.url, "auth_token": peer.tokens["agent"]}
        )
    assert answer.status_code == 200, answer.text


def who(url: str, token: str) -> int:
    return httpx2.get(f"{url}/whoami", headers={"Authorization": f"Bearer {token}"}).status_code


def test_the_sample(both: dict[str, ServerProcess]) -> None:
    alpha, beta = both[ALPHA], both[BETA]
    register(alpha, BETA, beta)
    register(beta, ALPHA, alpha)
    answer = alpha.ask("weather in Tokyo and 12*(3+4)", task_id="t")
    assert "°C" in answer
    assert "84" in answer
    assert alpha.task("t")["remote_swarms"] == [BETA]


def test_each_server_finds_its_file_again(tmp_path: Path, both: dict[str, ServerProcess]) -> None:
    alpha, beta = both[ALPHA], both[BETA]
    assert "Its database is" not in alpha.output
    assert "Its database is mail-swarm-beta.db" in beta.output
    alpha.stop()
    beta.stop()
    beta.start()
    alpha.start()
    for each in (alpha, beta):
        assert who(each.url, each.tokens["user"]) == 200
    assert sorted(file.name for file in tmp_path.glob("*.db")) == ["mail-swarm-beta.db", "mail.db"]


def test_tokens_of_each(tmp_path: Path, both: dict[str, ServerProcess]) -> None:
    assert "mail token create --database mail-swarm-beta.db --role user" in both[BETA].output
    words = ("token", "create", "--role", "user", "--id", "ann")
    for name in (ALPHA, BETA):
        made = run_mail(*words, "--swarm-name", name, cwd=tmp_path).stdout.strip()
        accepted = [each for each, running in both.items() if who(running.url, made) == 200]
        assert accepted == [name]
    unclear = run_mail(*words, cwd=tmp_path)
    assert unclear.returncode == 2
    assert unclear.stderr.strip() == (
        "mail: several databases are here: mail.db (swarm-alpha), mail-swarm-beta.db (swarm-beta); "
        "choose one with --swarm-name or --database"
    )


def test_a_second_server_of_the_same_swarm_gets_no_empty_file(tmp_path: Path) -> None:
    with server(tmp_path, ALPHA):
        done = run_mail("server", "--port", "0", "--swarm-name", ALPHA, cwd=tmp_path)
    assert done.returncode == 2
    assert "another server or program works with mail.db" in done.stderr
    assert not (tmp_path / "mail-swarm-alpha.db").exists()
