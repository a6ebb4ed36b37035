"""What a swarm makes of messages of others: whose they may be, and what they do to a task (SPEC, section 7)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.services.federation import Swallow

from mail.core.decisions.caller_limits import CallerLimits
from mail.core.engine.admission import Received
from mail.core.protocol.interswarm import MAILInterswarmMessage
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.xml import build_mail_xml, render_message
from mail.core.task.approvals import Approval
from mail.core.task.events import EventKind
from mail.core.task.swarm import ActionCore
from mail.core.task.task import Task, TaskKey, TaskStatus
from mail.errors import BadRequest, Forbidden, MAILError, StorageFull, TaskNotFound
from mail.testing.agents import View, build_agent, build_swarm, call, complete, request, respond, wait
from mail.testing.rig import Rig

TASK = "task-1"
OWNER = "user:ann@home"


def letter(
    kind: str = "request",
    *,
    body: str = "please",
    subject: str = "Request",
    sender: str = "supervisor",
    sender_type: str = "agent",
    recipient: str = "worker@example",
    message_id: str = "m-1",
    contributors: tuple[str, ...] = (OWNER,),
    owner: str = OWNER,
    source: str = "home",
    target: str = "example",
    request_id: str = "r-1",
    task_id: str = TASK,
    **routing: Any,
) -> MAILInterswarmMessage:
    address = {"address_type": "agent", "address": recipient}
    payload: dict[str, Any] = {
        "task_id": task_id,
        "sender": {"address_type": sender_type, "address": sender},
        "subject": subject,
        "body": body,
        "routing_info": routing or None,
    }
    if kind in ("request", "response"):
        payload |= {"request_id": request_id, "recipient": address}
    else:
        name = "interrupt_id" if kind == "interrupt" else "broadcast_id"
        payload |= {name: "x-1", "recipients": [address]}
    return MAILInterswarmMessage.model_validate(
        {
            "message_id": message_id,
            "source_swarm": source,
            "target_swarm": target,
            "timestamp": "2026-01-31T08:00:00Z",
            "task_owner": owner,
            "task_contributors": contributors,
            "msg_type": kind,
            "payload": payload,
            "auth_token": "",
            "metadata": {},
        }
    )


class Peer:
    """Plays the other swarm, `home`."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.sent = 0

    async def forward(self, key_id: str = "home", **fields: Any) -> Received:
        return await self._send(key_id, back=False, **fields)

    async def back(self, key_id: str = "home", **fields: Any) -> Received:
        fields.setdefault("contributors", (OWNER, "swarm:home@example"))
        return await self._send(key_id, back=True, **fields)

    async def _send(self, key_id: str, *, back: bool, **fields: Any) -> Received:
        self.sent += 1
        fields.setdefault("message_id", f"m-{self.sent}")
        received = await self.rig.runtime.receive(key_id, letter(**fields), back=back)
        await self.rig.workers.idle()
        return received

    async def task(self, instance: str = "swarm:home@example") -> Task:
        return await self.rig.task(TaskKey(instance, TASK))

    async def messages(self) -> list[MAILMessage]:
        """All of its task, oldest first."""
        events = await self.rig.store.read_events(TaskKey("swarm:home@example", TASK))
        return [event.message for event in events if event.message is not None]

    async def outgoing(self) -> list[MAILMessage]:
        """What was sent to it, oldest first."""
        return [
            each
            for each in await self.messages()
            if any(to.address.endswith("@home") for to in each.message.recipients)
        ]

    async def letters(self) -> list[str]:
        """What the worker has been written."""
        return [
            each.message.body
            for each in await self.messages()
            if any(to.address == "worker" for to in each.message.recipients)
        ]


def worker(view: View) -> Any:
    if view.mail.sender_type == "system":
        return [wait()]
    return [respond(view.mail.sender, f"{view.mail.body}, done")]


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    swarm = build_swarm(
        {"supervisor": lambda view: [complete(f"completed {view.mail.body}")], "worker": worker}
    )
    async with Rig(swarm) as rig:
        rig.runtime.peers = Swallow()
        yield Peer(rig)


