"""`python3 scripts/dev.py prove NAME`: what users of other frameworks have reported as lost, tried on a real server.

Each proof is a server in a process of its own, agents whose models a stub provider plays, and checks that can fail.
`docs/proofs.md` says what was reported where.
"""

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))  # the stub and the server of the tests

from support.processes.server import ServerProcess, eventually
from support.services.llm_stub import LLMStub, Tokens, call, context_exceeded, reply, text
from support.services.llm_stub.script import Turn
from support.services.llm_stub.server import Request

PROGRAM = '''
import time
from pathlib import Path

from mail import ActionContext, Agent, Swarm, action


def note(name: str, line: str) -> int:
    with Path(name).open("a") as file:
        file.write(line + "\\n")
    return len(Path(name).read_text().splitlines())


@action
def render(scene: str) -> str:
    """Render a scene; takes five minutes."""
    note("render", scene)
    time.sleep(300)
    return "rendered"


@action(idempotent=True)
def pay(ctx: ActionContext, euros: int) -> str:
    """Pay; the bank knows the key of a payment, takes five minutes for a new one, and does none twice."""
    if note("pay", ctx.idempotency_key) == 1:
        time.sleep(300)
    return f"paid {euros} euros once, under {ctx.idempotency_key[:8]}"


@action(read_only=True)
def look(page: int) -> str:
    """Look at a page."""
    return f"page {page}: " + "lorem ipsum " * 650


MODEL = "openai/gpt-4o"
worker = Agent("worker", "You work.", model=MODEL)
lead = Agent("lead", "You lead.", model=MODEL, actions=[render, pay, look], team=[worker])
swarm = Swarm(lead, name="proof")
'''


@dataclass
class Proof:
    """A server with the swarm, and the provider of its models.

    Attributes:
        model: answers a call by what was said in it.
        problems: what doesn't hold.
    """

    folder: Path
    server: ServerProcess
    stub: LLMStub
    problems: list[str] = field(default_factory=list)

    def check(self, holds: object, what: str) -> None:
        """Print a finding, and keep it if it doesn't hold."""
        print(f"  {'✓' if holds else '✗'} {what}", flush=True)
        if not holds:
            self.problems.append(what)

    def lines(self, name: str) -> list[str]:
        """Return what an action has noted."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def begin(self, body: str, task: str, **fields: Any) -> None:
        """Send a message, and don't wait for its answer."""
        sent = self.server.post(body, task_id=task, headers={"Prefer": "respond-async"}, **fields)
        assert sent.status_code == 202, sent.text

    def answer(self, task: str) -> str:
        """Wait until a task has ended; return its answer."""
        eventually(lambda: self.server.task(task)["completed"], f"{task} has ended")
        return str(json.loads(self.events(task)[-1]["data"])["response"])

    def events(self, task: str) -> list[dict[str, Any]]:
        """Return the events of a task."""
        return list(self.server.task(task)["events"])

    def kill(self) -> None:
        """`kill -9` and start again."""
        self.server.kill()
        self.server.start()


def said(request: Request) -> str:
    """Return what a call of a model contains."""
    return json.dumps(request.body.get("messages") or request.body.get("input"))


def tool(proof: Proof) -> None:
    """A tool that takes five minutes is killed in the middle."""
    proof.stub.otherwise = lambda request: reply(
        call("task_complete", finish_message="It may be rendered; I don't repeat it.")
        if "unknown" in said(request)
        else call("task_complete", finish_message=said(request)[-200:])
        if "paid" in said(request)
        else call("pay", euros=5)
        if "pay" in said(request).partition("<body>")[2]
        else call("render", scene="beach")
    )
    for name, body in (("render", "render the beach"), ("pay", "pay 5 euros")):
        before = len(proof.stub.requests)
        proof.begin(body, name)
        eventually(lambda name=name: proof.lines(name), f"{name} has begun")  # type: ignore[misc]
        print(f"  {name} has begun: kill -9")
        proof.kill()
        answer = proof.answer(name)
        calls = len(proof.stub.requests) - before
        proof.check(
            calls == 2, f"{name}: the model was called twice: before the tool, and after it ({calls})"
        )
        keys = proof.lines(name)
        if name == "render":
            proof.check(
                len(keys) == 1, "the tool ran once: it isn't declared idempotent, so nobody repeats it"
            )
            proof.check("don't repeat" in answer, "its agent has read that the outcome is unknown")
        else:
            proof.check(
                len(keys) == 2 and len(set(keys)) == 1, "the idempotent tool ran again, with the same key"
            )


def context(proof: Proof) -> None:
    """A conversation of 209,000 tokens with 100 calls of a tool, on a model that reads 128,000."""
    calls = refused = total = 0

    def model(request: Request) -> Turn:
        nonlocal calls, refused, total
        tokens = len(json.dumps(request.body)) // 4
        if tokens > 128_000:
            refused += 1
            return context_exceeded()
        if "You are the memory of an agent" in json.dumps(request.body):
            return reply(text("In short: pages were looked at."), tokens=Tokens(input=tokens))
        if calls < 100:
            calls += 1
            total += 7_900 // 4 + 150
            return reply(call("look", page=calls), tokens=Tokens(input=tokens))
        return reply(call("task_complete", finish_message="all pages seen"), tokens=Tokens(input=tokens))

    proof.stub.otherwise = model
    proof.begin("Look at all pages.", "long", kwargs={"max_steps": 400})
    answer = proof.answer("long")
    cuts = sum(event["event"] == "context_cut" for event in proof.events("long"))
    proof.check("all pages seen" in answer, f"the task has its answer after {calls} calls")
    proof.check(total > 209_000, f"the conversation has {total:,} tokens")
    proof.check(refused == 0, f"no call was refused as too long; the context was cut {cuts} times")


