"""What a fork takes along of a task, and what it leaves behind."""

from dataclasses import dataclass, replace
from dataclasses import fields as dataclass_fields
from typing import Any

import pytest

from mail.core.decisions.approvals import GivenApproval
from mail.core.decisions.caller_limits import CallerLimits
from mail.core.decisions.fork import fork
from mail.core.protocol.address import Principal, create_agent_address
from mail.core.protocol.message import Tier
from mail.core.task.change import InboxEntry, Inheritance, Snapshot, TaskChange
from mail.core.task.client_tools import ClientTool, ClientTools
from mail.core.task.events import EventKind
from mail.core.task.interswarm import OpenRequest, Peer, UnreadQuestion
from mail.core.task.limits import Budget, Limits
from mail.core.task.mailboxes import peer_mailbox
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import Cancellation, ForkActions, Generation, Task, TaskKey, TaskStatus
from mail.core.task.turn_state import Breakpoint, PausedCall
from mail.core.task.usage import Usage
from mail.errors import BadClientTools, BadRequest, NotPaused, Subject, TaskNotFound, TooManyTasks
from mail.testing.agents import NAME, View, build_swarm, call, complete, request, respond, turns, wait
from mail.testing.changes import ANN, SWARM, Mail, Maker
from mail.testing.rig import Rig

KEY = TaskKey(ANN, "first")
CALLER = Principal(role="user", id="ann", swarm=NAME)
NOTHING = Inheritance(TaskKey(str(CALLER), "first"), {}, 0)
LOST: SwarmCore = build_swarm({name: turns([complete()]) for name in ("alpha", "beta")})
"""A later version of the swarm, without gamma."""

WAITS = Breakpoint(
    agent="gamma",
    tool_format="completions",
    calls=(PausedCall(call_id="c", name="approve", arguments={}),),
)


@pytest.fixture
def make() -> Maker:
    return Maker()


@dataclass(frozen=True)
class Moment:
    """A task as it was, with the messages that waited."""

    task: Task
    mail: list[InboxEntry]

    @property
    def snapshot(self) -> Snapshot:
        return Snapshot(self.task, [(entry.tier, entry.seq, entry.mailbox) for entry in self.mail])


def moment(make: Maker, *mail: Mail, **fields: Any) -> Moment:
    """A running task with this mail; `fields` of it and of its generation have these values."""
    begun = make.begin(KEY, *mail)
    names = {field.name for field in dataclass_fields(Generation)}
    generation = Generation(**{name: value for name, value in fields.items() if name in names})
    rest = {name: value for name, value in fields.items() if name not in names}
    task = replace(begun.task, generation=generation, **rest)
    return Moment(task, list(begun.deliveries))


def from_swarm(snapshot: Moment, sender: str) -> Moment:
    """The same, but that all of its mail was written by somebody else."""

    def rewritten(entry: InboxEntry) -> InboxEntry:
        payload = entry.message.message.model_copy(update={"sender": create_agent_address(sender)})
        return replace(entry, message=entry.message.model_copy(update={"message": payload}))

    return replace(snapshot, mail=[rewritten(entry) for entry in snapshot.mail])


def forked(make: Maker, then: Moment, swarm: SwarmCore = SWARM, **options: Any) -> TaskChange:
    return fork(then.snapshot, then.mail, NOTHING, swarm, CALLER, "second", make.clock, **options)


def told(change: TaskChange) -> dict[str, list[str]]:
    """What the system tells agents, by agent."""
    letters: dict[str, list[str]] = {}
    for entry in change.deliveries:
        if entry.tier is Tier.SYSTEM:
            assert entry.message.message.subject == Subject.RUNTIME_ERROR
            letters.setdefault(entry.mailbox, []).append(entry.message.message.body)
    return letters


def bodies(change: TaskChange) -> list[tuple[str, Tier, str]]:
    return [
        (entry.mailbox, entry.tier, entry.message.message.body)
        for entry in change.deliveries
        if entry.tier is not Tier.SYSTEM
    ]


def asks(sender: str, recipient: str, **fields: Any) -> OpenRequest:
    return OpenRequest(request_id=f"{sender}>{recipient}", sender=sender, recipient=recipient, **fields)


