"""Who may write to whom, in which order mail is read, and which answer belongs to which request."""

from typing import Any

import pytest

from mail.core.protocol.address import Principal
from mail.core.protocol.message import Tier
from mail.core.task.events import EventKind
from mail.core.task.limits import OPEN_REQUESTS
from mail.core.task.swarm import AgentCore
from mail.testing.agents import (
    Call,
    ReceivedMessage,
    View,
    acknowledge,
    broadcast,
    build_agent,
    build_swarm,
    call,
    complete,
    interrupt,
    request,
    respond,
    turns,
    wait,
)
from mail.testing.rig import Rig, ask_once


def worker(view: View) -> Any:
    return [acknowledge()] if view.mail.subject == "News" else [respond(view.mail.sender)]


async def refusal(
    wrong: Call, *, caller: Principal | None = None, targets: list[str] | None = None
) -> ReceivedMessage:
    """The errors for mail to agents out of reach."""
    told: list[View] = []

    def policy(view: View) -> Any:
        told.append(view)
        return [wrong] if len(view.messages) == 1 else [complete()]

    supervisor = build_agent(policy, targets=targets or ["worker"], supervises=True, name="supervisor")
    swarm = build_swarm({"supervisor": supervisor, "worker": worker, "stranger": worker})
    async with Rig(swarm) as rig:
        outcome = await rig.outcome(await rig.submit(caller=caller))
        inbox = await rig.inbox(outcome.key)
    assert inbox == []
    assert outcome.kinds.count(EventKind.AGENT_ERROR) == 1
    assert [message.msg_type for message in outcome.messages] == ["request", "response", "broadcast_complete"]
    assert told[1].results[0] == f"ERROR: {told[1].mail.body}"
    assert told[1].mail.sender_type == "system"
    return told[1].mail


WRITERS = [request, respond, interrupt]


@pytest.mark.parametrize("write", WRITERS)
class TestRefusals:
    async def test_an_agent_outside_the_comm_targets(self, write: Any) -> None:
        letter = await refusal(write("stranger"))
        assert letter.subject == "::invalid_recipient::"
        assert "stranger" in letter.body
        assert "worker" in letter.body

    async def test_an_agent_that_does_not_exist(self, write: Any) -> None:
        letter = await refusal(write("nobody"))
        assert letter.subject == "::agent_error::"
        assert "nobody" in letter.body

    @pytest.mark.parametrize("name", ["ann", "user", "user:ann@example", "ann@example"])
    async def test_the_users_name(self, write: Any, name: str) -> None:
        letter = await refusal(write(name))
        assert letter.subject == "::improper_response_to_user::"
        assert "task_complete" in letter.body

    async def test_the_name_of_an_admin_who_wrote(self, write: Any) -> None:
        root = Principal(role="admin", id="root", swarm="example")
        assert (await refusal(write("root"), caller=root)).subject == "::improper_response_to_user::"

    async def test_oneself_without_being_a_target(self, write: Any) -> None:
        assert (await refusal(write("supervisor"))).subject == "::invalid_recipient::"

    async def test_everyone_is_no_agent(self, write: Any) -> None:
        assert (await refusal(write("all"))).subject == "::agent_error::"

    @pytest.mark.parametrize("name", ["Worker", " worker", "worker ", "worker@Example", "worker@"])
    async def test_names_are_exact(self, write: Any, name: str) -> None:
        assert (await refusal(write(name))).subject in ("::agent_error::", "::invalid_recipient::")


@pytest.mark.parametrize("target", ["worker", "worker@example"])
@pytest.mark.parametrize("listed", ["worker", "worker@example"])
async def test_a_local_agent_may_be_written_with_its_swarm(target: str, listed: str) -> None:
    policy = turns([request(target, "ping"), wait()], [complete()])
    supervisor = build_agent(policy, targets=[listed], supervises=True, name="supervisor")
    outcome = await ask_once(build_swarm({"supervisor": supervisor, "worker": worker}))
    assert outcome.answer == "done"
    assert outcome.of(EventKind.AGENT_ERROR) == []
    assert outcome.messages[2].message.request_id == outcome.messages[1].message.request_id


async def test_broadcasts_are_exempt_from_comm_targets() -> None:
    lonely = build_agent(turns([broadcast(), wait()], [complete()]), supervises=True, name="supervisor")
    outcome = await ask_once(build_swarm({"supervisor": lonely, "worker": worker}))
    assert outcome.of(EventKind.AGENT_ERROR) == []


