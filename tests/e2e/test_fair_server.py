"""One caller's long turns don't delay another's, on a server as people run it."""

from pathlib import Path

from support.processes.projects import entry, supervisor, write_project
from support.processes.server import ServerProcess, eventually

LONG_TASKS = 100
"""As many as a caller may have at the same time by default."""

MODULE = """
import pathlib, time
from mail.factories.rules import call, complete, rule_based

@rule_based
def factory(view):
    if view.results:
        return [complete()]
    return [call("work", long="long" in view.mail.body)]

def work(arguments):
    if arguments["long"]:
        with open("begun", "a") as begun:
            begun.write("x")
        while not pathlib.Path("release").exists():
            time.sleep(0.02)
    return "worked"
"""

SWARM = entry(
    "example-no-proxy",
    supervisor("worker", "slow_swarm:factory", actions=["work"], tool_format="completions"),
    actions=[
        {
            "name": "work",
            "function": "python::slow_swarm:work",
            "parameters": {"type": "object", "properties": {"long": {"type": "boolean"}}},
        }
    ],
)


def test_plain_functions_that_block_for_one_caller_leave_threads_and_turns_to_another(tmp_path: Path) -> None:
    write_project(tmp_path, SWARM, slow_swarm=MODULE)
    begun, release = tmp_path / "begun", tmp_path / "release"
    with (
        ServerProcess(tmp_path, env={"PYTHONPATH": str(tmp_path)}) as server,
        server.client("user") as user,
        server.client("admin") as admin,
    ):
        for _ in range(LONG_TASKS):
            response = user.post("/message", json={"body": "long"}, headers={"Prefer": "respond-async"})
            assert response.status_code == 202, response.text
        eventually(lambda: begun.exists() and begun.stat().st_size >= 40, "many long actions run")
        for _ in range(3):  # while all of the others wait for the file
            answer = admin.post("/message", json={"body": "quick"})
            assert answer.json()["response"] == "done", answer.text
        release.touch()
        eventually(lambda: begun.stat().st_size == LONG_TASKS, "all long tasks get their turns")