async def test_nobody_can_approve_a_call_in_a_task_of_another_swarm() -> None:
    async def pay(_arguments: dict[str, Any]) -> str:
        raise AssertionError("nobody has approved it")

    def payer(view: View) -> Any:
        return [respond("supervisor@home", view.results[-1])] if view.results else [call("pay")]

    swarm = build_swarm(
        {"supervisor": lambda view: [wait()], "worker": payer},
        actions={"pay": ActionCore("pay", pay, needs_approval=True)},
    )
    async with Rig(swarm) as rig:
        rig.runtime.peers = Swallow()
        peer = Peer(rig)
        await peer.forward()
        [answer] = await peer.outgoing()
        assert answer.message.body.startswith(
            "ERROR: it was not run: a person must approve this call, and nobody"
        )
        assert (await peer.task()).status is not TaskStatus.PAUSED


async def test_a_question_in_a_task_of_another_swarm_goes_to_that_swarm() -> None:
    async def never(_arguments: dict[str, Any]) -> str:
        raise AssertionError("nobody runs it")

    swarm = build_swarm(
        {"supervisor": lambda view: [wait()], "worker": lambda view: [call("ask", question="When?")]},
        actions={"ask": ActionCore("ask", never, reviewers=Approval(by=("admin",)))},
        breakpoint_tools=frozenset({"ask"}),
    )
    async with Rig(swarm) as rig:
        rig.runtime.peers = Swallow()
        peer = Peer(rig)
        await peer.forward()
        task = await peer.task()
        assert (task.status, task.asks) == (TaskStatus.PAUSED, frozenset())
        [asked] = await peer.outgoing()
        assert "When?" in asked.message.body
        assert "reviewers" not in asked.message.body


