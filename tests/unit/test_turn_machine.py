"""`admit` and `settle` against everything that agents and people may do, in any order, with many turns open at once.

The machine keeps what a store would keep and checks after every change what must hold of every change. At the
end it lets the agents do as little as they can: even then the task must come to an end by itself.
"""

import json
from collections import Counter, defaultdict
from dataclasses import asdict
from functools import reduce
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from support.plugins.tiers import sized

from mail.core.decisions.copies import hand_over
from mail.core.decisions.runs import Run
from mail.core.decisions.runs import after as run_after
from mail.core.decisions.submit import Submission, admit
from mail.core.decisions.turn import AgentFailure, TurnOutput, expire, find_used_up, on_limit_reached, settle
from mail.core.protocol.address import Principal, parse_agent_address
from mail.core.protocol.mail_tools import MAIL_TOOLS
from mail.core.protocol.message import MAILMessage
from mail.core.protocol.tool_schemas import ToolFormat
from mail.core.task.change import InboxEntry, TaskChange, Turn
from mail.core.task.context import UNKNOWN, Cut
from mail.core.task.draft import Draft
from mail.core.task.events import TERMINAL, EventKind
from mail.core.task.leases import Lease
from mail.core.task.limits import OPEN_REQUESTS
from mail.core.task.mailboxes import agent_of
from mail.core.task.stored import read_task, write_task
from mail.core.task.swarm import ActionCore, SwarmCore
from mail.core.task.task import LIFECYCLE, NO_MAIL, Task, TaskStatus
from mail.core.task.turn_state import Checkpoint, Receipt
from mail.errors import BadRequest, QuestionOpen, TaskNotFound
from mail.testing.agents import Call, build_agent, build_swarm, call, output
from mail.testing.clock import FakeClock

ANN = Principal(role="user", id="ann", swarm="example")
UNANSWERED = {"web_search_call", "text_output"}
"""The tools that get no result of ours."""
STOPPED = (TaskStatus.COMPLETED, TaskStatus.FAILED)


async def never_called(args: dict[str, Any]) -> str:
    raise AssertionError("these machines call nobody")


def quiet(view: Any) -> list[Call]:
    raise AssertionError("these machines call nobody")


SWARM: SwarmCore = build_swarm(
    {
        "chief": build_agent(quiet, targets=["deputy", "worker", "seeker"], actions=["act"], supervises=True),
        "deputy": build_agent(quiet, targets=["chief", "worker@example"], supervises=True),
        "worker": build_agent(
            quiet,
            targets=["chief", "seeker"],
            actions=["act"],
            exclude_tools=frozenset({"help"}),
            enable_entrypoint=True,
        ),
        "seeker": build_agent(quiet, targets=["worker", "seeker"], actions=["act"], copies=2),
        "loner": build_agent(quiet),
    },
    actions={"act": ActionCore("act", never_called)},
    breakpoint_tools=frozenset({"approve"}),
    task_message_limit=6,
)

reachable = st.sampled_from(["chief", "deputy", "worker", "seeker", "seeker"])
anything = st.sampled_from(
    [*SWARM.agents, "ann", "user", "all", "nobody", "chief@example", "agent@other", ""]
)
names = st.one_of(reachable, reachable, reachable, anything)
short = st.text(max_size=6)
letter = st.fixed_dictionaries({"target": names, "subject": short, "body": short})
arguments: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "send_request": letter,
    "send_response": letter,
    "send_interrupt": letter,
    "send_broadcast": st.fixed_dictionaries({"subject": short, "body": short}),
    "send_interswarm_broadcast": st.fixed_dictionaries({"subject": short, "body": short}),
    "discover_swarms": st.just({"discovery_urls": ["http://localhost"]}),
    "acknowledge_broadcast": st.fixed_dictionaries({}, optional={"note": short}),
    "ignore_broadcast": st.fixed_dictionaries({}, optional={"reason": short}),
    "await_message": st.fixed_dictionaries({}, optional={"reason": short}),
    "help": st.fixed_dictionaries({"get_summary": st.booleans(), "get_identity": st.booleans()}),
    "remind_me": st.fixed_dictionaries({"note": short}, optional={"in": st.integers(0, 9), "cancel": short}),
    "read_more": st.fixed_dictionaries({"ref": short, "offset": st.integers(0, 9)}),
    "task_complete": st.fixed_dictionaries({"finish_message": short}),
    "act": st.just({"n": 1}),
    "approve": st.fixed_dictionaries({"what": short}),
    "web_search_call": st.just({}),
    "text_output": st.fixed_dictionaries({"content": short}),
    "no_such_tool": st.just({"a": 1}),
}
assert arguments.keys() >= MAIL_TOOLS.keys()