class TestWhatGoesAlong:
    def test_mail_keeps_its_order_tiers_and_times_in_a_task_of_its_own(self, make: Maker) -> None:
        letters = (Mail("beta", Tier.AGENT, "1"), Mail("alpha", Tier.PERSON, "2"), Mail("alpha", body="3"))
        snapshot = moment(make, *letters)
        change = forked(make, snapshot)
        assert change.key == TaskKey(ANN, "second")
        assert (change.expected_version, change.task.version) == (0, 1)
        assert bodies(change) == [(mail.mailbox, mail.tier, mail.body) for mail in letters]
        assert [entry.seq for entry in change.deliveries] == [2, 3, 4]
        for entry, old in zip(change.deliveries, snapshot.mail, strict=True):
            assert entry.message.timestamp == old.message.timestamp
            assert entry.message.id != old.message.id
            assert entry.message.message.task_id == "second"
        assert change.task.pending == {"beta": (0, 0, 0, 0, 1), "alpha": (0, 1, 0, 0, 1)}
        first, *others = change.events
        assert (first.seq, first.kind, first.extra.as_json()) == (
            1,
            EventKind.TASK_FORKED,
            {"forked_from": "first", "at": 3},
        )
        assert {event.kind for event in others} == {EventKind.NEW_MESSAGE}

    def test_a_broadcast_stays_one_message(self, make: Maker) -> None:
        snapshot = moment(make, Mail("alpha", Tier.BROADCAST, "all"))
        (entry,) = snapshot.mail
        twice = replace(snapshot, mail=[entry, replace(entry, mailbox="beta")])
        change = forked(make, twice)
        assert [(entry.mailbox, entry.seq) for entry in change.deliveries] == [("alpha", 2), ("beta", 2)]
        assert len(change.events) == 2

    def test_histories_are_inherited_and_said(self, make: Maker) -> None:
        inherited = Inheritance(TaskKey(str(CALLER), "first"), {"alpha": 2}, 70_000)
        change = fork(moment(make).snapshot, [], inherited, LOST, CALLER, "second", make.clock)
        assert (change.inherits, change.histories) == (inherited, ())
        assert change.task.histories == {"alpha": 2}
        assert 70_000 < change.task.stored_bytes < 71_000
        (said,) = [event for event in change.events if event.kind is EventKind.HISTORY_INHERITED]
        assert said.extra.as_json() == {"agent": "alpha", "portions": 2}

    def test_what_a_task_is_and_has_used_up(self, make: Maker) -> None:
        tools = ClientTools(tools=(ClientTool(name="look"),))
        limits = Limits(steps=7, turns=70, deadline=5.0, budget=Budget(tokens=9), finish_by=3.0)
        snapshot = moment(
            make, title="about", entrypoint="beta", limits=limits, notes={"a": 1}, client_tools=tools,
            steps=3, turns=4, nudges=1, faults={"alpha": 2}, number=4, contributors=(ANN, "user:bob@x"),
            usage={"alpha": Usage(calls=1)}, spent=Usage(calls=1), traceparent="00-x", received=("f",),
            peers={"far": Peer(agent="a")}, hops=2,
        )  # fmt: skip
        task = forked(make, snapshot).task
        assert task == Task(
            instance=ANN, task_id="second", status=TaskStatus.PAUSED, owner=ANN, contributors=(ANN,),
            entrypoint="beta", title="Fork of about", forked_from="first", started=task.started, updated=task.updated,
            generation=Generation(
                number=0, faults={"alpha": 2}, client_tools=tools, notes={"a": 1},
                versions=task.generation.versions, began=-1,
            ),
            seq=task.seq, version=1, pending=task.pending,
            limits=Limits(steps=7, turns=70, budget=Budget(tokens=9)), stored_bytes=task.stored_bytes,
        )  # fmt: skip

    def test_the_title_of_a_fork_of_a_fork_says_so_once(self, make: Maker) -> None:
        first = forked(make, moment(make, title="about"), LOST)
        snapshot = Moment(task=first.task, mail=[])
        assert forked(make, snapshot).task.title == "Fork of about"
        assert forked(make, moment(make, title=None)).task.title == f"Fork of {moment(make).task.task_id}"

    def test_requests_among_agents_and_questions_that_nobody_has_read(self, make: Maker) -> None:
        snapshot = moment(
            make,
            Mail("alpha", Tier.AGENT),
            Mail("beta", Tier.PERSON),
            requests=(asks("alpha", "beta"),),
            unread_questions=(UnreadQuestion(mailbox="beta", seq=2), UnreadQuestion(mailbox="alpha", seq=99)),
        )
        task = forked(make, snapshot).task
        assert task.requests == (asks("alpha", "beta"),)
        assert task.unread_questions == (UnreadQuestion(mailbox="beta", seq=3),)

    def test_the_notice_that_limits_are_used_up_does_not(self, make: Maker) -> None:
        snapshot = moment(
            make, Mail("alpha", body="work"), Mail("alpha", Tier.SYSTEM, "finish"), limit_notice=2
        )
        change = forked(make, snapshot)
        assert bodies(change) == [("alpha", Tier.AGENT, "work")]
        assert change.task.generation.limit_notice is None
        assert told(change) == {}