class TestRequestIds:
    async def test_a_response_answers_the_request_just_read(self) -> None:
        swarm = build_swarm(
            {
                "supervisor": lambda view: (
                    [request("worker", n) for n in "abc"] + [wait()]
                    if view.mail.sender_type == "user"
                    else [complete() if len(view.messages) == 4 else wait()]
                ),
                "worker": lambda view: [respond("supervisor", view.mail.body)],
            }
        )
        outcome = await ask_once(swarm)
        asked = {m.message.body: m.message.request_id for m in outcome.sent_to("worker")}
        answered = {
            m.message.body: m.message.request_id
            for m in outcome.sent_to("supervisor")
            if m.sender.address == "worker"
        }
        assert answered == asked
        assert len(set(asked.values())) == 3

    async def test_a_later_response_answers_the_oldest_open_request(self) -> None:
        """The worker asks around first, so that what it has just read is not what it answers."""
        swarm = build_swarm(
            {
                "supervisor": turns(
                    [request("worker", "one"), request("worker", "two"), wait()], [wait()], [complete()]
                ),
                "worker": turns(
                    [request("expert"), wait()],
                    [wait()],
                    [respond("supervisor", "to one"), respond("supervisor", "to two")],
                ),
                "expert": lambda view: [respond("worker")],
            }
        )
        async with Rig(swarm, concurrency=1) as rig:
            outcome = await rig.ask()
        ids = {
            message.message.body: message.message.request_id
            for message in outcome.messages
            if {message.sender.address, message.message.recipients[0].address} == {"supervisor", "worker"}
        }
        assert ids["to one"] == ids["one"]
        assert ids["to two"] == ids["two"]

    async def test_a_response_that_nobody_asked_for_gets_an_id_of_its_own(self) -> None:
        swarm = build_swarm(
            {
                "supervisor": turns([interrupt("worker"), wait()], [complete()]),
                "worker": lambda view: [respond("supervisor", "for your information")],
            }
        )
        outcome = await ask_once(swarm)
        (sent,) = [m for m in outcome.messages if m.msg_type == "response"]
        assert sent.message.request_id
        assert outcome.answer == "done"

    async def test_no_more_of_them_are_remembered_than_fit_into_the_record(self) -> None:
        script = [request("worker", str(n)) for n in range(OPEN_REQUESTS + 10)]
        pause = call("ask_human", question="go on?")
        swarm = build_swarm(
            {"supervisor": turns([*script, pause]), "worker": worker},
            breakpoint_tools=frozenset({"ask_human"}),
        )
        outcome = await ask_once(swarm)
        ids = [message.message.request_id for message in outcome.sent_to("worker")]
        assert [each.request_id for each in outcome.task.requests] == ids[10:]

    async def test_none_is_left_when_the_task_has_ended(self) -> None:
        """Nobody will answer it any more; what is still unread can be answered when the task resumes."""
        swarm = build_swarm({"supervisor": turns([request("worker"), complete()]), "worker": worker})
        assert (await ask_once(swarm)).task.requests == ()

    async def test_each_agent_may_await_only_its_own_answers(self) -> None:
        """The supervisor waits for the worker; that is nothing for the worker to wait for."""
        told: list[str] = []

        def waiting_worker(view: View) -> Any:
            told.append(view.mail.subject)
            return [wait()] if len(view.messages) == 1 else [respond("supervisor")]

        swarm = build_swarm(
            {"supervisor": turns([request("worker"), wait()], [complete()]), "worker": waiting_worker}
        )
        await ask_once(swarm)
        assert told == ["Request", "::tool_call_error::"]


class TestOrder:
    async def test_mail_is_read_by_tier_then_seq(self) -> None:
        """Everything comes in one commit, so nothing is read before all of it waits."""
        read: list[str] = []

        def reader(view: View) -> Any:
            read.append(view.mail.body)
            return [acknowledge()] if view.mail.subject == "News" else [respond("supervisor")]

        script = [
            request("worker", "request 1"),
            broadcast("broadcast 1"),
            request("worker", "request 2"),
            interrupt("worker", "interrupt 1"),
            broadcast("broadcast 2"),
            interrupt("worker", "interrupt 2"),
            wait(),
        ]
        swarm = build_swarm(
            {
                "supervisor": lambda view: (
                    script if len(view.messages) == 1 else [complete() if len(view.messages) == 5 else wait()]
                ),
                "worker": reader,
            }
        )
        async with Rig(swarm, concurrency=1) as rig:
            await rig.ask()
        assert read == [
            "interrupt 1", "interrupt 2", "broadcast 1", "broadcast 2", "request 1", "request 2",
        ]  # fmt: skip

    async def test_system_and_persons_overtake_agents(self) -> None:
        read: list[str] = []

        async def act(args: dict[str, Any]) -> str:
            await rig.submit("from the user", task_id="t", entrypoint="supervisor")
            return "acted"

        def supervisor(view: View) -> Any:
            read.append(view.mail.subject if view.mail.sender_type == "system" else view.mail.body)
            if len(view.messages) == 1:
                return [request("worker"), interrupt("worker"), call("act")]
            return [complete()] if len(view.messages) == 5 else [wait()]

        swarm = build_swarm(
            {
                "supervisor": supervisor,
                "worker": lambda view: (
                    [interrupt("supervisor", f"re {view.mail.subject}")]
                    if view.mail.subject == "Interrupt"
                    else [respond("supervisor", "answer"), wait()]
                ),
            },
            actions={"act": act},
        )
        async with Rig(swarm, concurrency=1) as rig:
            await rig.ask("start", task_id="t")
        assert read == ["start", "::action_complete::", "from the user", "re Interrupt", "answer"]

    @pytest.mark.parametrize(
        ("role", "msg_type"),
        [
            (role, kind)
            for role in ("user", "admin")
            for kind in ("request", "response", "broadcast", "interrupt")
        ],
    )
    async def test_persons_have_a_tier_of_their_own_whatever_they_send(
        self, role: Any, msg_type: str
    ) -> None:
        caller = Principal(role=role, id="ann", swarm="example")
        swarm = build_swarm({"supervisor": lambda view: [complete()]})
        async with Rig(swarm) as rig:
            await rig.workers.stop()
            submitted = await rig.submit(caller=caller, msg_type=msg_type)
            (entry,) = await rig.inbox(submitted.key)
        assert entry.tier is Tier.PERSON
        assert entry.message.msg_type == msg_type
        assert entry.message.sender.model_dump() == {"address_type": role, "address": "ann"}