class TestWhose:
    async def test_a_new_task(self, peer: Peer) -> None:
        received = await peer.forward()
        assert received == Received(TaskKey("swarm:home@example", TASK), "swarm:home@example")
        task = await peer.task()
        assert (task.owner, task.parent_swarm, task.hops) == (OWNER, "home", 1)
        assert task.contributors == (OWNER, "swarm:home@example")
        assert await peer.letters() == ["please"]

    async def test_the_instance_is_of_the_key_and_not_of_what_the_message_says(self, peer: Peer) -> None:
        received = await peer.forward("other-key", source="renamed")
        assert received.key.instance == "swarm:other-key@example"

    async def test_a_key_speaks_only_for_its_own_swarm(self, peer: Peer) -> None:
        with pytest.raises(Forbidden) as refusal:
            await peer.forward("other-key", source="home")
        assert refusal.value.detail == (
            "the token of this request has the id 'other-key', and swarm 'example' expects 'home' of swarm "
            "'home': use a token with that "
            "id, or ask the operator of 'example' to register 'home' with the caller_id 'other-key'"
        )
        await peer.forward("third", source="third", task_id="t-2")
        with pytest.raises(Forbidden, match="expects 'outsider' of swarm 'outsider'"):
            await peer.back(
                "third",
                source="outsider",
                task_id="t-2",
                contributors=(OWNER, "swarm:third@example"),
            )

    async def test_a_key_speaks_for_no_swarm_that_is_not_registered(self, peer: Peer) -> None:
        with pytest.raises(Forbidden, match="could not answer swarm 'outsider'"):
            await peer.forward("stranger", source="outsider", sender="ceo", sender_type="admin")
        assert (await peer.rig.store.list_tasks("swarm:stranger@example")).tasks == []

    @pytest.mark.parametrize("owner", ["user:bob@example", "admin:ceo@example", "swarm:home@example"])
    async def test_no_task_begins_for_a_caller_of_this_swarm(self, peer: Peer, owner: str) -> None:
        """Neither without a task of theirs, nor with one that has stayed here."""
        with pytest.raises(Forbidden, match=f"no task of {owner} has left this swarm"):
            await peer.forward(owner=owner, contributors=(owner,))
        outcome = await peer.rig.ask("mine", task_id=TASK)
        own = outcome.task.owner
        with pytest.raises(Forbidden, match=f"no task of {own} has left this swarm"):
            await peer.forward(owner=own, contributors=(own,))
        assert await peer.rig.store.load(outcome.key) == outcome.task
        assert (await peer.rig.store.list_tasks("swarm:home@example")).tasks == []

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"target": "elsewhere"}, "this is swarm 'example'; the message is for 'elsewhere'"),
            ({"source": "example"}, "must be the name of another swarm"),
            ({"recipient": "nobody@example"}, "has no agent 'nobody'"),
            ({"recipient": "worke"}, "Did you mean 'worker'?"),
            ({"recipient": "worker@elsewhere"}, "no recipient of the message is in swarm 'example'"),
            ({"hops": 9}, "passed through 9 swarms, and the limit is 8"),
        ],
    )
    async def test_what_is_refused(self, peer: Peer, fields: dict[str, Any], says: str) -> None:
        with pytest.raises(BadRequest) as refusal:
            await peer.forward(**fields)
        assert says in refusal.value.detail
        assert (await peer.rig.store.list_tasks("swarm:home@example")).tasks == []

    async def test_back_needs_a_contributor_of_this_swarm_and_a_task(self, peer: Peer) -> None:
        with pytest.raises(BadRequest):
            await peer.back(contributors=(OWNER,))
        with pytest.raises(TaskNotFound):
            await peer.back()

    async def test_a_message_names_no_instance_of_others(self, peer: Peer) -> None:
        """Neither an unknown task of a person here, nor a known one, can be reached by naming them."""
        contributors = (OWNER, "user:bob@example")
        with pytest.raises(TaskNotFound):
            await peer.back(contributors=contributors)
        received = await peer.forward(contributors=contributors)
        assert received.key.instance == "swarm:home@example"
        assert await peer.rig.store.load(TaskKey("user:bob@example", TASK)) is None
        outcome = await peer.rig.ask("mine", task_id=TASK)
        for source in ("home", "example2"):
            with pytest.raises(MAILError):
                await peer.back(contributors=(outcome.task.owner,), owner=outcome.task.owner, source=source)
        assert (await peer.rig.store.load(outcome.key)) == outcome.task

    async def test_another_key_for_the_same_task(self, peer: Peer) -> None:
        await peer.forward()
        contributors = (OWNER, "swarm:home@example")
        with pytest.raises(Forbidden):
            await peer.back("third")
        with pytest.raises(TaskNotFound):
            await peer.back("third", source="third")
        received = await peer.forward("third", source="third", contributors=contributors)
        assert received.key.instance == "swarm:third@example", "a task of its own"
        assert await peer.letters() == ["please"]

    async def test_another_owner(self, peer: Peer) -> None:
        await peer.forward()
        with pytest.raises(BadRequest, match="belongs to user:ann@home"):
            await peer.back(owner="user:bob@home", contributors=("user:bob@home", "swarm:home@example"))
        with pytest.raises(BadRequest, match="belongs to user:ann@home"):
            await peer.forward(owner="user:bob@home", contributors=("user:bob@home",))

    async def test_a_sender_is_of_the_swarm_that_sends(self, peer: Peer) -> None:
        await peer.forward(sender="boss@elsewhere")
        (request_seen,) = [each for each in await peer.messages() if each.msg_type == "request"]
        assert request_seen.sender.address == "boss@home"

    async def test_nobody_poses_as_the_system_of_this_swarm(self, peer: Peer) -> None:
        await peer.forward(sender="example", sender_type="system")
        (received,) = [each for each in await peer.messages() if each.msg_type == "request"]
        assert received.sender.model_dump() == {"address_type": "system", "address": "home"}
        assert (await peer.task()).generation.steps == 1


