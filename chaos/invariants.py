"""The invariants of DESIGN.md, checked on what is stored of a task, on the commits that made it, and on what was seen
of it.

Numbers are those of DESIGN.md; `end` is for what has to be so when everything has come to its end. Every function takes
what there is to know (`Found`) and yields what is wrong.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from mail.core.protocol.message import MAILMessage
from mail.core.protocol.xml import build_mail_xml
from mail.core.task.change import InboxEntry, TaskChange, Turn
from mail.core.task.context import is_carried
from mail.core.task.events import TERMINAL, Event, EventKind
from mail.core.task.extras import (
    CallExtra,
    DeadLetterExtra,
    DiscardExtra,
    ForkExtra,
    HistoryExtra,
    RedriveExtra,
)
from mail.core.task.leases import Lease
from mail.core.task.limits import DEAD_LETTERS
from mail.core.task.mailboxes import hook_of, peer_of
from mail.core.task.ports import Store, read_history
from mail.core.task.task import NO_MAIL, Task, TaskKey, TaskStatus

RUN_BY_PROVIDER = {"web_search_call"}
"""The tools that get no result of ours."""


class Violation(NamedTuple):
    """What must not be."""

    invariant: str
    task_id: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant:>3}  {self.task_id}: {self.text}"


@dataclass
class Attempt:
    """A change that somebody wanted to commit; `is_acknowledged` if they were told that it is."""

    change: TaskChange
    is_acknowledged: bool = False


class Run(NamedTuple):
    """An action that took effect: of which call."""

    call_id: str
    action: str


class Arrival(NamedTuple):
    """An event that a webhook has brought: its place, by what it is known, and its kind."""

    seq: int
    event_id: str
    kind: str


@dataclass(frozen=True)
class Found:
    """All there is to know of a task.

    Attributes:
        leases: those that are held.
        ready: mailboxes with mail that is to be worked on.
        attempts: the changes that were sent to the store, in order.
        seen: what each watcher was shown, over all of its connections, in order.
        ran: the actions that took effect.
        idempotent: the names of those that may do so twice.
        cancelled: whether somebody asked for that.
        got: by webhook, what has arrived there, in order.
        abandoned: whether nobody knows of it who could go on with it: the answer that named it was lost.
        inherited: the histories that it began with, as the task has them of which it is a fork.
    """

    task: Task
    inbox: Sequence[InboxEntry]
    events: Sequence[Event]
    histories: Mapping[str, Sequence[Mapping[str, object]]]
    responses: Sequence[MAILMessage | None]
    leases: Mapping[str, Lease] = field(default_factory=dict)
    attempts: Sequence[Attempt] = ()
    seen: Sequence[Sequence[Event]] = ()
    ran: Sequence[Run] = ()
    idempotent: frozenset[str] = frozenset()
    cancelled: bool = False
    got: Mapping[str, Sequence[Arrival]] = field(default_factory=dict)
    abandoned: bool = False
    inherited: Mapping[str, Sequence[Mapping[str, object]]] = field(default_factory=dict)

    def wrong(self, invariant: str | int, text: str) -> Violation:
        """That the task breaks an invariant."""
        return Violation(str(invariant), self.task.task_id, text)


async def read(store: Store, key: TaskKey, *, now: float) -> tuple[Task, dict[str, object]]:
    """A task, and what else a store has of it, as the fields of `Found`."""
    task = await store.load(key)
    assert task is not None, key
    events = await store.read_events(key)
    return task, {
        "inbox": await store.read_inbox(key),
        "events": events,
        "histories": {name: await read_history(store, key, name) for name in task.histories},
        "responses": [await store.read_response(key, n) for n in range(1, task.generation.number + 1)],
        "leases": await store.read_leases(key, now=now),
        "inherited": await _inherited(store, key, events),
    }


async def _inherited(store: Store, key: TaskKey, events: Sequence[Event]) -> dict[str, object]:
    """Read the histories that a fork has inherited, from the task that it was made of."""
    if not events or not isinstance(events[0].extra, ForkExtra):
        return {}
    first = TaskKey(key.instance, events[0].extra.forked_from)
    extras = [event.extra for event in events if isinstance(event.extra, HistoryExtra)]
    return {each.agent: await read_history(store, first, each.agent, upto=each.portions) for each in extras}


def check(found: Found) -> list[Violation]:
    """Return all that is wrong with a task when it has come to its end."""
    return [*at_rest(found), *watched(found), *ended(found)]


def at_rest(found: Found) -> list[Violation]:
    """Return all that is wrong with a task while no process works on it."""
    commits, wrong = committed(found)
    rest = (gapless, stored_as_counted, awake, endings, acted, isolated)
    return [
        *wrong,
        *(violation for rule in rest for violation in rule(found)),
        *mailboxes(found, commits),
        *dead_letters(found, commits),
        *webhooks(found, commits),
        *turns(found, commits),
        *histories(found, commits),
    ]


# ------------------------------------------------------------------------------------------- the timeline


def gapless(found: Found) -> Iterator[Violation]:
    """3. Events are numbered from 1, without a gap."""
    seqs = [event.seq for event in found.events]
    if seqs != list(range(1, found.task.seq + 1)):
        yield found.wrong(3, f"the events are {_ranges(seqs)}, and the task is at {found.task.seq}")


def watched(found: Found) -> Iterator[Violation]:
    """3. A watcher has seen all that happened, each event once and in order, however often it had to reconnect."""
    happened = [_identity(event) for event in found.events]
    for seen in found.seen:
        shown = [_identity(event) for event in seen]
        if shown != happened:
            seqs = [event.seq for event in seen]
            yield found.wrong(3, f"a watcher was shown {_ranges(seqs)} of {len(happened)} events, or others")


def committed(found: Found) -> tuple[list[TaskChange], list[Violation]]:
    """The changes that made the task, in order; and what is wrong with them.

    2. A commit is there as a whole: what is stored is what one change after the other has put there. One that was
    acknowledged is not lost.
    """
    wrong: list[Violation] = []
    chain: list[Attempt] = []
    versions: defaultdict[int, list[Attempt]] = defaultdict(list)
    for attempt in found.attempts:
        versions[attempt.change.task.version].append(attempt)
    stored = [_identity(event) for event in found.events]
    seq = 0
    while found.attempts and len(chain) < found.task.version:
        fitting = [
            attempt
            for attempt in versions[len(chain) + 1]
            if [_identity(event) for event in attempt.change.events] == stored[seq : attempt.change.task.seq]
        ]
        if not fitting:
            wrong.append(
                found.wrong(
                    2, f"no change fits version {len(chain) + 1}, from event {seq + 1} on, as a whole"
                )
            )
            break
        chain.append(max(fitting, key=lambda attempt: attempt.is_acknowledged))
        seq = chain[-1].change.task.seq
    if chain and len(chain) == found.task.version and seq != len(stored):
        wrong.append(found.wrong(2, f"the changes have {seq} events, and {len(stored)} are stored"))
    kept = set(map(id, chain))
    for attempt in found.attempts:
        if attempt.is_acknowledged and id(attempt) not in kept:
            change = attempt.change
            text = f"version {change.task.version} (events to {change.task.seq}) was acknowledged, and is not there"
            wrong.append(found.wrong(2, text))
    return [attempt.change for attempt in chain], wrong


# ---------------------------------------------------------------------------------------------- mailboxes


def stored_as_counted(found: Found) -> Iterator[Violation]:
    """1. What the task says of its mailboxes is what is in them."""
    counts: dict[str, list[int]] = {}
    for entry in found.inbox:
        counts.setdefault(entry.mailbox, list(NO_MAIL))[entry.tier - 1] += 1
    held = {mailbox: tuple(tiers) for mailbox, tiers in counts.items()}
    if held != found.task.pending:
        yield found.wrong(1, f"the mailboxes hold {held}, and {found.task.pending} is counted")


def mailboxes(found: Found, commits: Iterable[TaskChange]) -> Iterator[Violation]:
    """1. Every message is read once from each mailbox that it was put into, or still waits there.

    4. And none before one that was there when the turn was opened, and comes first by (tier, seq).
    """
    waiting: dict[tuple[str, int], InboxEntry] = {}
    states: list[frozenset[tuple[str, int, int]]] = [frozenset()]
    announced: set[str] = set()
    for change in commits:
        for entry in _consumed(change):
            if waiting.pop((entry.mailbox, entry.seq), None) is None:
                yield found.wrong(
                    1, f"{entry.mailbox} has read message {entry.seq} which was not, or no more, there"
                )
        if change.turn is not None and change.consumed is not None and change.turn.task.version < len(states):
            place = (change.consumed.tier, change.consumed.seq)
            before = [
                (tier, seq)
                for mailbox, tier, seq in states[change.turn.task.version]
                if mailbox == change.turn.mailbox and (tier, seq) < place
            ]
            if before:
                yield found.wrong(4, f"{change.turn.mailbox} has read {place} before {min(before)}")
        announced |= {event.message.id for event in change.events if event.message is not None}
        for entry in change.deliveries:
            if (entry.mailbox, entry.seq) in waiting:
                yield found.wrong(1, f"message {entry.seq} was put into {entry.mailbox} twice")
            if entry.message.id not in announced:
                yield found.wrong(1, f"message {entry.seq} to {entry.mailbox} was never announced")
            waiting[entry.mailbox, entry.seq] = entry
        put = {entry.seq for entry in change.deliveries}
        for event in change.events:
            if _is_for_agents(event, found) and event.seq not in put:
                yield found.wrong(1, f"message {event.seq} was announced, and put into no mailbox")
        states.append(frozenset((entry.mailbox, entry.tier, entry.seq) for entry in waiting.values()))
    if len(states) == 1:
        return
    left = sorted(waiting)
    there = sorted((entry.mailbox, entry.seq) for entry in found.inbox)
    if left != there:
        lost, more = Counter(left) - Counter(there), Counter(there) - Counter(left)
        yield found.wrong(1, f"mail is lost: {sorted(lost)}; mail is there that was read: {sorted(more)}")


def dead_letters(found: Found, commits: Iterable[TaskChange]) -> Iterator[Violation]:
    """1. What was not processed is a dead letter, once, until somebody redrives or discards it."""
    left: list[int] = []
    for change in commits:
        read = {(entry.mailbox, entry.seq) for entry in _consumed(change)}
        buried = {(letter.mailbox, letter.message_seq) for letter in change.dead_letters}
        for mailbox, seq in sorted(read - buried):
            if any(
                event.kind is EventKind.AGENT_ERROR and " failed: " in event.text for event in change.events
            ):
                yield found.wrong(1, f"{mailbox} has failed over message {seq}, which is no dead letter")
        for mailbox, missing in buried - read:
            if missing is not None and hook_of(mailbox) is None:
                yield found.wrong(1, f"message {missing} is a dead letter, and has not left {mailbox}")
        for event in change.events:
            gone: Sequence[int] = ()
            match event.extra:
                case DeadLetterExtra():
                    left.append(event.seq)
                case RedriveExtra(dead_letter=seq):
                    gone = (seq,)
                case DiscardExtra(dead_letters=seqs):
                    gone = seqs
            for seq in gone:
                if seq not in left:
                    yield found.wrong(1, f"dead letter {seq} was dealt with twice, or never was one")
                else:
                    left.remove(seq)
        if change.task.dead_letters != tuple(left[-DEAD_LETTERS:]):
            yield found.wrong(1, f"the dead letters are {left}, and {change.task.dead_letters} are listed")


def webhooks(found: Found, commits: Iterable[TaskChange]) -> Iterator[Violation]:
    """1. Every event that a webhook wants has arrived at least once, or is a dead letter.

    4. And first arrived in its order, those aside that were dead letters for a time.
    """
    since: dict[str, int] = {}
    for change in commits:
        for hook_id in change.task.webhooks:
            since.setdefault(hook_id, change.task.seq - len(change.events))
    redriven = {event.extra.dead_letter for event in found.events if isinstance(event.extra, RedriveExtra)}
    for hook_id, hook in found.task.webhooks.items():
        wanted = {
            event.seq: event.kind
            for event in found.events
            if event.seq > since.get(hook_id, 0) and hook.wants(event)
        }
        buried: set[int] = set()
        covered: set[int] = set()
        for event in found.events:
            letter = event.extra
            if isinstance(letter, DeadLetterExtra) and hook_of(letter.mailbox) == hook_id:
                assert letter.message_seq is not None
                assert letter.upto is not None
                these = range(letter.message_seq, letter.upto + 1)
                buried.update(these)
                if event.seq not in redriven:
                    covered.update(these)
        arrivals = found.got.get(hook_id, ())
        if missing := wanted.keys() - covered - {arrival.seq for arrival in arrivals}:
            yield found.wrong(1, f"events {_ranges(sorted(missing))} have not reached webhook {hook.shown}")
        if stray := [each for each in arrivals if wanted.get(each.seq) != each.kind]:
            yield found.wrong(1, f"webhook {hook.shown} was sent {stray[0]}")
        if len({(each.seq, each.event_id) for each in arrivals}) != len({each.seq for each in arrivals}):
            yield found.wrong(1, f"webhook {hook.shown} was sent one event under several ids")
        firsts = [seq for seq in dict.fromkeys(arrival.seq for arrival in arrivals) if seq not in buried]
        if firsts != sorted(firsts):
            yield found.wrong(4, f"webhook {hook.shown} was sent events in the order {firsts}")


# -------------------------------------------------------------------------------------------------- turns


def turns(found: Found, commits: Sequence[TaskChange]) -> Iterator[Violation]:
    """2. What a turn has read, said and caused is there together, and a reader's history holds it once."""
    joined: defaultdict[str, list[Mapping[str, object]]] = defaultdict(list)
    joined |= {agent: [*history] for agent, history in found.inherited.items()}
    for change in commits:
        handed_over = {entry.seq for entry in change.deliveries}
        prompts = [
            entry.prompt
            for entry in _consumed(change)
            if peer_of(entry.mailbox) is None and entry.seq not in handed_over
        ]
        if isinstance(change.turn, Turn) and not change.turn.prompts:  # resumed at a breakpoint
            prompts = []
        for record in change.histories:
            if prompts != [entry for entry in record.entries if entry in prompts]:
                yield found.wrong(2, f"the {record.n}. record of {record.agent} is not of what was read")
            joined[record.agent] += record.entries
        if (
            not change.histories
            and prompts
            and not any(event.kind is EventKind.BROADCAST_IGNORED for event in change.events)
        ):
            yield found.wrong(
                2, f"a turn up to event {change.task.seq} has read something and left no history"
            )
    for agent, history in found.histories.items():
        if commits and list(history) != joined[agent]:
            yield found.wrong(2, f"the history of {agent} is not what its turns have added to it")


