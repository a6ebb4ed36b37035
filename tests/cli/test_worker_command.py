"""`mail worker`: where it finds the table and the queues."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from mail import bootstrap
from mail.cli.worker import worker
from mail.config.aws import AwsConfig
from mail.errors import ConfigurationError

QUEUES = ",".join(f"http://127.0.0.1:1/queue-{tier}" for tier in range(1, 6))
RESOURCES = ("MAIL_TABLE", "MAIL_BUCKET", "MAIL_TURN_QUEUES", "MAIL_DELIVERY_QUEUE")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An environment in which nothing is deployed; what the command sets in it ends with the test."""
    for name in RESOURCES:
        monkeypatch.setenv(name, "")
    before = dict(os.environ)
    yield
    os.environ.clear()
    os.environ.update(before)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[AwsConfig]:
    """The configurations that workers are made with; none of them runs."""
    found: list[AwsConfig] = []

    def make(settings: AwsConfig, **_: Any) -> None:
        found.append(settings)
        raise ConfigurationError("enough")

    monkeypatch.setattr(bootstrap, "worker", make)
    return found


def run(*words: str) -> str:
    result = CliRunner().invoke(worker, words)
    assert result.exit_code != 0
    return result.output + str(result.exception or "")


def test_options_name_the_table_and_the_queues(made: list[AwsConfig]) -> None:
    run("--table", "mail", "--bucket", "bodies", "--turn-queues", QUEUES, "--delivery-queue", "http://q/d")
    (settings,) = made
    assert (settings.table, settings.bucket) == ("mail", "bodies")
    assert ",".join(settings.turn_queues) == QUEUES
    assert settings.outbound_queue == "http://q/d"


def test_options_win_over_the_stack_and_it_over_the_environment(
    made: list[AwsConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAIL_BUCKET", "of-the-environment")
    of_stack = {"MAIL_TABLE": "of-the-stack", "MAIL_BUCKET": "of-the-stack", "MAIL_TURN_QUEUES": QUEUES}
    monkeypatch.setattr(bootstrap, "read_stack", lambda name: of_stack)
    run("--stack", "mail", "--table", "other")
    (settings,) = made
    assert (settings.table, settings.bucket) == ("other", "of-the-stack")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ((), "name the deployment with --stack, or give --table and --turn-queues"),
        (("--table", "mail"), "give --table and --turn-queues"),
        (("--table", "mail", "--turn-queues", "http://q/1"), "1 URLs; give one per tier"),
    ],
)
def test_what_is_missing_is_said(made: list[AwsConfig], words: tuple[str, ...], complaint: str) -> None:
    assert complaint in run(*words)
    assert not made