class TestNew:
    @pytest.mark.parametrize("kind", ["response", "broadcast_complete"])
    async def test_word_of_an_end_begins_nothing(self, peer: Peer, kind: str) -> None:
        with pytest.raises(TaskNotFound):
            await peer.forward(kind=kind, subject="::task_complete::")


class TestOnce:
    async def test_the_same_message_twice(self, peer: Peer) -> None:
        first = await peer.forward(message_id="same")
        assert await peer.forward(message_id="same") == first
        assert await peer.back(message_id="same") == first
        assert await peer.letters() == ["please"]

    @pytest.mark.soak
    async def test_as_many_as_are_remembered(self, peer: Peer) -> None:
        await peer.forward(message_id="first")
        for n in range(100):
            await peer.forward(message_id=f"n-{n}", kind="interrupt", body=str(n))
        await peer.forward(message_id="first")
        assert (await peer.letters()).count("please") == 1
        assert len((await peer.task()).received) == 101


class TestMore:
    async def test_a_second_forward_is_more_mail(self, peer: Peer) -> None:
        await peer.forward()
        await peer.forward(body="and this", request_id="r-2")
        assert await peer.letters() == ["please", "and this"]
        assert [message.message.body for message in await peer.outgoing()] == [
            "please, done",
            "and this, done",
        ]

    async def test_a_stopped_task_goes_on(self, peer: Peer) -> None:
        await peer.forward(recipient="supervisor")
        assert (await peer.task()).status is TaskStatus.COMPLETED
        await peer.back(recipient="supervisor", body="once more")
        task = await peer.task()
        assert (task.status, task.generation.number) == (TaskStatus.COMPLETED, 2)
        assert [message.message.body for message in await peer.outgoing()] == [
            "completed please",
            "completed once more",
        ]

    async def test_a_broadcast(self, peer: Peer) -> None:
        await peer.forward(kind="broadcast", recipient="all")
        (heard,) = [each for each in await peer.messages() if each.msg_type == "broadcast"]
        assert {each.address for each in heard.message.recipients} == {"supervisor", "worker"}


class TestEntrypointsOnly:
    """The setting `entrypoints_only`: other swarms reach only agents that people may write to."""

    async def test_other_agents_are_out_of_reach(self, peer: Peer) -> None:
        peer.rig.runtime.entrypoints_only = True
        for kind in ("request", "interrupt", "response"):
            with pytest.raises(Forbidden, match=r"'worker' .* write to one of: supervisor"):
                await peer.forward(kind=kind, recipient="worker")
        await peer.forward(kind="broadcast", recipient="all")
        assert await peer.letters() == []
        assert (await peer.task()).status is TaskStatus.COMPLETED

    async def test_an_agent_that_waits_for_the_swarm_can_be_asked_back(self) -> None:
        def work(view: View) -> Any:
            return [request("expert@home", "?"), wait()] if view.mail.sender == "supervisor" else [wait()]

        def lead(view: View) -> Any:
            return [request("worker", "ask them"), wait()]

        worker = build_agent(work, targets=["supervisor", "expert@home"], enable_interswarm=True)
        async with Rig(build_swarm({"supervisor": lead, "worker": worker})) as rig:
            rig.runtime.peers, rig.runtime.entrypoints_only = Swallow(), True
            peer = Peer(rig)
            await peer.forward(recipient="supervisor")
            await peer.back(recipient="worker", body="which one?")
            assert await peer.letters() == ["ask them", "which one?"]


@pytest.mark.parametrize(
    ("sender_type", "sender", "shown"),
    [
        ("system", "home", '<from type="agent">system@home</from>'),
        ("system", "example", '<from type="agent">system@home</from>'),
        ("admin", "root", '<from type="user">root@home</from>'),
        ("user", "ann", '<from type="user">ann@home</from>'),
        ("agent", "system", '<from type="agent">system@home</from>'),
    ],
)
async def test_a_model_reads_nothing_of_another_swarm_as_of_the_system_or_an_admin(
    peer: Peer, sender_type: str, sender: str, shown: str
) -> None:
    await peer.forward(sender_type=sender_type, sender=sender)
    heard = (await peer.messages())[0]
    assert shown in render_message(heard)
    assert shown in build_mail_xml(heard)["content"]