def histories(found: Found, commits: Sequence[TaskChange]) -> Iterator[Violation]:
    """2. Nobody has read the same message twice; every call has one result, and no result is of a call that was not
    made.

    A fork begins with what its agents have read elsewhere.
    """
    sent = Counter(
        build_mail_xml(event.message)["content"] for event in found.events if event.message is not None
    )
    paused_at = found.task.generation.breakpoint
    waits = (*found.task.approved_calls, *(() if paused_at is None else (paused_at,)))
    waiting = {call.call_id for each in waits for call in each.calls}
    for agent, history in found.histories.items():
        letters = _letters(history) - _letters(found.inherited.get(agent, ()))
        results = Counter(str(result) for entry in history if (result := _result_of(entry)))
        calls = {call: tool for entry in history for call, tool in _calls_of(entry)}
        due = {call for call, tool in calls.items() if tool not in RUN_BY_PROVIDER} - waiting
        if missing := due - results.keys():
            yield found.wrong(2, f"{agent} has no results of calls {sorted(missing)}")
        if repeated := [letter for letter, times in letters.items() if times > sent[letter]]:
            yield found.wrong(2, f"{agent} has read a message more often than it was sent: {repeated[0]}")
        if repeated := [call for call, times in results.items() if times > 1]:
            yield found.wrong(2, f"{agent} has more than one result of calls {repeated}")
        if stray := results.keys() - calls.keys():
            yield found.wrong(2, f"{agent} has results of calls that it has not made: {sorted(stray)}")
    reported = Counter(
        event.extra.tool_call_id for event in found.events if isinstance(event.extra, CallExtra)
    )
    if repeated := [call for call, times in reported.items() if times > 1]:
        yield found.wrong(2, f"calls were reported more than once: {repeated}")


