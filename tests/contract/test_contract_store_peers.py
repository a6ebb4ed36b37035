"""Store: mail for other swarms, which is worked on whether its task runs or not."""

from dataclasses import replace

import pytest
from support.engines.adapters import loaded

from mail.core.decisions.remote_tasks import POLL_SECONDS, polled
from mail.core.protocol.message import Tier
from mail.core.task.draft import Draft
from mail.core.task.interswarm import OpenRequest, Peer, RemoteState, RemoteStatus, RemoteTask
from mail.core.task.leases import WebhookClaim
from mail.core.task.mailboxes import ALL_PEERS, peer_mailbox, poll_mailbox
from mail.core.task.ports import Idle, Store
from mail.core.task.task import TaskKey, Transition
from mail.testing.changes import ANN, NOW, SWARM, Mail, Maker
from mail.testing.contracts import committed, due_tasks, open_turn

KEY = TaskKey(ANN, "task-1")
PEER = peer_mailbox("other")
STOPS = [Transition.COMPLETE, Transition.FAIL, Transition.PAUSE]


@pytest.mark.parametrize("transition", STOPS)
async def test_it_is_ready_and_opens_when_the_task_has_stopped(
    store: Store, make: Maker, transition: Transition
) -> None:
    begun = await committed(store, make.begin(KEY, Mail("alpha")))
    stopped = await committed(store, make.change(begun.task, Mail(PEER), transition=transition))
    assert [(token.key, token.mailbox) for token in await store.list_ready()] == [(KEY, PEER)]
    assert await store.open_turn(KEY, "alpha", make.lease(), now=NOW, history_after=0) == Idle(stopped.task)
    turn = await open_turn(store, KEY, PEER, make)
    await store.commit(make.change(turn.task, turn=turn))
    assert await store.list_ready() == []
    assert [entry.mailbox for entry in await store.read_inbox(KEY)] == ["alpha"]


async def test_a_task_that_has_stopped_is_not_overdue(store: Store, make: Maker) -> None:
    begun = await committed(store, make.begin(KEY, Mail("alpha"), deadline=NOW + 5))
    await store.commit(make.change(begun.task, Mail(PEER), transition=Transition.COMPLETE))
    assert await due_tasks(store, NOW + 10) == []


@pytest.mark.parametrize("mailbox", [PEER, ALL_PEERS])
async def test_it_is_ready_beside_agents(store: Store, make: Maker, mailbox: str) -> None:
    await store.commit(make.begin(KEY, Mail("alpha", Tier.PERSON), Mail(mailbox)))
    assert {token.mailbox for token in await store.list_ready()} == {"alpha", mailbox}


async def test_a_request_that_lapses_makes_its_task_due(store: Store, make: Maker) -> None:
    begun = await committed(store, make.begin(KEY, Mail("alpha")))
    request = OpenRequest(request_id="r", sender="alpha", recipient="boss@other", answer_deadline=NOW + 5)
    change = make.change(begun.task)
    await store.commit(replace(change, task=replace(change.task, requests=(request,))))
    assert await due_tasks(store, NOW + 4) == []
    assert await due_tasks(store, NOW + 6) == [KEY]
    task = await loaded(store, KEY)
    await store.commit(make.change(replace(task, requests=())))
    assert await due_tasks(store, NOW + 6) == []


async def test_deliveries_under_way_are_no_turns_of_agents(store: Store, make: Maker) -> None:
    await store.commit(make.begin(KEY, Mail("alpha"), Mail("beta"), Mail(PEER)))
    await open_turn(store, KEY, PEER, make)
    assert (await open_turn(store, KEY, "alpha", make)).running_turns == 0
    assert (await open_turn(store, KEY, "beta", make)).running_turns == 1


async def test_when_it_is_to_be_tried_again(store: Store, make: Maker) -> None:
    await store.commit(make.begin(KEY, Mail(PEER)))
    turn = await open_turn(store, KEY, PEER, make)
    contacts = {"other": Peer(agent="boss", failures=2, retry_at=NOW + 30)}
    change = make.change(turn.task, turn=turn, consume=False)
    put_off = replace(change.task, peers=contacts)
    await store.commit(replace(change, task=put_off))
    (token,) = await store.list_ready()
    assert (token.mailbox, token.not_before) == (PEER, NOW + 30)
    task = await loaded(store, KEY)
    assert task.peers == contacts


async def test_the_tasks_at_a_peer_are_polled_at_their_time(store: Store, make: Maker) -> None:
    """Without a message or an event, while the task has not ended."""
    mailbox = poll_mailbox("other")
    remote = RemoteTask(
        id="r",
        context="c",
        asked_by="alpha",
        agent="boss",
        request_id="q",
        poll_at=NOW + 5,
        until=NOW + 900,
    )
    begun = await committed(store, make.begin(KEY))
    waiting = replace(begun.task, peers={"other": Peer(agent="boss", remote_tasks=(remote,))})
    await store.commit(make.change(waiting, transition=Transition.PAUSE))
    (token,) = await store.list_ready()
    assert (token.mailbox, token.not_before) == (mailbox, NOW + 5)
    claim = await store.claim(KEY, mailbox, make.lease(), now=NOW)
    assert isinstance(claim, WebhookClaim)
    assert claim.task.peers == waiting.peers
    state = RemoteState(id="r", context="c", status=RemoteStatus.WORKING)
    await store.commit(polled(Draft(claim.task, SWARM, make.clock), claim, {"r": state}, {}))
    task = await loaded(store, KEY)
    assert task.seq == claim.task.seq
    (kept,) = task.peers["other"].remote_tasks
    assert (kept.polls, kept.poll_at) == (1, make.clock.now().timestamp() + POLL_SECONDS[1])
    assert await store.read_leases(KEY, now=NOW) == {}
    await store.commit(make.change(task, transition=Transition.CANCEL))
    assert await store.list_ready() == []