class TestTheEnd:
    @pytest.mark.parametrize("kind", ["response", "broadcast_complete"])
    async def test_word_that_it_is_over(self, peer: Peer, kind: str) -> None:
        await peer.forward()
        for _ in range(2):
            await peer.back(kind=kind, subject="::task_complete::", recipient="supervisor@example", body="42")
        task = await peer.task()
        assert task.status is TaskStatus.COMPLETED
        response = await peer.rig.store.read_response(task.key, 1)
        assert response is not None
        assert response.message.body == "42"
        assert len(await peer.outgoing()) == 1, "a swarm gets no message about its own"

    async def test_what_is_not_read_yet_is_over_too(self, peer: Peer) -> None:
        await peer.forward()
        await peer.rig.workers.stop()
        for n in (1, 2):
            await peer.rig.runtime.receive(
                "home", letter(message_id=f"more-{n}", request_id=f"r-{n}"), back=False
            )
        over = letter(
            "response",
            message_id="end",
            subject="::task_complete::",
            contributors=(OWNER, "swarm:home@example"),
        )
        await peer.rig.runtime.receive("home", over, back=True)
        task = await peer.task()
        assert (task.status, task.generation.number, task.unread_questions, task.requests) == (
            TaskStatus.COMPLETED,
            1,
            (),
            (),
        )

    async def test_only_the_swarm_that_asked_can_say_so(self, peer: Peer) -> None:
        """Another swarm's word that all is over is an answer, and an answer to nothing is mail."""
        await peer.forward()
        with pytest.raises(TaskNotFound):
            await peer.back("third", source="third", kind="broadcast_complete", subject="::task_complete::")
        assert (await peer.task()).status is TaskStatus.RUNNING