def acted(found: Found) -> Iterator[Violation]:
    """2. An action runs at most once for each call, unless it is declared idempotent."""
    for run, times in Counter(found.ran).items():
        if times > 1 and run.action not in found.idempotent:
            yield found.wrong(2, f"{run.action} ran {times} times for call {run.call_id}")


def awake(found: Found) -> Iterator[Violation]:
    """5. A task that runs has mail to be worked on."""
    if found.task.is_running and not found.inbox:
        yield found.wrong(5, "the task runs and has no mail")


def isolated(found: Found) -> Iterator[Violation]:
    """6. Nobody but its owner writes to a task as a person."""
    owner = found.task.owner.partition(":")[2].partition("@")[0]
    people = {
        event.message.sender.address
        for event in found.events
        if event.message is not None and event.message.sender.address_type == "user"
    }
    if not people <= {owner}:
        yield found.wrong(6, f"a task of {owner} holds words of {sorted(people)}")


# ------------------------------------------------------------------------------------------------ the end


def endings(found: Found) -> Iterator[Violation]:
    """2. Every generation that has ended has one answer, and the timeline tells it."""
    ended = found.task.generation.number - found.task.is_running
    there = [response is not None for response in found.responses]
    if there != [n < ended for n in range(found.task.generation.number)]:
        yield found.wrong(
            2, f"generation {found.task.generation.number} is {found.task.status}, and answers are {there}"
        )
    told = [event.text for event in found.events if event.kind in TERMINAL]
    answers = [response.message.body for response in found.responses if response is not None]
    if told != answers:
        yield found.wrong(2, f"the answers are {answers}, and the timeline tells {told}")
    stopped = (
        {TaskStatus.PAUSED}
        if found.task.generation.breakpoint is None
        else {*TaskStatus} - {TaskStatus.PAUSED, TaskStatus.CANCELLED}
    )
    if (
        found.task.status in stopped and not found.abandoned
    ):  # a fork of a running moment stands still like that
        yield found.wrong(
            2, f"the task is {found.task.status}, and its breakpoint is {found.task.generation.breakpoint}"
        )


