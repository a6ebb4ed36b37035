"""Tasks at peers that never call back: when their states are read, and what becomes of the request."""

from dataclasses import replace

from mail.core.decisions.interswarm import ANSWER_RETRY_SECONDS
from mail.core.decisions.remote_tasks import POLL_SECONDS, REMOTE_SECONDS, accepted, due, polled
from mail.core.task.change import Turn
from mail.core.task.draft import Draft
from mail.core.task.interswarm import OpenRequest, RemoteState, RemoteStatus
from mail.core.task.leases import WebhookClaim
from mail.core.task.limits import ANSWER_SECONDS
from mail.core.task.mailboxes import poll_mailbox
from mail.core.task.task import Task, TaskKey
from mail.errors import PeerError, PeerRefused, PeerUnavailable
from mail.testing.changes import ANN, SWARM, Mail, Maker
from mail.testing.clock import FakeClock

WORKING = RemoteState(id="r", context="c", status=RemoteStatus.WORKING)
DONE = replace(WORKING, status=RemoteStatus.COMPLETED, text="done")


def delivery(clock: FakeClock) -> Turn:
    """The turn that delivers a request of beta to b."""
    make = Maker(clock)
    draft = Draft(make.begin(TaskKey(ANN, "t")).task, SWARM, clock)
    draft.add_peer("b", "worker")
    message = make.message("t", Mail("beta"))
    draft.send(message, ("@b",))
    draft.open_request(
        OpenRequest(
            request_id=message.message.own_id, sender="beta", recipient="worker@b", answer_deadline=1.0
        )
    )
    change = draft.seal()
    return Turn(
        task=change.task, entry=change.deliveries[0], lease=make.lease(), portions=[], checkpoint=None
    )


def begun(clock: FakeClock, state: RemoteState = WORKING) -> Task:
    turn = delivery(clock)
    return accepted(Draft(turn.task, SWARM, clock), turn, state, {}).task


def poll(task: Task, clock: FakeClock, answer: RemoteState | PeerError) -> Task:
    claim = WebhookClaim(task, poll_mailbox("b"), Maker(clock).lease())
    return polled(Draft(task, SWARM, clock), claim, {"r": answer}, {}).task


def test_a_task_that_works_is_polled_and_its_request_waits_for_it() -> None:
    clock = FakeClock()
    task = begun(clock)
    now = clock.now().timestamp()
    (remote,) = task.peers["b"].remote_tasks
    assert (remote.poll_at, remote.until) == (now + POLL_SECONDS[0], now + REMOTE_SECONDS)
    assert [each.answer_deadline for each in task.requests] == [now + REMOTE_SECONDS + ANSWER_SECONDS]
    assert task.not_before(poll_mailbox("b")) == remote.poll_at
    assert due(task, "b", now) == []
    assert due(task, "b", remote.poll_at) == [remote]


def test_the_pauses_between_polls() -> None:
    clock = FakeClock()
    task = begun(clock)
    found = []
    for _ in range(len(POLL_SECONDS) + 2):
        found.append(round(task.peers["b"].poll_at - clock.now().timestamp(), 3))
        clock.advance(found[-1])
        task = poll(task, clock, WORKING)
    assert found == [*POLL_SECONDS, POLL_SECONDS[-1], POLL_SECONDS[-1]]


def test_the_pauses_after_failures() -> None:
    clock = FakeClock()
    task = begun(clock)
    found = []
    while task.peers["b"].remote_tasks:
        clock.advance(task.peers["b"].poll_at - clock.now().timestamp())
        task = poll(task, clock, PeerUnavailable("503"))
        if task.peers["b"].remote_tasks:
            found.append(round(task.peers["b"].poll_at - clock.now().timestamp(), 3))
    assert found == list(ANSWER_RETRY_SECONDS)
    assert not task.requests


def test_a_success_forgets_the_failures() -> None:
    clock = FakeClock()
    task = poll(begun(clock), clock, PeerUnavailable("503"))
    assert task.peers["b"].remote_tasks[0].failures == 1
    assert poll(task, clock, WORKING).peers["b"].remote_tasks[0].failures == 0


def test_what_ends_it() -> None:
    clock = FakeClock()
    task = begun(clock)
    for answer in (DONE, PeerRefused("it knows no such task")):
        ended = poll(task, clock, answer)
        assert (ended.peers["b"].remote_tasks, ended.requests) == ((), ())
        assert sum(ended.pending["beta"]) == 1
    clock.advance(REMOTE_SECONDS)
    assert poll(task, clock, WORKING).peers["b"].remote_tasks == ()


def test_an_answer_at_once_leaves_nothing_behind() -> None:
    task = begun(FakeClock(), DONE)
    assert (task.peers["b"].remote_tasks, task.requests, task.peers["b"].context) == ((), (), "c")


def test_a_question_waits_without_polls() -> None:
    clock = FakeClock()
    asking = poll(begun(clock), clock, replace(WORKING, status=RemoteStatus.ASKING, text="Which?"))
    (remote,) = asking.peers["b"].remote_tasks
    assert (remote.poll_at, asking.requests) == (0.0, ())
    assert asking.head_tier(poll_mailbox("b")) is None


def test_a_state_that_comes_too_late_is_dropped() -> None:
    clock = FakeClock()
    task = poll(begun(clock), clock, DONE)
    assert poll(task, clock, DONE).pending == task.pending