class TestAnswers:
    """This swarm asks `home`, which answers in various ways."""

    @pytest.fixture
    async def asked(self) -> AsyncIterator[tuple[Peer, TaskKey, str]]:
        def boss(view: View) -> Any:
            if len(view.messages) == 1:
                return [request("expert@home"), wait()]
            return [complete(view.mail.body)]

        core = build_agent(
            boss, targets=["expert@home"], supervises=True, enable_interswarm=True, name="boss"
        )
        async with Rig(build_swarm({"boss": core})) as rig:
            rig.runtime.peers = Swallow()
            submitted = await rig.submit("hello")
            await rig.workers.idle()
            task = await rig.task(submitted.key)
            (open_request,) = task.requests
            yield Peer(rig), submitted.key, open_request.request_id

    async def answer(self, asked: tuple[Peer, TaskKey, str], key_id: str = "home", **fields: Any) -> str:
        peer, key, _ = asked
        fields = {
            "kind": "response",
            "sender": "expert",
            "recipient": "boss@example",
            "body": "the answer",
            "owner": key.instance,
            "contributors": (key.instance, "swarm:example@home"),
            "task_id": key.task_id,
            **fields,
        }
        await peer.back(key_id, **fields)
        await peer.rig.task(key)
        response = await peer.rig.store.read_response(key, 1)
        return "" if response is None else response.message.body

    @pytest.mark.parametrize(
        "fields",
        [
            {},
            {"request_id": "an id of its own"},
            {"subject": "::task_complete::"},
            {"kind": "broadcast_complete", "recipient": "all"},
        ],
    )
    async def test_it_is_no_end(self, asked: Any, fields: dict[str, Any]) -> None:
        """Some peers say `broadcast_complete` when a supervisor of theirs is done; the asker completes it itself."""
        assert await self.answer(asked, **{"request_id": asked[2], **fields}) == "the answer"
        assert (await asked[0].rig.store.load(asked[1])).requests == ()
        events = await asked[0].rig.store.read_events(asked[1])
        assert EventKind.TASK_COMPLETE_CALL in [event.kind for event in events]

    async def test_it_arrives_while_the_caller_may_store_no_more(self, asked: Any) -> None:
        """The peer would not send it again; a new request of the peer is refused."""
        asked[0].rig.runtime.caller_limits = CallerLimits(caller_bytes=1)
        with pytest.raises(StorageFull):
            await self.answer(asked, kind="request")
        assert await self.answer(asked, request_id=asked[2]) == "the answer"

    async def test_a_third_swarm_may_bring_the_task_back(self, asked: Any) -> None:
        """The swarm that was asked may ask a third one, which asks this one: the owner is the same at every hop."""
        peer, key, _ = asked
        received = await peer.forward(
            "third",
            source="third",
            task_id=key.task_id,
            recipient="boss@example",
            owner=key.instance,
            contributors=(key.instance, "swarm:example@home", "swarm:home@third"),
        )
        assert received.key == TaskKey("swarm:third@example", key.task_id)

    async def test_a_key_that_is_not_the_peers(self, asked: Any, caplog: pytest.LogCaptureFixture) -> None:
        with pytest.raises(Forbidden):
            await self.answer(asked, key_id="third")
        assert "register the swarm with this id as caller_id" in caplog.text
        with pytest.raises(TaskNotFound):
            await self.answer(asked, key_id="third", source="third")

    async def test_the_task_runs_on_while_the_answer_is_out(self, asked: Any) -> None:
        task = await asked[0].rig.store.load(asked[1])
        assert (task.status, task.generation.nudges, task.pending) == (TaskStatus.RUNNING, 0, {})

    @pytest.mark.parametrize("sender", ["expert", "home"])
    async def test_an_answer_to_the_end_is_no_dead_letter(self, asked: Any, sender: str) -> None:
        """Agents of other implementations answer the notice that the task has ended."""
        peer, key, request_id = asked
        await self.answer(asked, request_id=request_id)
        kind = "system" if sender == "home" else "agent"
        await self.answer(asked, sender=sender, sender_type=kind, subject="Thanks", request_id="fresh")
        task = await peer.rig.store.load(key)
        assert (task.status, task.dead_letters, task.pending) == (TaskStatus.COMPLETED, (), {})
        await self.answer(asked, sender="stranger", subject="Thanks", request_id="fresh")
        task = await peer.rig.store.load(key)
        assert len(task.dead_letters) == 1, "another agent was not told, so it answers something else"

    async def test_an_answer_while_the_end_is_on_its_way(
        self, asked: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other swarm may answer the notice of the end before it has accepted it."""
        peer, key, request_id = asked

        async def deliver(
            _: Swallow, message: MAILInterswarmMessage, *, back: bool, **more: object
        ) -> str | None:
            if message.payload.subject == "::task_complete::":
                fields: Any = {"kind": "response", "sender": "expert", "recipient": "boss@example"}
                contributors = (key.instance, "swarm:example@home")
                thanks = letter(
                    **fields,
                    message_id="m-2",
                    request_id="fresh",
                    owner=key.instance,
                    contributors=contributors,
                    task_id=key.task_id,
                )
                await peer.rig.runtime.receive("home", thanks, back=True)
            return None

        monkeypatch.setattr(Swallow, "deliver", deliver)
        await self.answer(asked, request_id=request_id)
        task = await peer.rig.store.load(key)
        assert (task.status, task.dead_letters, task.peers["home"].end_delivered) == (
            TaskStatus.COMPLETED,
            (),
            True,
        )

    async def test_an_answer_after_the_end(self, asked: Any) -> None:
        """An echo of a completion changes nothing; it is answered as received."""
        await self.answer(asked, request_id=asked[2])
        before = await asked[0].rig.store.load(asked[1])
        await self.answer(asked, kind="broadcast_complete", recipient="all", subject="::task_complete::")
        await self.answer(asked, subject="::task_complete::")
        after = await asked[0].rig.store.load(asked[1])
        assert (after.status, after.generation.number, after.pending) == (before.status, 1, {})
