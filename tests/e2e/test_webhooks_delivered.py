"""Webhooks of a `mail server` that is killed, and of its command line."""

import json
from collections import Counter
from pathlib import Path

from support.processes.server import ServerProcess, eventually, run_mail
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


def test_the_command_line(tmp_path: Path) -> None:
    with WebhookReceiver() as receiver, ServerProcess(tmp_path, *LOCAL, env=ENVIRON) as server:
        env = {"MAIL_SERVER": server.url, "MAIL_API_KEY": server.tokens["user"]}

        def webhook(*arguments: str) -> str:
            done = run_mail("webhook", *arguments, cwd=tmp_path, env=env)
            assert done.returncode == 0, done.stderr
            return done.stdout.strip()

        secret = ("--secret-ref", "${WEBHOOK_SECRET_E2E}")
        webhook_id = webhook("register", receiver.url, *secret, "--event", "task_complete")
        heading, line = webhook("list").splitlines()
        assert line.split("\t") == [webhook_id, "registered", "task_complete", receiver.url]
        server.ask("weather in Tokyo", task_id="t")
        (one,) = receiver.wait_for(1)
        assert verify(SECRET, one.headers, one.body)["event"] == "task_complete"
        eventually(lambda: "nothing waits after" in webhook("list", "--task", "t"), "it is sent")
        (hook,) = json.loads(webhook("list", "--task", "t", "--json"))["webhooks"]
        assert (hook["delivered_to"], hook["failures"]) == (one.json["seq"], 0)
        webhook("delete", webhook_id)
        assert webhook("list") == heading
        refused = run_mail(
            "webhook", "register", "https://example.com", "--secret-ref", "x", cwd=tmp_path, env=env
        )
        assert refused.returncode == 1
        assert "secret_ref" in refused.stderr