def ended(found: Found) -> Iterator[Violation]:
    """5, when all has come to its end: the task is done, or failed for a reason, or cancelled because it was
    asked for.
    """
    task = found.task
    if found.leases:
        yield found.wrong(5, f"leases are still held: {sorted(found.leases)}")
    if peers := sorted(mailbox for mailbox in task.pending if peer_of(mailbox) is not None):
        yield found.wrong("end", f"mail still waits for {peers}")
    if hooks := sorted(hook.shown for hook in task.webhooks.values() if hook.is_waiting):
        yield found.wrong("end", f"events still wait for {hooks}")
    match task.status:
        case TaskStatus.RUNNING:
            waits = [request.recipient for request in task.requests]
            yield found.wrong(
                "end", f"the task still runs; mail waits for {sorted(task.pending)}, answers of {waits}"
            )
        case TaskStatus.PAUSED if not found.abandoned:
            yield found.wrong("end", "the task is still paused")
        case TaskStatus.CANCELLED if not found.cancelled:
            yield found.wrong("end", "the task is cancelled, and nobody has asked for that")
        case TaskStatus.FAILED | TaskStatus.CANCELLED:
            last = found.responses[-1] if found.responses else None
            if last is None or not last.message.body:
                yield found.wrong("end", f"the task is {task.status} for no reason")


