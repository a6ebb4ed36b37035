"""Webhooks on AWS: the functions that accept them and the one that sends, each on a Lambda of our own."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
from function_stage import Stage
from support.services.webhook_receiver import WebhookReceiver

from mail.core.task.mailboxes import hook_mailbox

NOTHING_FAILED: dict[str, list[Any]] = {"batchItemFailures": []}
SIGNED = "${WEBHOOK_SECRET_STAGE}"
SECRET = b"a secret of SSM"


@pytest.fixture(scope="module")
def path(stage: Stage) -> dict[str, str]:
    """Says where SSM has the secret."""
    return stage.put_secret("outbound/WEBHOOK_SECRET_STAGE", SECRET.decode())


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver() as receiver:
        yield receiver


def message(stage: Stage, task_id: str, webhook: dict[str, Any] | None = None) -> dict[str, Any]:
    body = {"body": "hi", "task_id": task_id} | ({"webhook": webhook} if webhook else {})
    return stage.request("message", body=body, prefer="respond-async")


def test_it_is_sent_with_the_secret_of_ssm(
    stage: Stage, path: dict[str, str], receiver: WebhookReceiver
) -> None:
    webhook = {"url": receiver.url, "secret_ref": SIGNED, "events": ["new_message"]}
    with stage.start("message", path) as running:
        unknown = {**webhook, "secret_ref": "${WEBHOOK_SECRET_OTHER}"}
        assert running.invoke(message(stage, "hooked", unknown))["statusCode"] == 400
        assert running.invoke(message(stage, "hooked", webhook))["statusCode"] == 202
    (record,) = stage.deliveries()
    with stage.start("outbound", path) as running:
        assert running.invoke({"Records": [record]}) == NOTHING_FAILED
        assert running.invoke({"Records": [record]}) == NOTHING_FAILED
        assert SECRET.decode() not in running.log
    stage.delete(record)
    (one,) = receiver.got
    assert one.is_signed_with(SECRET)
    assert (one.event, one.json["task_id"], one.json["seq"]) == ("new_message", "hooked", 1)
    (hook,) = stage.load("hooked").webhooks.values()
    assert (hook.after, hook.upto) == (1, 1)


@pytest.mark.soak
def test_what_fails_has_a_token_for_later(stage: Stage, path: dict[str, str]) -> None:
    with WebhookReceiver(500, 200) as receiver, stage.start("outbound", path) as running:
        webhook = {"url": receiver.url, "events": ["new_message"]}
        assert stage.invoke("message", message(stage, "later", webhook))["statusCode"] == 202
        (record,) = stage.deliveries()
        assert running.invoke({"Records": [record]}) == NOTHING_FAILED
        stage.delete(record)
        deadline = time.monotonic() + 60
        while not (again := stage.deliveries()):
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert running.invoke({"Records": again}) == NOTHING_FAILED
        stage.delete(again[0])
        first, second = receiver.got
        assert first.id == second.id
    (hook,) = stage.load("later").webhooks.values()
    assert (hook.failures, hook.is_waiting) == (0, False)


@pytest.mark.soak
def test_a_token_that_is_given_up_counts_as_a_failure(stage: Stage, receiver: WebhookReceiver) -> None:
    webhook = {"url": receiver.url, "events": ["new_message"]}
    stage.invoke("message", message(stage, "dead hook", webhook))
    (record,) = stage.deliveries()
    (hook_id,) = stage.load("dead hook").webhooks
    stage.lose_worker("dead hook", hook_mailbox(hook_id))
    assert stage.invoke("dead_letter", {"Records": [record]}) == NOTHING_FAILED
    stage.delete(record)
    (hook,) = stage.load("dead hook").webhooks.values()
    assert (hook.failures, hook.is_waiting) == (1, True)
    assert receiver.got == []