class TestPersonsMail:
    async def test_the_defaults(self) -> None:
        seen: list[View] = []

        def supervisor(view: View) -> Any:
            seen.append(view)
            return [complete()]

        outcome = await ask_once(build_swarm({"supervisor": supervisor, "worker": worker}), "hello")
        (letter,) = seen[0].messages
        assert letter[:5] == ("user", "ann", "New Message", "hello", (("agent", "supervisor"),))
        assert outcome.messages[0].msg_type == "request"

    @pytest.mark.parametrize(
        ("is_open", "readers"), [(False, ("supervisor", "one")), (True, ("supervisor", "one", "two"))]
    )
    async def test_a_broadcast_goes_to_every_agent_that_people_may_write_to(
        self, is_open: bool, readers: tuple[str, ...]
    ) -> None:
        heard: dict[str, object] = {}

        def listener(name: str, answer: Call, **settings: bool) -> AgentCore:
            def policy(view: View) -> Any:
                heard[name] = view.mail.recipients
                return [answer]

            return build_agent(policy, name=name, **settings)

        swarm = build_swarm(
            {
                "supervisor": listener("supervisor", complete(), supervises=True),
                "one": listener("one", acknowledge(), enable_entrypoint=True),
                "two": listener("two", acknowledge(), enable_entrypoint=is_open),
            }
        )
        outcome = await ask_once(swarm, msg_type="broadcast")
        shown = tuple(("agent", name) for name in (["all"] if is_open else readers))
        assert heard.keys() <= set(readers), "the answer may come before the others have read it"
        assert set(heard.values()) == {shown}
        first = outcome.messages[0]
        assert first.msg_type == "broadcast"
        assert tuple((each.address_type, each.address) for each in first.message.recipients) == shown
        assert outcome.kinds.count(EventKind.NEW_MESSAGE) == 2

    async def test_a_task_whose_entrypoint_is_closed_continues_with_the_swarm_s(self) -> None:
        """An admin may load a swarm in which people can't write to it any more."""

        def named(name: str, **settings: bool) -> AgentCore:
            return build_agent(lambda view: [complete(name)], name=name, can_complete_tasks=True, **settings)

        chief, math = named("chief", enable_entrypoint=True), named("math", enable_entrypoint=True)
        async with Rig(build_swarm({"chief": chief, "math": math})) as rig:
            assert (await rig.ask(entrypoint="math", task_id="t")).answer == "math"
            rig.runtime.swarm = build_swarm({"chief": chief, "math": named("math")})
            assert (await rig.ask(task_id="t")).answer == "chief"

    async def test_an_interrupt_goes_to_the_entrypoint(self) -> None:
        outcome = await ask_once(
            build_swarm({"supervisor": lambda view: [complete(view.mail.subject)]}),
            msg_type="interrupt",
            subject="Stop",
        )
        assert outcome.answer == "Stop"
        assert [address.address for address in outcome.messages[0].message.recipients] == ["supervisor"]

    async def test_a_subject_in_double_colons_is_only_a_label(self) -> None:
        """Control goes by type: `::task_complete::` written by a person or an agent ends nothing."""
        swarm = build_swarm(
            {
                "supervisor": turns(
                    [request("worker", "x", subject="::maximum_steps_reached::"), wait()],
                    [complete("by itself")],
                ),
                "worker": lambda view: [respond("supervisor", "x", subject="::task_complete::")],
            }
        )
        outcome = await ask_once(swarm, subject="::task_complete::")
        assert outcome.answer == "by itself"
        assert outcome.kinds.count(EventKind.TASK_COMPLETE) == 1
        assert outcome.task.generation.steps == 3