FREQUENT = [
    "send_request",
    "send_request",
    "send_response",
    "act",
    "await_message",
    "task_complete",
    "approve",
]


def calls_to(tools: list[str]) -> st.SearchStrategy[Call]:
    return st.sampled_from(tools).flatmap(lambda tool: arguments[tool].map(lambda args: Call(tool, args)))


frequent = calls_to(FREQUENT)
nonsense = st.builds(Call, st.sampled_from(list(arguments)), st.just({"target": 5, "finish_message": None}))
scripts = st.lists(
    st.one_of(frequent, frequent, frequent, calls_to(list(arguments)), nonsense), min_size=1, max_size=4
) | st.just([])
receipts = st.builds(
    Receipt, state=st.sampled_from([Receipt.State.DONE, Receipt.State.FAILED]), content=short
)
formats: st.SearchStrategy[ToolFormat] = st.sampled_from(["completions", "responses"])

submissions = st.builds(
    Submission,
    body=st.sampled_from(["", "hello", "hello", "hello"]),
    msg_type=st.sampled_from(["request", "response", "broadcast", "interrupt"]),
    entrypoint=st.sampled_from([None, None, None, "chief", "deputy", "worker", "nobody"]),
    task_id=st.just("t"),
    resume_from=st.sampled_from(
        [None, None, "user_response", "breakpoint_tool_call", "breakpoint_tool_call"]
    ),
    drop_question=st.booleans(),
    steps=st.sampled_from([None, None, 1, 3, 20]),
    timeout=st.sampled_from([None] * 9 + [5.0]),
    breakpoint_tool_call_result=st.sampled_from([None, "plain", {"content": "one"}, "all"]),
)


