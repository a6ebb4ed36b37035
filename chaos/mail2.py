"""`python -m chaos.mail2`: a server of MAIL 2.0 that is killed while people, lists, agents and members write.

Each message must get to each of its recipients once, also if its sender has to repeat the request, and none may be
called delivered before it is in all inboxes. With `--tasks`, people write to an agent that asks two agents elsewhere,
which answer after kills: each must get one answer, with what both have said.
"""

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import httpx2
from support.engines.postgres import borrow_database, return_database
from support.processes.projects import entry, supervisor, write_project
from support.processes.server import TIMEOUT, ServerProcess

WRITERS = 8
"""Requests at the same time."""

HOST = "localhost"
OUTSIDE = ("claude", "gem")

DESK = r'''
    """Asks both members, and says what they have said."""

    from mail.factories.rules import Call, View, complete, request, rule_based, wait


    @rule_based
    def desk(view: View) -> list[Call]:
        said = [each.body for each in view.messages if each.sender in ("claude", "gem")]
        if len(said) == 2:
            return [complete(" and ".join(sorted(said)))]
        if said:
            return [wait()]
        return [*(request(each, body=view.messages[0].body) for each in ("claude", "gem")), wait()]
'''


class Mortal:
    """A server that is killed now and then; what is asked of it meanwhile is asked again."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        server.flags = (*server.flags[:-1], server.url.rpartition(":")[2])  # where it is found again
        self.client = httpx2.Client(
            base_url=server.url, timeout=20.0, limits=httpx2.Limits(max_connections=64)
        )
        self.deaths = 0
        self.repeated = 0

    def ask(self, token: str, method: str, path: str, body: Any = None, **headers: str) -> dict[str, Any]:
        """Ask until there is an answer, which has to be a success."""
        deadline = time.monotonic() + TIMEOUT
        headers["Authorization"] = f"Bearer {token}"
        while True:
            try:
                answer = self.client.request(method, path, json=body, headers=headers)
                if answer.status_code == 200:
                    found: dict[str, Any] = answer.json()
                    return found
                problem = f"{answer.status_code} {answer.text[:200]}"
                if answer.status_code not in (429, 502, 503):
                    raise AssertionError(f"{method} {path}: {problem}")
            except httpx2.TransportError as error:
                problem = repr(error)
            assert time.monotonic() < deadline, f"{method} {path}: {problem}"
            self.repeated += 1
            time.sleep(0.1)

    def kill(self, down: float) -> None:
        """Kill it, and start it again after some seconds."""
        self.server.kill()
        self.deaths += 1
        time.sleep(down)
        self.server.start()

    def box(self, token: str, name: str) -> Iterator[dict[str, Any]]:
        """All entries of a box, the oldest first."""
        offset = 0
        while True:
            page = self.ask(token, "GET", f"/v2/{name}?limit=100&order=asc&offset={offset}")["entries"]
            yield from page
            offset += len(page)
            if len(page) < 100:
                return

    def send(self, token: str, draft: str, recipients: list[str], key: str) -> str:
        """Send a draft once; return the id of the message."""
        path = f"/v2/drafts/{draft}/send"
        body = {"recipients": recipients}
        return str(self.ask(token, "POST", path, body, **{"Idempotency-Key": key})["message"]["message_id"])

    def draft(self, token: str, **fields: Any) -> str:
        """A new draft."""
        return str(self.ask(token, "POST", "/v2/drafts", fields)["entry"]["draft"]["draft_id"])


@contextmanager
def serving(store: str, *flags: str, folder: Path) -> Iterator[Mortal]:
    """Serve from a folder, on its SQLite file or on a database of PostgreSQL."""
    url = borrow_database() if store == "postgres" else ""
    database = ("--database", url) if url else ()
    try:
        with ServerProcess(folder, *flags, "--host", "127.0.0.1", *database, "--port", "0") as server:
            mortal = Mortal(server)
            with mortal.client:
                yield mortal
    finally:
        if url:
            return_database(url)


@dataclass
class Post:
    """Accounts that write to each other.

    Attributes:
        expected: of each message, the accounts that it has to get to; its sender's outbox calls it delivered, unless
            somebody whom it names doesn't exist.
    """

    mortal: Mortal
    chance: Random
    tokens: dict[str, str] = field(default_factory=dict)
    drafts: dict[str, str] = field(default_factory=dict)
    lists: dict[str, list[str]] = field(default_factory=dict)
    expected: dict[str, tuple[str, frozenset[str], bool]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    looked: int = 0

    def open(self, accounts: int, lists: int) -> None:
        """Make accounts and lists: two of these have everybody."""
        admin = self.mortal.server.tokens["admin"]
        for n in range(accounts):
            made = self.mortal.client.post(
                "/tokens", json={"role": "user", "id": f"u{n}"}, headers={"Authorization": f"Bearer {admin}"}
            )
            assert made.is_success, made.text
            name = f"user:u{n}@{HOST}"
            self.tokens[name] = made.json()["token"]
            self.drafts[name] = self.mortal.draft(self.tokens[name], subject="Chaos", body=f"of {name}")
        everybody = list(self.tokens)
        for n in range(lists):
            members = everybody if n < 2 else self.chance.sample(everybody, min(10, accounts))
            new = {"name": f"l{n}", "swarm_name": "chaos", "owner": everybody[0], "members": members}
            self.mortal.ask(admin, "POST", "/v2/admin/lists", new)
            self.lists[f"list:l{n}@chaos@{HOST}"] = members

    def plan(self, n: int) -> tuple[str, list[str], frozenset[str], bool]:
        """The sender and the recipients of a message, the accounts that it gets to, and whether it is delivered."""
        chance = Random(f"{self.chance.random()} {n}")
        sender = chance.choice(list(self.tokens))
        kind = chance.random()
        if kind < 0.1:
            to = [chance.choice(list(self.lists))]
            return sender, to, frozenset(self.lists[to[0]]), True
        to = chance.sample(list(self.tokens), chance.randint(1, 3))
        if kind < 0.15:
            return sender, [*to, f"user:nobody@{HOST}"], frozenset(to), False
        return sender, to, frozenset(to), True

    def send(self, n: int, planned: tuple[str, list[str], frozenset[str], bool]) -> None:
        """Send a message; one in ten requests is repeated though it was answered."""
        sender, to, reached, is_whole = planned
        for _ in range(2 if n % 10 == 0 else 1):
            made = self.mortal.send(self.tokens[sender], self.drafts[sender], to, f"m{n}")
            self.expected[made] = (sender, reached, is_whole)

    def look(self) -> None:
        """Take a message that is called delivered, and look for it in all inboxes where it belongs."""
        sender = self.chance.choice(list(self.tokens))
        entries = self.mortal.ask(self.tokens[sender], "GET", "/v2/outbox?limit=5")["entries"]
        for each in entries:
            known = self.expected.get(each["message_id"])
            if each["delivered_at"] is None or known is None:
                continue
            self.looked += 1
            for reader in known[1]:
                path = f"/v2/inbox/{each['message_id']}"
                headers = {"Authorization": f"Bearer {self.tokens[reader]}"}
                try:
                    answer = self.mortal.client.get(path, headers=headers)
                except httpx2.TransportError:
                    continue  # it was killed
                if answer.status_code == 404:
                    self.problems.append(
                        f"{each['message_id']} is called delivered, and {reader} has not got it"
                    )

    def settle(self) -> None:
        """Wait until no outbox has a message that may still be delivered."""
        deadline = time.monotonic() + 300.0
        for sender, token in self.tokens.items():
            while True:
                left = [
                    each
                    for each in self.mortal.box(token, "outbox")
                    if each["delivered_at"] is None and not each["undelivered"]
                ]
                if not left:
                    break
                if time.monotonic() > deadline:
                    self.problems.append(f"{len(left)} messages of {sender} are never delivered")
                    break
                time.sleep(1.0)

    def check(self) -> int:
        """Compare all boxes with what was sent; return the number of entries in inboxes."""
        got: Counter[tuple[str, str]] = Counter()
        for reader, token in self.tokens.items():
            for each in self.mortal.box(token, "inbox"):
                if each["subject"] == "Chaos":
                    got[each["message_id"], reader] += 1
        wanted = {(made, reader) for made, (_, reached, _) in self.expected.items() for reader in reached}
        self.problems += [f"{made} did not get to {reader}" for made, reader in wanted - set(got)]
        self.problems += [f"{made} got to {reader} unasked" for made, reader in set(got) - wanted]
        self.problems += [f"{which} came {times} times" for which, times in got.items() if times > 1]
        sent = Counter[str]()
        for sender, token in self.tokens.items():
            for each in self.mortal.box(token, "outbox"):
                sent[each["message_id"]] += 1
                of, _, is_whole = self.expected.get(each["message_id"], ("", frozenset(), False))
                if of != sender or is_whole != (each["delivered_at"] is not None):
                    self.problems.append(f"{each['message_id']} of {sender} is called {each['delivered_at']}")
        self.problems += [f"{made} is in no outbox" for made in set(self.expected) - set(sent)]
        return sum(got.values())


def play_post(
    mortal: Mortal, messages: int, accounts: int, lists: int, kills: int, chance: Random
) -> list[str]:
    """Let accounts write; return what went wrong."""
    post = Post(mortal, chance)
    post.open(accounts, lists)
    at = sorted(chance.sample(range(messages), kills))
    plans = [post.plan(n) for n in range(messages)]
    done = threading.Semaphore(0)

    def write(n: int) -> None:
        try:
            post.send(n, plans[n])
        finally:
            done.release()

    begin = time.monotonic()
    with ThreadPoolExecutor(WRITERS) as pool:
        writing = [pool.submit(write, n) for n in range(messages)]
        for n in range(messages):
            done.acquire()
            if n in at:
                mortal.kill(chance.uniform(0.0, 1.0))
            if n % 25 == 0:
                post.look()
        for each in writing:
            each.result()
    sent = time.monotonic() - begin
    post.settle()
    entries = post.check()
    print(
        f"{messages} messages of {accounts} accounts, {lists} lists: {entries} entries of inboxes, "
        f"{mortal.deaths} kills, {mortal.repeated} requests repeated, {post.looked} looks, {sent:.0f} s"
    )
    if len(post.expected) != messages:
        post.problems.append(f"{messages} messages have {len(post.expected)} ids")
    return post.problems


def play_tasks(mortal: Mortal, tasks: int, kills: int, chance: Random) -> list[str]:
    """Let a person write to an agent that asks two outside; return what went wrong."""
    ask, admin, user = mortal.ask, mortal.server.tokens["admin"], mortal.server.tokens["user"]
    outside = {}
    for name in OUTSIDE:
        new = {"agent_name": name, "swarm_name": "team", "agent_password": "secret"}
        ask(admin, "POST", "/v2/admin/agents", new)
        form = {"username": f"{name}@team@{HOST}", "password": "secret"}
        outside[name] = mortal.client.post("/v2/auth/token", data=form).json()["access_token"]
    sent = {}
    for n in range(tasks):
        draft = mortal.draft(user, subject=f"Task {n}", body=f"What of {n}?")
        sent[mortal.send(user, draft, [f"desk@desks@{HOST}"], f"t{n}")] = n
    die = sorted(chance.sample(range(2 * tasks), kills))
    mortal.kill(0.5)
    answered: dict[str, set[str]] = {name: set() for name in OUTSIDE}
    count, deadline = 0, time.monotonic() + 600.0
    while min(map(len, answered.values())) < tasks:
        assert time.monotonic() < deadline, f"requests of {answered}"
        for name, token in outside.items():
            for each in list(mortal.box(token, "inbox")):
                asked = each["message_id"]
                if asked in answered[name] or "request" not in each["tags"]:
                    continue
                message = ask(token, "GET", f"/v2/inbox/{asked}")["entry"]["message"]
                fields = {"subject": "Re", "body": f"{name} on {message['body']}", "reply_to": asked}
                mortal.send(token, mortal.draft(token, **fields), [message["sender"]], f"re {asked}")
                answered[name].add(asked)
                if count in die:
                    mortal.kill(chance.uniform(0.0, 1.0))
                count += 1
        time.sleep(0.2)
    problems = [
        f"{name} was asked {len(each)} times" for name, each in answered.items() if len(each) != tasks
    ]
    while len(entries := list(mortal.box(user, "inbox"))) < tasks and time.monotonic() < deadline:
        time.sleep(0.5)
    time.sleep(2.0)  # none comes twice
    entries = list(mortal.box(user, "inbox"))
    got: Counter[int] = Counter()
    for each in entries:
        message = ask(user, "GET", f"/v2/inbox/{each['message_id']}")["entry"]["message"]
        n = sent[message["reply_to"]]
        got[n] += 1
        wanted = " and ".join(f"{name} on What of {n}?" for name in OUTSIDE)
        if message["body"] != wanted or message["tags"] != ["answer"]:
            problems.append(f"task {n}: {message['tags']} {message['body']!r}")
    problems += [f"task {n} has {got[n]} answers" for n in range(tasks) if got[n] != 1]
    print(
        f"{tasks} tasks by mail, {mortal.deaths} kills, {mortal.repeated} requests repeated, {len(entries)} answers"
    )
    return problems


def main() -> int:
    """Returns 1 if something was lost, came twice, or was called delivered and wasn't."""
    parser = argparse.ArgumentParser(prog="python -m chaos.mail2", description=__doc__)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--accounts", type=int, default=100)
    parser.add_argument("--lists", type=int, default=10)
    parser.add_argument("--tasks", type=int, default=0, help="by mail to an agent, instead of messages")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begin, chance = time.monotonic(), Random(given.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if given.tasks:
            members = {each: f"{each}@team@{HOST}" for each in OUTSIDE}
            desk = supervisor("desk", "desk_agent:desk", comm_targets=list(members))
            write_project(folder, entry("desks", desk, members=members), desk_agent=DESK)
        flags = ("--swarm-name", "desks") if given.tasks else ()
        with serving(given.store, *flags, folder=folder) as mortal:
            if given.tasks:
                problems = play_tasks(mortal, given.tasks, given.kills, chance)
            else:
                problems = play_post(mortal, given.messages, given.accounts, given.lists, given.kills, chance)
    print(f"{given.store}, seed {given.seed}: {time.monotonic() - begin:.0f} s")
    print("\n".join(problems[:50]) or "each delivered once")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