class TestStatus:
    def test_a_running_moment_is_paused_or_runs_on(self, make: Maker) -> None:
        snapshot = moment(make)
        paused, running = forked(make, snapshot).task, forked(make, snapshot, run=True).task
        assert (paused.status, paused.generation.number, paused.generation.breakpoint) == (
            TaskStatus.PAUSED,
            0,
            None,
        )
        assert (running.status, running.generation.number) == (TaskStatus.RUNNING, 1)

    def test_the_time_of_a_budget_begins_anew(self, make: Maker) -> None:
        limits = Limits(steps=1, turns=20, deadline=1.0, budget=Budget(seconds=60), finish_by=0.5)
        running = forked(make, moment(make, limits=limits), run=True).task
        assert running.limits.finish_by == make.clock.now().timestamp() + 60
        assert running.limits.deadline is None
        paused = forked(make, moment(make, limits=limits)).task
        assert (paused.limits.deadline, paused.limits.finish_by) == (None, None)

    @pytest.mark.parametrize("status", [TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED])
    def test_one_that_had_stopped_has_stopped(self, make: Maker, status: TaskStatus) -> None:
        cancelled = Cancellation(requested="then", by=ANN, reason="", seq=7)
        snapshot = moment(make, status=status, cancellation=cancelled)
        task = forked(make, snapshot).task
        assert task.status is status
        expected = replace(cancelled, seq=0) if status is TaskStatus.CANCELLED else None
        assert task.cancellation == expected
        with pytest.raises(BadRequest, match=f"was {status.value} at 1, so its fork can't run by itself"):
            forked(make, snapshot, run=True)

    def test_one_at_a_breakpoint_waits_for_the_same(self, make: Maker) -> None:
        snapshot = moment(make, status=TaskStatus.PAUSED, breakpoint=WAITS)
        task = forked(make, snapshot).task
        assert (task.status, task.generation.breakpoint) == (TaskStatus.PAUSED, WAITS)
        with pytest.raises(BadRequest, match="was paused at 1"):
            forked(make, snapshot, run=True)

    def test_a_fork_that_was_not_run_yet_can_be_forked_and_run(self, make: Maker) -> None:
        first = forked(make, moment(make))
        again = Moment(first.task, list(first.deliveries))
        assert forked(make, again, run=True).task.is_running

    def test_one_without_mail_is_told_so_when_it_runs(self, make: Maker) -> None:
        silent = replace(moment(make), mail=[])
        change = forked(make, silent, run=True)
        assert list(told(change)) == ["alpha"]
        assert "nothing will happen by itself" in told(change)["alpha"][0]
        assert not forked(make, silent).deliveries


