"""`python -m chaos.a2a`: two servers that know each other by A2A only, which are killed while tasks go back and forth.

Each task must end with its answer, read once, and the other server must have worked on it once.
"""

import argparse
import re
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.processes.server import ServerProcess, eventually, run_mail

NAMES = ("swarm-alpha", "swarm-beta")


def main() -> int:
    """Returns 1 if a task was not answered, or not once."""
    parser = argparse.ArgumentParser(prog="python -m chaos.a2a", description=__doc__)
    parser.add_argument("--tasks", type=int, default=50, help="of both servers together (50)")
    parser.add_argument("--kills", type=int, default=6, help="of one server or the other (6)")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        problems = play(Path(folder), given.tasks, given.kills, Random(given.seed))
        print(f"{given.tasks} tasks, {given.kills} kills, {time.monotonic() - begin:.0f} s")
    print("\n".join(problems) or "all answered once")
    return int(bool(problems))


def play(folder: Path, tasks: int, kills: int, chance: Random) -> list[str]:
    """Run the servers, and return what went wrong."""
    with ExitStack() as stack:
        servers = {name: _server(stack, folder / name, name) for name in NAMES}
        for name, other in (NAMES, NAMES[::-1]):
            _register(servers[name], other, servers[other])
        asked = [(NAMES[n % 2], NAMES[(n + 1) % 2], n) for n in range(tasks)]
        for begun, (name, other, n) in enumerate(asked):
            _ask(servers[name], other, n)
            if begun * kills // tasks != (begun + 1) * kills // tasks:
                time.sleep(chance.uniform(0.1, 0.6))
                victim = servers[chance.choice(NAMES)]
                victim.kill()
                time.sleep(chance.uniform(0.0, 1.0))
                victim.start()
        for name, _, n in asked:
            eventually(lambda at=servers[name], n=n: at.task(f"t{n}")["completed"], f"t{n} has ended")  # type: ignore[misc]
        return [*_unanswered(servers, asked), *_repeated(servers, asked)]


def _server(stack: ExitStack, folder: Path, name: str) -> ServerProcess:
    folder.mkdir()
    flags = ["--swarm-name", name, "--host", "127.0.0.1"]
    server = stack.enter_context(ServerProcess(folder, *flags))
    server.flags = (*flags, "--port", server.url.rpartition(":")[2])  # where it is found again
    return server


def _register(server: ServerProcess, name: str, other: ServerProcess) -> None:
    made = run_mail("token", "create", "--role", "user", "--id", "partner", cwd=other.folder)
    [token] = re.findall(r"mail_\S+", made.stdout)
    card = f"{other.url}/.well-known/agent-card.json"
    entry = {"name": name, "base_url": card, "auth_token": token}
    server.env = {f"SWARM_AUTH_TOKEN_{name.upper().replace('-', '_')}": token}
    with server.client("admin") as client:
        answer = client.post("/swarms", json={**entry, "auth_token": None})
    assert answer.status_code == 200, answer.text
    server.kill()
    server.start()  # with the token in its environment


def _ask(server: ServerProcess, other: str, n: int) -> None:
    body = {"body": f"{n}*2" if other == "swarm-beta" else "weather in Tokyo", "task_id": f"t{n}"}
    with server.client() as client:
        answer = client.post(
            "/interswarm/message",
            json={**body, "targets": [f"supervisor@{other}"]},
            headers={"Prefer": "respond-async"},
        )
    assert answer.status_code == 202, answer.text


def _unanswered(servers: dict[str, ServerProcess], asked: list[tuple[str, str, int]]) -> list[str]:
    """Return which tasks have another answer than theirs, or none, or several."""
    problems = []
    for name, other, n in asked:
        events = servers[name].task(f"t{n}")["events"]
        received = sum(event["event"] == "interswarm_message_received" for event in events)
        ends = [event["data"] for event in events if event["event"] == "task_complete"]
        wanted = f"{n}*2 = {2 * n}." if other == "swarm-beta" else "The weather in Tokyo"
        if received != 1 or len(ends) != 1 or wanted not in ends[0]:
            problems.append(f"{name} t{n}: {received} answers, ends: {ends}")
    return problems


def _repeated(servers: dict[str, ServerProcess], asked: list[tuple[str, str, int]]) -> list[str]:
    """Return which servers have another number of tasks than they were sent."""
    problems = []
    for name, server in servers.items():
        with server.client("admin") as client:
            listed = client.get(
                "/tasks", params={"caller": "user:partner", "fields": "summary", "limit": 100}
            )
        sent = sum(other == name for _, other, _ in asked)
        if len(listed.json()) != sent:
            problems.append(f"{name} has begun {len(listed.json())} tasks, and was sent {sent}")
    return problems


if __name__ == "__main__":
    sys.exit(main())