class TaskMachine(RuleBasedStateMachine):
    """One task, and the turns that are being run on it."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.task: Task | None = None
        self.run: Run | None = None
        self.inbox: list[InboxEntry] = []
        self.delivered: set[tuple[str, int]] = set()
        self.leased: dict[str, Turn] = {}
        self.unread: set[tuple[str, int]] = set()
        self.unheard = False
        self.responses: dict[int, MAILMessage] = {}
        self.events: list[Any] = []
        self.asked: dict[str, Counter[str]] = defaultdict(Counter)
        self.outputs = 0

    # ------------------------------------------------------------------------------------ what may happen

    @rule(submission=submissions)
    def submit(self, submission: Submission) -> None:
        if submission.breakpoint_tool_call_result == "all" and self.task and self.task.generation.breakpoint:
            results = [
                {"call_id": each.call_id, "content": "yes"} for each in self.task.generation.breakpoint.calls
            ]
            submission = submission.evolve(breakpoint_tool_call_result=results)
        try:
            change = admit(self.task, SWARM, ANN, submission, self.clock)
        except (BadRequest, QuestionOpen, TaskNotFound):
            return
        assert change.turn is None
        self.apply(change)

    def ready(self) -> list[str]:
        """The mailboxes that a worker could open."""
        if self.task is None or not self.task.is_running:
            return []
        return sorted({entry.mailbox for entry in self.inbox} - self.leased.keys() - {*self.task.queued})

    @precondition(ready)
    @rule(data=st.data())
    def open(self, data: st.DataObject) -> None:
        self.open_head(data.draw(st.sampled_from(self.ready())))

    @precondition(lambda self: self.leased)
    @rule(script=scripts, tool_format=formats, data=st.data())
    def finish(self, script: list[Call], tool_format: ToolFormat, data: st.DataObject) -> None:
        self.play(self.leased[data.draw(st.sampled_from(sorted(self.leased)))], script, tool_format, data)

    @precondition(ready)
    @rule(script=scripts, tool_format=formats, data=st.data())
    def open_and_finish(self, script: list[Call], tool_format: ToolFormat, data: st.DataObject) -> None:
        turn = self.open_head(data.draw(st.sampled_from(self.ready())))
        if turn is not None:
            self.play(turn, script, tool_format, data)

    @precondition(lambda self: self.leased)
    @rule(data=st.data())
    def fail(self, data: st.DataObject) -> None:
        turn = self.leased[data.draw(st.sampled_from(sorted(self.leased)))]
        self.settle(turn, AgentFailure("no model"), [])

    @precondition(lambda self: self.leased)
    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        """The worker dies; the lease runs out, and the mail is still there."""
        del self.leased[data.draw(st.sampled_from(sorted(self.leased)))]

    @rule(seconds=st.sampled_from([1, 5]))
    def let_time_pass(self, seconds: float) -> None:
        self.clock.advance(seconds)
        if self.task is not None:
            self.apply_if(expire(Draft(self.task, SWARM, self.clock), None))

    # ----------------------------------------------------------------------------- what the runtime does

    def open_head(self, mailbox: str) -> Turn | None:
        """Open the next turn of a mailbox as `Runtime.run_turn` does; None where there is none to run."""
        task = self.task
        assert task is not None
        mine = [entry for entry in self.inbox if entry.mailbox == mailbox]
        if not mine or mailbox in self.leased or not task.is_running:
            return None
        head = min(mine, key=lambda entry: (entry.tier, entry.seq))
        assert task.head_tier(mailbox) is head.tier
        turn = Turn(task, head, Lease("lease", 0), [], None)
        self.leased[mailbox] = turn
        if SWARM.hands_over(mailbox, task.entrypoint):
            change = hand_over(Draft(task, SWARM, self.clock), turn)
            assert (change is None) == (mailbox in task.queued)
            self.apply_if(change)
            self.leased.pop(mailbox, None)
            return None
        if task.is_overdue(self.clock.now().timestamp()):
            self.apply_if(expire(Draft(task, SWARM, self.clock), turn))
            self.leased.pop(mailbox, None)
            return None
        used_up = find_used_up(task, SWARM, turn, self.clock.now().timestamp())
        if used_up is not None:
            if task.generation.limit_notice is None:
                self.apply_if(on_limit_reached(Draft(task, SWARM, self.clock), turn, used_up, self.events))
            self.leased.pop(mailbox, None)
            return None
        return turn

    def calls_of(self, script: list[Call], tool_format: ToolFormat) -> list[Any]:
        self.outputs += 1
        return output(script, tool_format=tool_format, prefix=f"call{self.outputs}")

    def play(self, turn: Turn, script: list[Call], tool_format: ToolFormat, data: st.DataObject) -> None:
        """End a turn with the calls of a script, its actions run."""
        calls = self.calls_of(script, tool_format)
        agent = SWARM.agent(turn.mailbox)
        made = tuple(
            data.draw(receipts) if SWARM.runs_as_action(agent, each.tool_name) else None for each in calls
        )
        self.settle(turn, Checkpoint(text=None, calls=tuple(calls), receipts=made), script)

    def settle(self, turn: Turn, result: TurnOutput, script: list[Call]) -> None:
        before = self.task
        assert before is not None
        change = settle(Draft(before, SWARM, self.clock), turn, result)
        assert change.consumed == turn.entry
        if change.task.generation.number == before.generation.number:
            assert change.task.generation.turns == before.generation.turns + 1
            assert change.task.generation.steps - before.generation.steps == (
                turn.entry.message.sender.address_type != "system"
            )
        if before.status in STOPPED:
            assert change.deliveries == ()
            assert change.response is None
            assert change.task.status is before.status
        for entry in change.deliveries:
            self.check_sender(entry, turn, script)
        self.apply(change)

    def apply_if(self, change: TaskChange | None) -> None:
        if change is not None:
            self.apply(change)

    # ------------------------------------------------------------------------- what must hold of a change

    def apply(self, change: TaskChange) -> None:
        before, after = self.task, change.task
        assert change.expected_version == (before.version if before else 0)
        assert after.version == change.expected_version + 1
        self.check_status(before, change)
        self.check_events(before.seq if before else 0, change)
        self.check_questions(before, change)
        if change.consumed is not None:
            self.inbox.remove(change.consumed)
        for entry in change.deliveries:
            assert (entry.mailbox, entry.seq) not in self.delivered
            assert SWARM.has(entry.mailbox)
            self.check_copy(before, change, entry)
            self.delivered.add((entry.mailbox, entry.seq))
            self.inbox.append(entry)
        if change.turn is not None:
            assert self.leased.pop(change.turn.mailbox) is change.turn
        self.check_history(before, change)
        self.task = after
        self.check_task(after)

    def check_copy(self, before: Task | None, change: TaskChange, entry: InboxEntry) -> None:
        """A copy begins a request when it has nothing else to do, and reads nothing of what it did before."""
        copy, after = entry.mailbox, change.task
        is_asked = entry.message.msg_type == "request" and not entry.message.sender.is_person
        if before is None or agent_of(copy) == copy or not is_asked:  # a person may write beside results
            return
        assert copy not in self.leased
        assert copy not in before.pending
        kept = {each.request_id for each in after.requests} - {entry.message.message.own_id}
        assert not any(
            copy in (each.sender, each.recipient) for each in before.requests if each.request_id in kept
        )
        portions = after.histories.get(copy, 0)
        assert after.contexts.get(copy, UNKNOWN).cut == Cut(begin=portions + 1)

    def check_status(self, before: Task | None, change: TaskChange) -> None:
        after = change.task
        if before is None:
            assert after.status is TaskStatus.RUNNING
            assert after.generation.number == 1
        elif after.status is not before.status:
            assert after.status in {end for (start, _), end in LIFECYCLE.items() if start is before.status}
        went_on = change.response is not None and after.is_running  # with what a person has sent meanwhile
        resumed = went_on or (before is not None and not before.is_running and after.is_running)
        assert after.generation.number == (before.generation.number if before else 1) + resumed
        if went_on:
            assert after.unread_questions
            assert all(question.seq < change.events[-1].seq for question in after.unread_questions)
        if resumed:
            assert (
                after.generation.steps,
                after.generation.turns,
                after.generation.nudges,
                after.generation.limit_notice,
            ) == (0, 0, 0, None)
            assert after.generation.faults == {}
        stopped = (before is None or before.is_running) and not after.is_running
        assert (change.response is not None) == (stopped or went_on)
        if change.response is not None:
            assert change.ended == after.generation.number - went_on
            assert change.ended not in self.responses
            self.responses[change.ended] = change.response
        assert (after.generation.breakpoint is not None) == (after.status is TaskStatus.PAUSED)
        assert self.responses.keys() == set(range(1, after.generation.number + (not after.is_running)))

    def check_questions(self, before: Task | None, change: TaskChange) -> None:
        """Each writer gets an answer that was given after their message was read."""
        if change.consumed is not None:
            place = (change.consumed.mailbox, change.consumed.seq)
            self.unheard = self.unheard and place not in self.unread
            self.unread.discard(place)
        if change.response is not None and change.task.status is not TaskStatus.PAUSED:
            end = change.events[-1]
            first = end.seq if self.unheard else min((seq for _, seq in self.unread), default=end.seq)
            assert all(end.answers(seq) == (seq < first) for seq in range(1, end.seq))
        if before is not None and change.task.generation.number != before.generation.number:
            self.unheard = change.response is not None
        others = before is not None and (before.is_running or before.pending)
        if change.turn is None and others and change.deliveries:
            (entry,) = change.deliveries[:1]
            if entry.message.msg_type != "broadcast":
                self.unread.add((entry.mailbox, entry.seq))
        assert {(each.mailbox, each.seq) for each in change.task.unread_questions} == self.unread

    def check_events(self, seq: int, change: TaskChange) -> None:
        events = change.events
        assert events
        assert [event.seq for event in events] == list(range(seq + 1, seq + 1 + len(events)))
        assert change.task.seq == events[-1].seq
        self.run = reduce(run_after, events, self.run)
        assert self.run is not None
        generation = change.task.generation
        assert (generation.run, generation.run_began) == (self.run.number, self.run.first - 1)
        terminal = [event for event in events if event.kind in TERMINAL]
        assert len(terminal) == (change.response is not None)
        if change.response is not None:
            assert events[-1] == terminal[0]
            assert events[-1].text == change.response.message.body
        messages = {event.seq: event.message for event in events if event.kind is EventKind.NEW_MESSAGE}
        announced = {entry.seq: entry.message for entry in change.deliveries if entry.seq > seq}
        if (
            change.response is not None
            and events[-1].kind is EventKind.TASK_COMPLETE
            and len(messages) > len(announced)
        ):
            announced[events[-2].seq] = change.response
        assert messages == announced
        self.events += events
        for event in events:
            json.dumps(event.data("t"))

    def check_history(self, before: Task | None, change: TaskChange) -> None:
        known = dict(before.histories) if before else {}
        for record in change.histories:
            known[record.agent] = known.get(record.agent, 0) + 1
            assert record.n == known[record.agent]
            for entry in record.entries:
                self.count_calls(record.agent, entry)
        assert change.task.histories == known
        waiting = change.task.generation.breakpoint
        for agent, asked in self.asked.items():
            open_calls = {call_id for call_id, count in asked.items() if count}
            paused = {each.call_id for each in waiting.calls} if waiting and waiting.agent == agent else set()
            assert open_calls == paused, "a tool call has no result, or two"

    def count_calls(self, agent: str, entry: dict[str, Any]) -> None:
        made = [(item["id"], item["function"]["name"]) for item in entry.get("tool_calls") or ()]
        if entry.get("type") == "function_call":
            made.append((entry["call_id"], entry["name"]))
        for call_id, name in made:
            if name not in UNANSWERED:
                self.asked[agent][call_id] += 1
        answered = entry.get("tool_call_id") or (
            entry.get("call_id") if entry.get("type") == "function_call_output" else None
        )
        if answered is not None:
            self.asked[agent][answered] -= 1

    def check_sender(self, entry: InboxEntry, turn: Turn, script: list[Call]) -> None:
        """An agent writes only as itself, and only to its targets; everything else comes from the system."""
        sender = entry.message.sender
        if sender.address_type == "system":
            assert sender.address == SWARM.name
            return
        assert (sender.address_type, sender.address) == ("agent", agent_of(turn.mailbox))
        if entry.message.msg_type == "broadcast":
            assert agent_of(entry.mailbox) != agent_of(turn.mailbox)
            return
        targets = {parse_agent_address(target)[0] for target in SWARM.agent(turn.mailbox).comm_targets}
        assert agent_of(entry.mailbox) in targets
        assert entry.mailbox != turn.mailbox
        assert any(each.tool.startswith("send_") for each in script)

    def check_task(self, task: Task) -> None:
        counts: dict[str, list[int]] = {}
        for entry in self.inbox:
            counts.setdefault(entry.mailbox, list(NO_MAIL))[entry.tier - 1] += 1
        assert task.pending == {mailbox: tuple(tiers) for mailbox, tiers in counts.items()}
        if task.is_running:
            assert task.ready() or task.waits.timers, "a running task without mail would hang"
            assert task.queued == () or task.pending.keys() >= {*task.queued}
            if task.generation.limit_notice is not None:
                closing_agent = SWARM.closing_agent(task.entrypoint)
                assert SWARM.agents[closing_agent].can_complete_tasks
                assert any(
                    (entry.mailbox, entry.seq) == (closing_agent, task.generation.limit_notice)
                    for entry in self.inbox
                ), "nobody would end this task"
        text = write_task(task)
        assert read_task(text) == task
        assert len(task.requests) <= OPEN_REQUESTS
        variable = len(json.dumps([asdict(each) for each in task.requests])) + len(
            json.dumps(asdict(task.generation.breakpoint)) if task.generation.breakpoint else ""
        )
        assert len(text) - variable < 1_500
        assert task.owner == str(ANN)
        assert task.owner in task.contributors

    # --------------------------------------------------------------------------------------- and the end

    def teardown(self) -> None:
        """Agents that do nothing useful can't keep a task from its end, and can't make it hang."""
        if self.task is None:
            return
        self.leased.clear()
        for _ in range(3 * self.task.limits.turns + 100):
            if not self.task.is_running or (self.task.waits.timers and not self.task.ready()):
                return  # it has ended, or a reminder wakes it later
            version = self.task.version
            for mailbox in (*SWARM.agents, *SWARM.copies["seeker"]):
                if self.task.is_running and (turn := self.open_head(mailbox)) is not None:
                    script = [call("web_search_call")]
                    made = self.calls_of(script, "completions")
                    self.settle(turn, Checkpoint(text=None, calls=tuple(made), receipts=(None,)), script)
            assert self.task.version > version, f"the task hangs: {self.task!r}"
        raise AssertionError(f"the task does not end: {self.task!r}")


TaskMachine.TestCase.settings = settings(
    max_examples=sized(fast=20, full=20, soak=5000), stateful_step_count=60
)
TestTask = TaskMachine.TestCase