class TestWhatIsLeftBehind:
    def test_requests_to_other_swarms_and_their_mail(self, make: Maker) -> None:
        snapshot = moment(
            make,
            Mail(peer_mailbox("far"), body="to them"),
            requests=(
                asks("beta", "a@far"),
                asks("beta", "b@far"),
                asks("a@far", "alpha", seq=1),
                asks("", "a@far"),
            ),
        )
        change = forked(make, snapshot)
        assert bodies(change) == []
        assert change.task.requests == ()
        ((agent, (body,)),) = told(change).items()
        assert agent == "beta"
        assert body.startswith(
            "This task is a fork of task first. It was made without: your request to 'a@far'; your request to 'b@far'."
        )

    def test_a_request_of_another_swarm_but_not_what_it_answers(self, make: Maker) -> None:
        asked = from_swarm(moment(make, Mail("alpha", body="do it")), "a@far")
        assert bodies(forked(make, asked)) == []
        news = from_swarm(moment(make, Mail("alpha", Tier.BROADCAST, "done")), "a@far")
        assert bodies(forked(make, news)) == [("alpha", Tier.BROADCAST, "done")]

    def test_agents_that_the_swarm_has_no_more(self, make: Maker) -> None:
        snapshot = moment(
            make,
            Mail("gamma", body="from alpha"),
            Mail("gamma", Tier.PERSON, "from ann"),
            Mail("beta", body="stays"),
            requests=(asks("beta", "gamma"), asks("gamma", "beta")),
            faults={"gamma": 1, "beta": 2},
        )
        change = forked(make, snapshot, LOST)
        assert bodies(change) == [("beta", Tier.AGENT, "stays")]
        assert change.task.requests == ()
        assert change.task.generation.faults == {"beta": 2}
        letters = told(change)
        assert letters.keys() == {"alpha", "beta"}
        assert "mail for agent 'gamma', which this swarm no longer has." in letters["alpha"][0]
        assert "your request to 'gamma', which this swarm no longer has." in letters["beta"][0]

    def test_an_entrypoint_or_a_breakpoint_of_one(self, make: Maker) -> None:
        snapshot = moment(make, status=TaskStatus.PAUSED, breakpoint=WAITS, entrypoint="gamma")
        change = forked(make, snapshot, LOST)
        assert (change.task.entrypoint, change.task.generation.breakpoint) == ("alpha", None)
        assert "agent 'gamma', which waited for the user" in told(change)["alpha"][0]

    def test_tools_that_do_not_fit_to_the_swarm_are_refused(self, make: Maker) -> None:
        swarm = replace(SWARM, breakpoint_tools=frozenset({"look"}))
        with pytest.raises(BadClientTools):
            forked(make, moment(make, client_tools=ClientTools(tools=(ClientTool(name="look"),))), swarm)


def chatty() -> dict[str, Any]:
    return {
        "supervisor": turns([request("worker"), wait()], [complete("done")], [complete("again")]),
        "worker": lambda view: [respond("supervisor")],
    }


