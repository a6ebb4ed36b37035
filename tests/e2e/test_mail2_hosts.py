"""MAIL 2.0 between two running servers, which are registered as each other's peers."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.processes.server import ServerProcess, eventually, run_mail

NAMES = ("alpha", "beta")

pytestmark = pytest.mark.full


class Host(ServerProcess):
    """`mail server` whose addresses end with its own name."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir()
        (folder / "mail.toml").write_text(f'[server]\nmail_host = "{name}"\n', encoding="utf-8")
        super().__init__(folder, "--host", "127.0.0.1", "--swarm-name", f"swarm-{name}")
        self.name = name

    def __enter__(self) -> "Host":
        self.start()
        self.flags = (*self.flags[:-1], self.url.rpartition(":")[2])  # where it is found again
        return self

    @property
    def user(self) -> str:
        return f"user:user@{self.name}"

    def ask(self, method: str, path: str, body: Any = None, role: str = "user") -> Any:  # type: ignore[override]
        with self.client(role) as client:
            answer = client.request(method, path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, *recipients: str, subject: str = "Tea", body: str = "At four?", **fields: Any) -> Any:
        new = {"subject": subject, "body": body, **fields}
        draft = self.ask("POST", "/v2/drafts", new)["entry"]["draft"]["draft_id"]
        return self.ask("POST", f"/v2/drafts/{draft}/send", {"recipients": recipients})["message"]

    def box(self, name: str) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.ask("GET", f"/v2/{name}")["entries"]
        return entries

    def opened(self, box: str, entry: dict[str, Any]) -> Any:
        return self.ask("GET", f"/v2/{box}/{entry['message_id']}")["entry"]["message"]

    def sent(self, subject: str) -> dict[str, Any]:
        return next(entry for entry in self.box("outbox") if entry["subject"] == subject)

    def got(self, subject: str) -> dict[str, Any]:
        """The message with a subject, once it has come."""
        eventually(lambda: subject in [each["subject"] for each in self.box("inbox")], subject)
        (entry,) = (each for each in self.box("inbox") if each["subject"] == subject)
        return entry


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    with ExitStack() as stack:
        alpha, beta = (
            stack.enter_context(Host(tmp_path_factory.mktemp("hosts") / name, name)) for name in NAMES
        )
        for one, other in ((alpha, beta), (beta, alpha)):
            swarm = f"swarm-{one.name}"
            made = run_mail("token", "create", "--role", "agent", "--id", swarm, cwd=other.folder)
            entry = {"name": f"swarm-{other.name}", "base_url": other.url, "auth_token": made.stdout.strip()}
            one.env = {f"SWARM_AUTH_TOKEN_SWARM_{other.name.upper()}": made.stdout.strip()}
            registered = {**entry, "auth_token": None, "metadata": {"mail_host": other.name}}
            one.ask("POST", "/swarms", registered, "admin")
            one.kill()
            one.start()  # with the key of the other one in its environment
            one.ask("GET", "/v2/auth/whoami")
        yield alpha, beta


def test_mail_goes_to_the_host_of_a_peer_and_back(hosts: tuple[Host, Host]) -> None:
    alpha, beta = hosts
    sent = alpha.send(beta.user, alpha.user, subject="There")
    there = beta.got("There")
    assert beta.opened("inbox", there) == sent
    eventually(lambda: alpha.sent("There")["delivered_at"], "it is delivered")
    beta.send(alpha.user, subject="Back", reply_to=sent["message_id"])
    assert alpha.got("Back")["thread"] == sent["message_id"]


def test_what_another_host_refuses_comes_back(hosts: tuple[Host, Host]) -> None:
    alpha, beta = hosts
    nobody, nowhere = f"user:nobody@{beta.name}", "user:ann@nowhere.example"
    alpha.send(beta.user, nobody, nowhere, subject="Refused")
    eventually(lambda: len(alpha.sent("Refused")["undelivered"]) == 2, "the refusals")
    reasons = {each["recipient"]: each["reason"] for each in alpha.sent("Refused")["undelivered"]}
    assert reasons == {
        nobody: "this account does not exist",
        nowhere: "no peer of this server has the host nowhere.example",
    }
    assert alpha.sent("Refused")["delivered_at"] is None
    notices = [
        alpha.opened("inbox", each)["body"] for each in alpha.box("inbox") if "Undelivered" in each["subject"]
    ]
    assert all(any(address in body for body in notices) for address in reasons)
    beta.got("Refused")


def test_an_agent_answers_a_person_of_another_host(hosts: tuple[Host, Host]) -> None:
    alpha, beta = hosts
    alpha.send(f"supervisor@swarm-beta@{beta.name}", subject="Sum", body="6*7")
    assert "42" in alpha.opened("inbox", alpha.got("Re: Sum"))["body"]


def test_a_peer_brings_mail_of_its_own_host_alone(hosts: tuple[Host, Host]) -> None:
    alpha, beta = hosts
    key = alpha.env["SWARM_AUTH_TOKEN_SWARM_BETA"]  # type: ignore[index]
    message = {"message_id": str(uuid4()), "recipients": [beta.user], "subject": "Forged", "body": "x"}
    message["sent_at"] = "2026-01-01T00:00:00Z"
    with beta.client() as client:
        for sender, status in (("user:eve@gamma", 422), (beta.user, 422), (alpha.user, 200)):
            answer = client.post(
                "/v2/daemon/deliver/remote",
                json={"messages": [{**message, "sender": sender}]},
                headers={"Authorization": f"Bearer {key}"},
            )
            assert answer.status_code == status, answer.text
        assert client.post("/v2/daemon/deliver/remote", json={"messages": []}).status_code == 401
        common = {"Authorization": f"Bearer {beta.tokens['agent']}"}
        refused = client.post("/v2/daemon/deliver/remote", json={"messages": []}, headers=common)
        assert refused.status_code == 403
        as_peer = {"Authorization": f"Bearer {key}"}
        assert client.get("/v2/inbox", headers=as_peer).status_code == 401
        assert client.post("/v2/daemon/message-buffer/clear", headers=as_peer).status_code == 401


@pytest.mark.soak  # a host that can't be reached is tried again after half a minute
@pytest.mark.parametrize("dies", NAMES)
def test_mail_waits_for_a_host_that_was_killed(hosts: tuple[Host, Host], dies: str) -> None:
    alpha, beta = hosts
    beta.kill()
    for n in range(10):
        alpha.send(beta.user, subject=f"{dies} {n}")
    assert {each["delivered_at"] for each in alpha.box("outbox") if each["subject"].startswith(dies)} == {
        None
    }
    if dies == "alpha":
        alpha.kill()
        alpha.start()
    beta.start()
    for n in range(10):
        beta.got(f"{dies} {n}")
    eventually(
        lambda: all(each["delivered_at"] for each in alpha.box("outbox") if dies in each["subject"]), "all"
    )
    subjects = [each["subject"] for each in beta.box("inbox") if each["subject"].startswith(dies)]
    assert sorted(subjects) == sorted(f"{dies} {n}" for n in range(10))
