"""How long mail to another swarm is retried: by what has failed, and by when the swarm last answered."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from mail.core.decisions.interswarm import ANSWER_RETRY_SECONDS, RECENT_SECONDS, RETRY_SECONDS, delayed
from mail.core.protocol.address import create_system_address
from mail.core.task.change import Turn
from mail.core.task.draft import Draft
from mail.core.task.events import EventKind
from mail.core.task.task import Task, TaskKey
from mail.errors import PeerUnavailable, PeerUnreachable, Subject
from mail.testing.agents import NAME
from mail.testing.changes import ANN, SWARM, Mail, Maker
from mail.testing.clock import FakeClock


def waiting_turn(clock: FakeClock, *, is_response: bool = False) -> Turn:
    make = Maker(clock)
    draft = Draft(make.begin(TaskKey(ANN, "t")).task, SWARM, clock)
    draft.add_peer("b", "worker")
    if is_response:
        draft.send_to_peer("b", create_system_address(NAME), "worker@b", Subject.TASK_COMPLETE, "done", None)
    else:
        draft.send(make.message("t", Mail("beta")), ("@b",))
    change = draft.seal()
    return Turn(
        task=change.task, entry=change.deliveries[0], lease=make.lease(), portions=[], checkpoint=None
    )


def pauses(
    clock: FakeClock, turn: Turn, failure: PeerUnavailable, seconds: float = 30.0
) -> tuple[list[float], Task, str]:
    """Fail until the mail is returned: the pauses, the task then, and why it was returned."""
    found: list[float] = []
    while True:
        change = delayed(Draft(turn.task, SWARM, clock), turn, failure, unreachable_seconds=seconds)
        if change.consumed is not None:
            (error,) = (each for each in change.events if each.kind is EventKind.INTERSWARM_MESSAGE_ERROR)
            return found, change.task, error.text
        peer = change.task.peers["b"]
        found.append(round(peer.retry_at - clock.now().timestamp(), 3))
        clock.advance(found[-1])
        turn = replace(turn, task=change.task)


def unreachable(ago: float | None = None) -> PeerUnreachable:
    failure = PeerUnreachable("no answer: refused")
    failure.last_answer = None if ago is None else FakeClock().now().timestamp() - ago
    return failure


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (30.0, [1, 2, 4, 8, 15]),
        (10.0, [1, 2, 4, 3]),
        (0.0, []),
        (100.0, [1, 2, 4, 8, 15, 30, 30, 10]),
        (1e6, list(RETRY_SECONDS)),
    ],
)
def test_one_that_never_answered_and_takes_no_connection(seconds: float, expected: Sequence[float]) -> None:
    clock = FakeClock()
    found, task, reason = pauses(clock, waiting_turn(clock), unreachable(), seconds)
    assert found == expected
    assert reason.endswith(
        f"no delivery after {len(expected) + 1} tries: no answer: refused (it has never answered)"
    )
    assert "@b" not in task.pending


@pytest.mark.parametrize(
    ("failure", "seconds", "expected", "says"),
    [
        (unreachable(RECENT_SECONDS + 1), 30.0, [1, 2, 4, 8, 15], "(it last answered at 20"),
        (unreachable(RECENT_SECONDS - 600), 30.0, RETRY_SECONDS, "12 tries: no answer: refused"),
        (PeerUnavailable("503 later"), 0.0, RETRY_SECONDS, "12 tries: 503 later"),
    ],
    ids=["silent for an hour", "restarts", "slow or failing"],
)
def test_one_that_has_answered(
    failure: PeerUnavailable, seconds: float, expected: Sequence[float], says: str
) -> None:
    clock = FakeClock()
    found, _, reason = pauses(clock, waiting_turn(clock), failure, seconds)
    assert found == list(expected)
    assert says in reason


def test_a_response_to_one_that_waits_for_it() -> None:
    clock = FakeClock()
    found, _, _ = pauses(clock, waiting_turn(clock, is_response=True), unreachable())
    assert found == list(ANSWER_RETRY_SECONDS)
