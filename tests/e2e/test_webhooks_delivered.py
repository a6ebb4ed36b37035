"""Webhooks of a `mail server` that is killed."""

from collections import Counter
from pathlib import Path

from support.processes.server import ServerProcess, eventually
from support.services.webhook_receiver import DROP, WebhookReceiver

from mail.webhooks import verify

SECRET = "a secret of the environment"
ENVIRON = {"WEBHOOK_SECRET_E2E": SECRET, "MAIL_WEBHOOKS_ALLOW_PRIVATE": "true"}
LOCAL = ("--host", "127.0.0.1")


def test_a_server_that_is_killed_sends_what_it_owes(tmp_path: Path) -> None:
    """Nothing is lost or out of order; what was under way may come twice, under its id."""
    with (
        WebhookReceiver(200, DROP, 500, 200) as receiver,
        ServerProcess(tmp_path, *LOCAL, env=ENVIRON) as server,
    ):
        webhook = {"url": receiver.url, "secret_ref": "${WEBHOOK_SECRET_E2E}", "events": ["*"]}
        server.post("weather in Tokyo", task_id="t", webhook=webhook)
        receiver.wait_for(2)
        server.kill()
        server.start()
        receiver.wait_for(3)
        server.kill()
        server.start()
        with server.client() as client:

            def is_done() -> bool:
                (hook,) = client.get("/webhooks", params={"task_id": "t"}).json()["webhooks"]
                return hook["waits_to"] is None

            eventually(is_done, "all events are sent")
            events = client.get("/task", params={"task_id": "t"}).json()["events"]
        timeline = [int(each["id"]) for each in events if not each["event"].startswith("webhook_")]
        seqs = [got.json["seq"] for got in receiver.got]
        assert list(dict.fromkeys(seqs)) == timeline
        assert all(verify(SECRET, got.headers, got.body)["seq"] in timeline for got in receiver.got)
        ids = {got.json["seq"]: got.id for got in receiver.got}
        assert all(got.id == ids[got.json["seq"]] for got in receiver.got)
        assert max(Counter(seqs).values()) <= 5
