"""A token as a message: what it says, and what makes two of them one."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.adapters.aws.queue import Received, decode_wake_up, encode_wake_up
from mail.core.protocol.message import Tier
from mail.core.task.ports import WakeUp
from mail.core.task.task import TaskKey
from mail.errors import BadRequest

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


@given(NAMES, NAMES, NAMES, st.sampled_from(Tier), st.text(), st.integers(0))
def test_a_token_is_read_as_it_was_written(
    instance: str, task_id: str, mailbox: str, tier: Tier, cause: str, seq: int
) -> None:
    token = WakeUp(TaskKey(instance, task_id), mailbox, tier, cause, seq=seq)
    expected = Received(instance=instance, task_id=task_id, mailbox=mailbox, seq=seq)
    assert decode_wake_up(encode_wake_up(token)) == expected
    assert expected.key == token.key


def test_a_body_is_what_the_contract_says() -> None:
    token = WakeUp(TaskKey("user:ann@bench", "t-1"), "supervisor", Tier.AGENT, "7", seq=4)
    assert json.loads(encode_wake_up(token)) == {
        "instance": "user:ann@bench", "task_id": "t-1", "mailbox": "supervisor", "seq": 4,
    }  # fmt: skip


@given(NAMES)
def test_a_body_holds_only_what_sqs_takes(name: str) -> None:
    assert encode_wake_up(WakeUp(TaskKey(name, name), name, Tier.AGENT)).isascii()


def test_what_a_later_version_adds_is_ignored() -> None:
    body = '{"instance": "user:ann@bench", "task_id": "t-1", "mailbox": "supervisor", "seq": 1, "added": 5}'
    expected = Received(instance="user:ann@bench", task_id="t-1", mailbox="supervisor", seq=1)
    assert decode_wake_up(body) == expected


@pytest.mark.parametrize(
    "body",
    [
        "",
        "hello",
        "null",
        "[]",
        '"text"',
        "{}",
        '{"instance": "user:ann@bench", "task_id": "t-1"}',
        '{"instance": "user:ann@bench", "task_id": "t-1", "mailbox": "supervisor"}',
        '{"instance": "user:ann@bench", "task_id": 1, "mailbox": "supervisor", "seq": 1}',
        '{"instance": "user:ann@bench", "task_id": "t-1", "mailbox": "supervisor"',
        "x" * 100_000,
    ],
)
def test_a_body_that_is_no_token_is_refused_with_what_it_should_be(body: str) -> None:
    with pytest.raises(BadRequest, match="an object of instance, task_id, mailbox and seq") as refusal:
        decode_wake_up(body)
    assert repr(body[:200]) in str(refusal.value)
    assert len(str(refusal.value)) < 400