def _is_for_agents(event: Event, found: Found) -> bool:
    """Whether somebody is to read it: not so an answer, which ends a generation, words to the owner, or a dead
    letter.
    """
    message = event.message
    if message is None or event.kind is EventKind.DEAD_LETTER:
        return False
    if any(response is not None and response.id == message.id for response in found.responses):
        return False
    return message.message.recipients[0].address_type == "agent"


def _consumed(change: TaskChange) -> tuple[InboxEntry, ...]:
    return () if change.consumed is None else (change.consumed, *change.also_read)


def _identity(event: Event) -> tuple[int, str, str, str, str]:
    message = "" if event.message is None else event.message.id
    return event.seq, str(event.kind), event.timestamp, event.text, message


def _letters(history: Sequence[Mapping[str, object]]) -> Counter[str]:
    return Counter(
        str(entry["content"]) for entry in history if entry.get("role") == "user" and not is_carried(entry)
    )


def _result_of(entry: Mapping[str, object]) -> object:
    """The id of the call whose result an entry is, in either format."""
    if entry.get("role") == "tool":
        return entry["tool_call_id"]
    return entry["call_id"] if entry.get("type") == "function_call_output" else None


def _calls_of(entry: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return the ids and tools of the calls in an entry, in either format."""
    if entry.get("type") == "function_call":
        return [(str(entry["call_id"]), str(entry["name"]))]
    calls = entry.get("tool_calls") or ()
    return [(str(call["id"]), str(call["function"]["name"])) for call in calls]  # type: ignore[attr-defined]


def _ranges(numbers: Sequence[int]) -> str:
    """`1-7, 9`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{first}-{last}" if last > first else str(first) for first, last in parts) or "none"