def restart(proof: Proof) -> None:
    """A server is killed while thirty tasks run."""

    def model(request: Request) -> Turn:
        words = said(request)
        if "You work." in json.dumps(request.body):
            done = call("send_response", target="lead", subject="Done", body="done")
            return reply(done, delay=1.0)
        if "done" in words:
            return reply(call("task_complete", finish_message="answered"), delay=1.0)
        ask = call("send_request", target="worker", subject="Work", body="work")
        return reply(ask, call("await_message", reason="worker works"), delay=1.0)

    proof.stub.otherwise = model
    tasks = [f"task-{n}" for n in range(30)]
    for task in tasks:
        proof.begin("Work.", task)
    for pause in (0.5, 0.1):
        time.sleep(pause)
        open_ = sum(not proof.server.task(task)["completed"] for task in tasks)
        print(f"  kill -9 while {open_} tasks run")
        proof.kill()
    answers = [proof.answer(task) for task in tasks]
    proof.check(all("answered" in answer for answer in answers), f"all {len(tasks)} tasks are answered")
    mail = [[event["event"] for event in proof.events(task)] for task in tasks]
    proof.check(all(kinds.count("task_complete") == 1 for kinds in mail), "each has ended once")
    proof.check(
        len({kinds.count("new_message") for kinds in mail}) == 1, "each has the same mail, none twice"
    )


def runaway(proof: Proof) -> None:
    """An agent calls a tool for ever, and its budget ends it."""
    calls = 0

    def model(request: Request) -> Turn:
        nonlocal calls
        calls += 1
        if "budget" in said(request):
            done = call("task_complete", finish_message="The budget is used up; this is how far I came.")
            return reply(done, tokens=Tokens(input=4_000, output=200))
        return reply(call("look", page=calls), tokens=Tokens(input=4_000, output=200))

    proof.stub.otherwise = model
    budget = 0.25
    proof.begin("Look for ever.", "runaway", kwargs={"budget": {"cost": budget}, "max_steps": 10_000})
    answer = proof.answer("runaway")
    cost = float(proof.server.task("runaway")["usage"]["total"]["cost"])
    each = cost / calls
    proof.check("this is how far" in answer, f"the task has ended after {calls} calls, with an answer")
    proof.check(
        cost < budget + 3 * each,
        f"it has cost ${cost:.3f} of ${budget:.2f}: the turns to come to an end are more",
    )


def resubscribe(proof: Proof) -> None:
    """A client loses its connection again and again while it reads a stream."""
    chance, pages = random.Random(1), 0

    def model(_: Request) -> Turn:
        nonlocal pages
        pages += 1
        done = call("task_complete", finish_message="all pages seen")
        return reply(call("look", page=pages) if pages < 40 else done, delay=0.05)

    proof.stub.otherwise = model
    proof.begin("Look at 40 pages.", "stream", kwargs={"max_steps": 400})
    seen: list[int] = []
    drops = 0
    while True:
        task = proof.server.task("stream")
        stored = [int(event["id"]) for event in task["events"]]
        if task["completed"] and seen and seen[-1] >= stored[-1]:
            break
        seen += _some_of(proof, seen[-1] if seen else 0, chance.randint(1, 12))
        drops += 1
    proof.check(drops >= 20, f"the connection was lost {drops} times")
    proof.check(seen == stored, f"the client has read all {len(stored)} events, each once, in order")


def _some_of(proof: Proof, after: int, most: int) -> Iterator[int]:
    """Yield the numbers of so many events after one from a stream, then hang up."""
    headers = {"Last-Event-ID": str(after)}
    with (
        proof.server.client() as client,
        client.stream("GET", "/task/stream", params={"task_id": "stream"}, headers=headers) as stream,
    ):
        for line in stream.iter_lines():
            if line.startswith("id: "):
                yield int(line[4:])
                most -= 1
                if not most:
                    return


PROOFS: Mapping[str, Callable[[Proof], None]] = MappingProxyType(
    {each.__name__: each for each in (tool, context, restart, runaway, resubscribe)}
)


@contextmanager
def served() -> Iterator[Proof]:
    """Serve the swarm in a folder that is deleted afterwards."""
    with tempfile.TemporaryDirectory() as name, LLMStub() as stub:
        folder = Path(name)
        (folder / "proof.py").write_text(PROGRAM)
        source = ("--swarm-name", "proof", "--swarm-source", "python::proof:swarm")
        with ServerProcess(folder, *source, env=stub.environ) as server:
            yield Proof(folder, server, stub)


def main() -> int:
    """Return 1 if something doesn't hold."""
    parser = argparse.ArgumentParser(prog="python3 scripts/dev.py prove", description=__doc__)
    parser.add_argument("name", nargs="*", choices=[*PROOFS, []], help="which; all by default")
    problems = []
    for name in parser.parse_args().name or PROOFS:
        begin = time.monotonic()
        print(f"{name}: {PROOFS[name].__doc__}")
        with served() as proof:
            PROOFS[name](proof)
            problems += proof.problems
        print(f"  {time.monotonic() - begin:.0f} s\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