class TestRuntime:
    async def test_another_message_at_an_earlier_moment(self) -> None:
        async with Rig(build_swarm(chatty())) as rig:
            first = await rig.ask("one", task_id="first")
            made = await rig.runtime.fork(rig.user, "first", at=2)
            assert made.at > 2
            outcome = await rig.ask("two instead", task_id=made.task.task_id)
            assert outcome.task.generation.number == 1
            read = [message.message.body for message in outcome.messages]
            assert "two instead" in read
            assert (await rig.store.load(first.key)) == first.task
            found = await rig.runtime.find(made.task.key, outcome.messages[0].id)
            assert found is not None
            assert found.generation == outcome.submitted.generation

    async def test_a_fork_at_a_breakpoint_is_answered_in_another_way(self) -> None:
        def supervisor(view: Any) -> Any:
            return [complete(view.results[-1])] if view.results else [call("approve")]

        swarm = build_swarm(
            {"supervisor": supervisor},
            actions={"approve": no_action},
            breakpoint_tools=frozenset({"approve"}),
        )
        answering = {"resume_from": "breakpoint_tool_call"}
        async with Rig(swarm) as rig:
            paused = await rig.ask("may I?", task_id="first")
            made = await rig.runtime.fork(rig.user, "first")
            for task_id, said in (("first", "yes"), (made.task.task_id, "no")):
                outcome = await rig.ask("", task_id=task_id, breakpoint_tool_call_result=said, **answering)
                assert outcome.answer == said
            running = await rig.runtime.fork(rig.user, "first", at=1)
            assert running.task.status is TaskStatus.PAUSED
            with pytest.raises(NotPaused):
                await rig.ask("", task_id=running.task.task_id, breakpoint_tool_call_result="?", **answering)
        assert paused.task.status is TaskStatus.PAUSED

    async def test_the_fork_of_a_cancelled_task_can_be_cancelled_again_and_resumed(self) -> None:
        async with Rig(build_swarm(chatty())) as rig:
            await rig.workers.stop()
            await rig.submit("one", task_id="first")
            await rig.runtime.cancel(rig.user, "first", "no need")
            made = await rig.runtime.fork(rig.user, "first")
            task = await rig.runtime.cancel(rig.user, made.task.task_id)
            assert task.cancellation is not None
            assert task.cancellation.reason == "no need"
            await rig.workers.start()
            assert (await rig.ask("go on", task_id=task.task_id)).task.status is TaskStatus.COMPLETED

    async def test_a_paused_one_can_be_cancelled(self) -> None:
        async with Rig(build_swarm(chatty())) as rig:
            await rig.ask("one", task_id="first")
            made = await rig.runtime.fork(rig.user, "first", at=1)
            assert (await rig.runtime.cancel(rig.user, made.task.task_id)).status is TaskStatus.CANCELLED

    async def test_those_that_run_count_as_tasks_that_begin(self) -> None:
        async with Rig(build_swarm(chatty())) as rig:
            await rig.ask("one", task_id="first")
            await rig.workers.stop()
            rig.runtime.caller_limits = CallerLimits(running_tasks=1)
            await rig.runtime.fork(rig.user, "first", at=1, run=True)
            with pytest.raises(TooManyTasks):
                await rig.runtime.fork(rig.user, "first", at=1, run=True)
            await rig.runtime.fork(rig.user, "first", at=1)
            assert len((await rig.store.list_tasks(str(rig.user))).tasks) == 3

    async def test_actions_run_wait_for_approval_or_are_refused(self) -> None:
        ran: list[str] = []

        def action(name: str, **options: Any) -> ActionCore:
            async def run(arguments: dict[str, Any]) -> str:
                ran.append(name)
                return f"{name} done"

            return ActionCore(name, run, **options)

        def spend(view: View) -> Any:
            return [complete(" | ".join(view.results))] if view.results else [call("look"), call("pay")]

        actions = {"look": action("look", read_only=True), "pay": action("pay", idempotent=True)}
        async with Rig(build_swarm({"boss": spend}, actions=actions)) as rig:
            await rig.ask("buy it", task_id="first")
            ran.clear()
            asks = (await rig.runtime.fork(rig.user, "first", at=1, actions=ForkActions.ASK)).task
            again = (await rig.runtime.fork(rig.user, asks.task_id)).task
            refuses = (await rig.runtime.fork(rig.user, asks.task_id, actions=ForkActions.REFUSE)).task
            runs = (await rig.runtime.fork(rig.user, refuses.task_id, actions=ForkActions.RUN)).task

            for task in (asks, again):
                paused = await rig.ask("go on", task_id=task.task_id)
                assert paused.task.status is TaskStatus.PAUSED
                assert [each.name for each in paused.task.generation.waiting_calls] == ["pay"]
            assert ran == ["look", "look"]
            decided = await rig.ask("", task_id=again.task_id, approvals=(GivenApproval(decision="approve"),))
            assert decided.task.actions is ForkActions.ASK
            assert ran == ["look", "look", "pay"]
            refused = await rig.ask("go on", task_id=refuses.task_id)
            assert "only read-only actions run" in refused.answer
            assert ran[3:] == ["look"]
            assert (await rig.ask("go on", task_id=runs.task_id)).task.status is TaskStatus.COMPLETED
            assert ran[4:] == ["look", "pay"]
            [event] = await rig.store.read_events(asks.key, limit=1)
            assert event.extra.as_json()["actions"] == "ask"
            assert event.text.endswith("; actions that are not read-only wait for approval")

    async def test_tasks_of_others_are_not_there(self) -> None:
        async with Rig(build_swarm(chatty())) as rig:
            await rig.ask("one", task_id="first")
            bob = Principal(role="user", id="bob", swarm=NAME)
            with pytest.raises(TaskNotFound):
                await rig.runtime.fork(bob, "first")


async def no_action(_arguments: dict[str, Any]) -> str:
    raise AssertionError("a breakpoint tool is run by nobody")
