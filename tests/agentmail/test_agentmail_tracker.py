"""The tracker: states of beads, acknowledgements, overdue ones, on plain messages and on MAIL."""

import sys
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from mail.agentmail import (
    AgentMailMessage,
    BeadState,
    Checkpoint,
    CheckpointReason,
    Envelope,
    MessageType,
    Parser,
    Thread,
    Tracker,
    UnknownMessage,
    envelope_of,
)
from mail.agentmail.beads import TRANSITIONS
from mail.core.protocol.address import create_agent_address
from mail.core.protocol.message import MAILBroadcast, MAILMessage, MAILPayload, MAILRequest, MAILResponse
from mail.errors import BadRequest

START = datetime(2026, 1, 31, 8, tzinfo=UTC)

BODIES = {
    "BEAD_ACCEPTED": "Accepted bead: b-1\nTitle: Auth",
    "PROGRESS": "Bead: b-1\nStep: 1\nContext usage: 40%\nFiles touched: a.py",
    "HELP_REQUEST": "Bead: b-1\nIssue Type: STUCK\n## Question\nHow?",
    "OFFERING_READY": "Bead: b-1\n- Commit: abc",
    "DONE": "Bead: b-1\n- Commit: abc",
    "FAILED": "Bead: b-1\n## Failure\nType: ERROR\nReason: none",
    "CHECKPOINT": "Bead: b-1\nReason: TIMEOUT\n- Commit: def\n- Context usage: 85%",
    "SPAWN_REQUEST": "Issue: b-1",
    "SPAWN_ACK": "Issue: b-1\nStatus: spawned\nSession: d-1",
    "HELP_RESPONSE": "Go on.",
}

_numbers = count(1)


def plain(kind: str, sender: str = "ann", **fields: Any) -> Envelope:
    fields = {"id": f"m-{next(_numbers)}", "thread_id": "b-1", "body": BODIES.get(kind, ""), **fields}
    return Envelope(subject=kind, sender=sender, **fields)


def tracked(*kinds: str) -> Tracker:
    tracker = Tracker()
    tracker.extend(plain(kind) for kind in kinds)
    return tracker


def on_mail(
    kind: str,
    sender: str = "ann",
    to: str = "crank",
    *,
    answers: str = "",
    request_id: str = "",
    minute: int = 0,
    **fields: Any,
) -> MAILMessage:
    number = next(_numbers)
    common = {
        "task_id": "t-1",
        "sender": create_agent_address(sender),
        "subject": kind,
        "body": BODIES.get(kind, ""),
    }
    recipient = create_agent_address(to)
    payload: MAILPayload
    if answers:
        payload = MAILResponse(recipient=recipient, request_id=answers, **{**common, **fields})
    else:
        payload = MAILRequest(
            recipient=recipient, request_id=request_id or f"r-{number}", **{**common, **fields}
        )
    return MAILMessage(
        id=str(UUID(int=number)),
        timestamp=(START + timedelta(minutes=minute)).isoformat(),
        msg_type="response" if answers else "request",
        message=payload,
    )


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        ("SPAWN_REQUEST", "requested"),
        ("SPAWN_REQUEST SPAWN_REQUEST SPAWN_ACK", "requested"),
        ("SPAWN_REQUEST SPAWN_ACK BEAD_ACCEPTED", "accepted"),
        ("BEAD_ACCEPTED PROGRESS", "working"),
        ("PROGRESS", "working"),
        ("PROGRESS HELP_REQUEST", "stuck"),
        ("HELP_REQUEST HELP_RESPONSE", "working"),
        ("HELP_REQUEST PROGRESS", "working"),
        ("BEAD_ACCEPTED HELP_RESPONSE", "accepted"),
        ("PROGRESS OFFERING_READY", "offered"),
        ("OFFERING_READY PROGRESS", "working"),
        ("OFFERING_READY DONE", "done"),
        ("DONE PROGRESS HELP_REQUEST", "done"),
        ("FAILED PROGRESS", "failed"),
        ("CHECKPOINT PROGRESS", "checkpointed"),
        ("CHECKPOINT SPAWN_REQUEST", "respawned"),
        ("FAILED SPAWN_REQUEST SPAWN_ACK", "respawned"),
        ("CHECKPOINT SPAWN_REQUEST SPAWN_ACK BEAD_ACCEPTED", "accepted"),
        ("CHECKPOINT SPAWN_REQUEST PROGRESS", "working"),
        ("DONE BEAD_ACCEPTED", "accepted"),
        ("DONE Lunch?", "done"),
    ],
)
def test_states_of_a_bead(kinds: str, state: str) -> None:
    tracker = tracked(*kinds.split(" "))
    assert tracker.beads()["b-1"].state == tracker.thread("b-1").summary.state == state


@pytest.mark.parametrize(
    ("before", "state"),
    [([], "new"), (["CHECKPOINT"], "checkpointed"), (["FAILED", "SPAWN_REQUEST"], "failed")],
)
def test_a_worker_that_could_not_be_spawned_leaves_the_bead_as_it_was(before: list[str], state: str) -> None:
    tracker = tracked(*before, "SPAWN_REQUEST")
    tracker.add(plain("SPAWN_ACK", body="Issue: b-1\nStatus: failed"))
    assert tracker.beads()["b-1"].state == state
    assert tracker.pending() == []


def test_every_type_has_its_transitions() -> None:
    assert set(TRANSITIONS) == set(MessageType)
    reachable = {state for row in TRANSITIONS.values() for state in row.values()}
    assert reachable == set(BeadState) - {BeadState.NEW, BeadState.CLOSED}


def test_what_comes_late_changes_nothing() -> None:
    tracker = tracked("PROGRESS", "DONE")
    before = tracker.beads()
    tracker.add(plain("PROGRESS", "bob", body="Bead: b-1\nStep: 9\nContext usage: 99%\nFiles touched: z"))
    assert tracker.beads() == before


def test_who_works_on_what() -> None:
    tracker = Tracker()
    for bead, worker in [("b-1", "ann"), ("b-2", "bob"), ("b-3", "ann"), ("b-4", "cyn")]:
        tracker.add(plain(f"[{bead}] BEAD_ACCEPTED", worker, body="", thread_id=bead))
    assert tracker.who_works_on_what() == {"ann": ("b-1", "b-3"), "bob": ("b-2",), "cyn": ("b-4",)}
    tracker.add(plain("[b-3] HELP_REQUEST", "ann", body="", thread_id="b-3"))
    tracker.add(plain("[b-2] DONE", "bob", body="", thread_id="b-2"))
    tracker.add(plain("[b-1] CHECKPOINT", "ann", body="", thread_id="b-1"))
    tracker.add(plain("[b-4] BEAD_ACCEPTED", "dan", body="", thread_id="b-4"))
    assert tracker.who_works_on_what() == {"ann": ("b-3",), "dan": ("b-4",)}
    assert tracker.beads()["b-2"].worker == "bob"


def test_whoever_passes_a_question_on_does_not_take_the_bead_over() -> None:
    tracker = tracked("BEAD_ACCEPTED", "HELP_REQUEST")
    tracker.add(plain("HELP_REQUEST", sender="chief"))
    assert tracker.who_works_on_what() == {"ann": ("b-1",)}
    alone = Tracker()
    alone.add(plain("HELP_REQUEST", sender="bob"))
    assert alone.who_works_on_what() == {"bob": ("b-1",)}


def test_the_last_checkpoint_is_there_for_a_successor() -> None:
    tracker = tracked("PROGRESS", "CHECKPOINT", "SPAWN_REQUEST", "BEAD_ACCEPTED")
    assert tracker.beads()["b-1"].context_usage == 0
    tracker.add(plain("PROGRESS"))
    assert tracker.last_checkpoint("b-1") == Checkpoint(
        bead_id="b-1", reason=CheckpointReason.TIMEOUT, commit_sha="def", context_usage=85
    )
    tracker.add(plain("CHECKPOINT", body="Bead: b-1\n- Commit: later"))
    later = tracker.last_checkpoint("b-1")
    assert later is not None
    assert later.commit_sha == "later"
    assert tracker.last_checkpoint("b-2") is None


def test_a_message_read_again_changes_nothing() -> None:
    tracker = Tracker()
    messages = [plain("PROGRESS"), plain("HELP_REQUEST"), plain("HELP_RESPONSE", "chiron")]
    tracker.extend(messages)
    before = (tracker.beads(), tracker.pending(), tracker.threads())
    assert tracker.add(messages[1]) is None
    assert tracker.add(messages[0].model_copy(update={"subject": "DONE"})) is None
    assert (tracker.beads(), tracker.pending(), tracker.threads()) == before


def test_messages_without_ids_are_all_read() -> None:
    tracker = Tracker()
    tracker.extend([plain("HELP_REQUEST", id=""), plain("HELP_REQUEST", id="")])
    assert len(tracker.pending()) == 2


def test_subjects_must_be_just_a_type_unless_the_parser_says_otherwise() -> None:
    talk = plain("Re: HELP_REQUEST")
    tracker = Tracker()
    tracker.add(talk)
    assert tracker.beads() == {}
    assert tracker.pending() == []
    lenient = Tracker(parser=Parser())
    lenient.add(talk)
    assert len(lenient.pending()) == 1


def test_a_message_that_was_read_before_is_taken_as_it_is() -> None:
    tracker = Tracker()
    read = Parser().parse(plain("It is DONE", body=BODIES["DONE"]))
    assert tracker.add(read) == read
    assert tracker.beads()["b-1"].state is BeadState.DONE


def test_acknowledge_by_hand() -> None:
    tracker = Tracker()
    request = plain("HELP_REQUEST", id="m")
    tracker.add(request)
    assert [message.id for message in tracker.pending()] == ["m"]
    assert tracker.acknowledge("m", "chiron").acknowledged_by == "chiron"
    assert tracker.acknowledge("m", "crank").acknowledged_by == "chiron"
    assert tracker.pending() == []
    assert tracker.beads()["b-1"].state is BeadState.STUCK
    assert tracker.thread("b-1").messages[0].acknowledged
    with pytest.raises(UnknownMessage, match="nothing"):
        tracker.acknowledge("nothing", "chiron")
    assert issubclass(UnknownMessage, BadRequest)


def test_overdue() -> None:
    tracker = Tracker(ack_within=timedelta(minutes=5))
    tracker.extend([on_mail("HELP_REQUEST", minute=0), on_mail("OFFERING_READY", minute=3, body="Bead: b-2")])
    assert tracker.overdue(START + timedelta(minutes=5)) == []
    assert [message.type for message in tracker.overdue(START + timedelta(minutes=6))] == ["HELP_REQUEST"]
    assert len(tracker.overdue(START + timedelta(hours=1))) == 2
    with pytest.raises(BadRequest):
        tracker.overdue(START.replace(tzinfo=None))


# ------------------------------------------------------------------------------------------- on MAIL


def add(tracker: Tracker, message: MAILMessage) -> AgentMailMessage:
    read = tracker.add(message)
    assert read is not None
    return read


def test_a_mail_message_as_an_envelope() -> None:
    message = on_mail("PROGRESS", routing_info={"thread_id": "wave-1"})
    envelope = envelope_of(message)
    assert (envelope.id, envelope.timestamp, envelope.thread_id) == (message.id, message.timestamp, "wave-1")
    assert (envelope.sender, envelope.recipient) == ("ann", "crank")
    assert (envelope.subject, envelope.body) == ("PROGRESS", BODIES["PROGRESS"])


def test_a_mail_broadcast() -> None:
    to = (create_agent_address("crank"), create_agent_address("chiron@beta"))
    payload = MAILBroadcast(
        task_id="t-1",
        broadcast_id="b",
        sender=create_agent_address("ann"),
        recipients=to,
        subject="[b-1] PROGRESS",
        body="",
    )
    message = MAILMessage(
        id=str(UUID(int=0)), timestamp=START.isoformat(), msg_type="broadcast", message=payload
    )
    tracker = Tracker()
    assert add(tracker, message).recipient == "crank, chiron@beta"
    assert tracker.who_works_on_what() == {"ann": ("b-1",)}


def test_thread_of_a_mail_message() -> None:
    tracker = Tracker()
    assert add(tracker, on_mail("PROGRESS", routing_info={"thread_id": "wave"})).thread_id == "wave"
    assert add(tracker, on_mail("PROGRESS", routing_info={"thread_id": 7})).thread_id == "b-1"
    assert add(tracker, on_mail("PROGRESS", routing_info={"thread_id": ""})).thread_id == "b-1"
    assert add(tracker, on_mail("Hello")).thread_id == "t-1"
    request = on_mail("HELP_REQUEST", request_id="r")
    assert add(tracker, request).thread_id == "b-1"
    answer = add(tracker, on_mail("Hm", "chiron", answers="r"))
    assert (answer.thread_id, answer.reply_to) == ("b-1", request.id)
    assert list(tracker.threads()) == ["wave", "b-1", "t-1"]


def test_a_response_to_the_request_acknowledges_it() -> None:
    tracker = Tracker()
    add(tracker, on_mail("HELP_REQUEST", request_id="r-a"))
    add(tracker, on_mail("Other", "chiron", answers="r-b"))
    assert len(tracker.pending()) == 1
    add(tracker, on_mail("Re: help", "chiron", answers="r-a"))
    assert tracker.pending() == []
    assert tracker.thread("b-1").messages[0].acknowledged_by == "chiron"
    assert tracker.beads()["b-1"].state is BeadState.WORKING


def test_a_response_that_is_read_before_its_request() -> None:
    tracker = Tracker()
    add(tracker, on_mail("Re: help", "chiron", answers="r-a"))
    assert add(tracker, on_mail("HELP_REQUEST", request_id="r-a")).acknowledged_by == "chiron"
    assert tracker.pending() == []
    assert tracker.beads()["b-1"].state is BeadState.WORKING


def test_a_help_response_in_the_thread_acknowledges() -> None:
    tracker = Tracker()
    add(tracker, on_mail("HELP_REQUEST"))
    add(tracker, on_mail("HELP_REQUEST"))
    add(tracker, on_mail("OFFERING_READY", routing_info={"thread_id": "b-1"}, body="Bead: b-2"))
    add(tracker, on_mail("HELP_RESPONSE", "chiron", routing_info={"thread_id": "elsewhere"}))
    assert len(tracker.pending()) == 3
    for _ in range(2):
        add(tracker, on_mail("HELP_RESPONSE", "chiron", routing_info={"thread_id": "b-1"}))
    assert [message.type for message in tracker.pending()] == ["OFFERING_READY"]
    assert tracker.beads()["b-1"].state is BeadState.WORKING


def test_a_help_response_to_one_request_leaves_the_others() -> None:
    tracker = Tracker()
    add(tracker, on_mail("HELP_REQUEST", request_id="r-a", routing_info={"thread_id": "wave"}))
    second = on_mail("HELP_REQUEST", request_id="r-b", routing_info={"thread_id": "wave"}, body="Bead: b-2")
    add(tracker, second)
    add(tracker, on_mail("HELP_RESPONSE", "chiron", answers="r-a"))
    assert [message.id for message in tracker.pending()] == [second.id]
    assert (tracker.beads()["b-1"].state, tracker.beads()["b-2"].state) == (
        BeadState.WORKING,
        BeadState.STUCK,
    )


@pytest.mark.parametrize(
    ("subject", "answered"),
    [
        ("HELP_RESPONSE", "b-1"),
        ("[b-1] HELP_RESPONSE", "b-1"),
        ("[b-2] HELP_RESPONSE", "b-2"),
        ("[b-3] HELP_RESPONSE", ""),
    ],
)
def test_help_in_a_thread_of_several_beads(subject: str, answered: str) -> None:
    """It is for the bead that it names, else for the longest waiting one; all readers agree."""
    tracker = Tracker()
    for bead in ("b-1", "b-2"):
        add(tracker, on_mail("HELP_REQUEST", routing_info={"thread_id": "wave"}, body=f"Bead: {bead}"))
    add(tracker, on_mail(subject, "chiron", routing_info={"thread_id": "wave"}, body="So."))
    assert [m.bead_id for m in tracker.pending()] == [b for b in ("b-1", "b-2") if b != answered]
    stuck = [bead for bead in ("b-1", "b-2") if tracker.beads()[bead].state is BeadState.STUCK]
    assert stuck == [b for b in ("b-1", "b-2") if b != answered]
    thread = tracker.thread("wave")
    below = {turn.message.bead_id: turn.answers for turn in thread.conversation if turn.level}
    requests = {m.bead_id: m.id for m in thread.messages if m.type is MessageType.HELP_REQUEST}
    assert list(below.values()) == ([requests[answered]] if answered else [])
    assert (thread.summary.state is BeadState.WORKING) is (answered == "b-1")
    untold = Thread(
        thread_id="wave", messages=tuple(m.model_copy(update={"reply_to": ""}) for m in thread.messages)
    )
    assert [(t.level, t.answers) for t in untold.conversation] == [
        (t.level, t.answers) for t in thread.conversation
    ]


def test_mail_of_no_type_stays_in_the_thread_of_its_task() -> None:
    tracker = Tracker()
    for subject in ("[URGENT] lunch", "follow-up: lunch", "[b-1] DONE soon"):
        assert add(tracker, on_mail(subject)).thread_id == "t-1"
    assert add(tracker, on_mail("[b-7] PROGRESS", body="")).thread_id == "b-7"
    assert Parser().parse({"subject": "[ol-1] lunch"}).bead_id == "ol-1"


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        ("SPAWN_REQUEST!", "closed"),
        ("BEAD_ACCEPTED!", "closed"),
        ("PROGRESS HELP_REQUEST!", "closed"),
        ("PROGRESS! HELP_REQUEST! HELP_RESPONSE!", "closed"),
        ("HELP_REQUEST HELP_REQUEST!", "stuck"),
        ("PROGRESS PROGRESS!", "working"),
        ("PROGRESS HELP_REQUEST! PROGRESS", "working"),
        ("HELP_REQUEST! HELP_RESPONSE", "working"),
        ("PROGRESS! OFFERING_READY!", "offered"),
        ("DONE!", "done"),
        ("FAILED!", "failed"),
        ("CHECKPOINT!", "checkpointed"),
        ("CHECKPOINT! SPAWN_REQUEST!", "closed"),
        ("BEAD_ACCEPTED! BEAD_ACCEPTED", "accepted"),
    ],
)
def test_what_is_closed_waits_for_nothing(kinds: str, state: str) -> None:
    """Here with an exclamation mark."""
    tracker = Tracker()
    for kind in kinds.split(" "):
        tracker.add(plain(kind.removesuffix("!")), closed=kind.endswith("!"))
    assert tracker.beads()["b-1"].state == tracker.thread("b-1").summary.state == state
    assert all(not message.closed for message in tracker.pending())
    assert bool(tracker.who_works_on_what()) is (state in ("working", "accepted", "stuck"))
    assert (tracker.beads()["b-1"].help_request is not None) is (state == "stuck")


def test_a_spawn_ack_acknowledges_requests_for_its_issue() -> None:
    tracker = Tracker()
    add(tracker, on_mail("SPAWN_REQUEST"))
    add(tracker, on_mail("SPAWN_REQUEST", body="Issue: b-2"))
    add(tracker, on_mail("SPAWN_ACK", "spawner", routing_info={"thread_id": "elsewhere"}))
    assert [message.bead_id for message in tracker.pending()] == ["b-2"]


def test_a_request_for_help_may_itself_answer_a_request() -> None:
    tracker = Tracker()
    add(tracker, on_mail("SPAWN_REQUEST", "crank", "ann", request_id="r-a"))
    add(tracker, on_mail("HELP_REQUEST", answers="r-a"))
    assert [message.type for message in tracker.pending()] == ["HELP_REQUEST"]
    assert tracker.beads()["b-1"].state is BeadState.STUCK


def test_a_question_back_leaves_the_bead_stuck() -> None:
    tracker = Tracker()
    add(tracker, on_mail("HELP_REQUEST", request_id="r-a"))
    add(tracker, on_mail("HELP_REQUEST", "chiron", answers="r-a"))
    assert tracker.beads()["b-1"].state is BeadState.STUCK


def test_conversation_on_mail() -> None:
    tracker = Tracker()
    add(tracker, on_mail("HELP_REQUEST", request_id="r-a"))
    add(tracker, on_mail("PROGRESS"))
    add(tracker, on_mail("Look here", "chiron", answers="r-a"))
    outline = [(turn.message.subject, turn.level) for turn in tracker.thread("b-1").conversation]
    assert outline == [("HELP_REQUEST", 0), ("Look here", 1), ("PROGRESS", 0)]
    assert tracker.thread("b-1").summary.state is tracker.beads()["b-1"].state is BeadState.WORKING
    assert tracker.thread("b-1").summary.pending == ()
    assert tracker.thread("nowhere").messages == ()


def test_a_message_costs_the_same_however_many_were_read() -> None:
    """Counted in lines of our code, so that no clock is needed."""

    def lines_of(tracker: Tracker, message: MAILMessage) -> int:
        lines = 0

        def trace(frame: Any, event: str, _: Any) -> Any:
            nonlocal lines
            if "agentmail" not in frame.f_code.co_filename:
                return None
            lines += event == "line"
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            tracker.add(message)
        finally:
            sys.settrace(before)
        return lines

    tracker = Tracker()
    kinds = [
        "BEAD_ACCEPTED",
        "PROGRESS",
        "HELP_REQUEST",
        "HELP_RESPONSE",
        "SPAWN_REQUEST",
        "SPAWN_ACK",
        "DONE",
    ]

    def run(times: int) -> list[int]:
        costs: list[int] = []
        for _ in range(times):
            costs = [lines_of(tracker, on_mail(kind, routing_info={"thread_id": "b-1"})) for kind in kinds]
        return costs

    run(2)
    early = run(1)
    for _ in range(100):
        tracker.extend(on_mail(kind, routing_info={"thread_id": "b-1"}) for kind in kinds)
    assert run(1) == early
    assert min(early) > 50


@pytest.mark.parametrize("end", ["OFFERING_READY", "DONE", "FAILED", "CHECKPOINT"])
def test_the_end_of_the_work_on_a_bead_closes_its_requests(end: str) -> None:
    tracker = tracked("SPAWN_REQUEST", "HELP_REQUEST", end)
    tracker.add(plain("HELP_REQUEST", body="Bead: b-2"))
    tracker.add(plain(end, thread_id="elsewhere"))
    pending = {message.type: message.bead_id for message in tracker.pending()}
    assert pending.pop(MessageType.HELP_REQUEST) == "b-2"
    assert set(pending) == {end} & {"OFFERING_READY"}
    assert [message.closed for message in tracker.thread("b-1").messages[:2]] == [True, True]
    assert set(tracker.thread("b-1").summary.pending) <= {message.id for message in tracker.pending()}
    assert tracker.thread("b-1").summary.state is not BeadState.CLOSED


def test_a_worker_that_accepts_a_bead_answers_the_request_for_one() -> None:
    tracker = tracked("SPAWN_REQUEST", "BEAD_ACCEPTED")
    assert tracker.pending() == []
    assert [turn.level for turn in tracker.thread("b-1").conversation] == [0, 1]
    assert tracker.thread("b-1").messages[0].acknowledged_by == "ann"


@pytest.mark.parametrize("settle", ["response", "acknowledge", "flag"])
def test_an_offer_that_is_acknowledged_is_done(settle: str) -> None:
    tracker = Tracker()
    if settle == "flag":
        tracker.add(plain("OFFERING_READY", acknowledged=True))
    else:
        offer = add(tracker, on_mail("OFFERING_READY", request_id="r-o"))
        assert tracker.beads()["b-1"].state is BeadState.OFFERED
        if settle == "response":
            add(tracker, on_mail("Re: OFFERING_READY", "crank", answers="r-o"))
        else:
            tracker.acknowledge(offer.id, "crank")
    assert tracker.beads()["b-1"].state is tracker.thread("b-1").summary.state is BeadState.DONE
    tracker.add(plain("PROGRESS"))
    assert tracker.beads()["b-1"].state is tracker.thread("b-1").summary.state is BeadState.WORKING
    tracker.add(plain("OFFERING_READY"))
    assert tracker.beads()["b-1"].state is tracker.thread("b-1").summary.state is BeadState.OFFERED


def test_only_the_last_offer_of_a_bead_is_accepted() -> None:
    tracker = Tracker()
    add(tracker, on_mail("OFFERING_READY", request_id="r-1"))
    add(tracker, on_mail("OFFERING_READY", request_id="r-2"))
    add(tracker, on_mail("No.", "crank", answers="r-1"))
    assert tracker.beads()["b-1"].state is BeadState.OFFERED


def test_a_successor_has_neither_the_session_nor_the_failure_of_its_predecessor() -> None:
    tracker = tracked("SPAWN_REQUEST", "SPAWN_ACK", "BEAD_ACCEPTED", "FAILED")
    failed = tracker.beads()["b-1"]
    assert (failed.worker, failed.session, failed.failure is not None) == ("ann", "d-1", True)
    tracker.add(plain("SPAWN_REQUEST", "crank"))
    assert tracker.beads()["b-1"].failure is not None
    tracker.add(plain("BEAD_ACCEPTED", "liz"))
    taken_over = tracker.beads()["b-1"]
    assert (taken_over.worker, taken_over.session, taken_over.failure) == ("liz", "", None)
    tracker.add(plain("CHECKPOINT", "liz"))
    tracker.add(plain("SPAWN_REQUEST", "crank"))
    tracker.add(plain("SPAWN_ACK", "crank", body="Issue: b-1\nStatus: spawned\nSession: d-2"))
    spawned = tracker.beads()["b-1"]
    assert (spawned.worker, spawned.session) == ("liz", "")
    tracker.add(plain("DONE", "bob"))
    done = tracker.thread("b-1").summary
    assert (done.worker, done.session, done.state) == ("bob", "d-2", BeadState.DONE)


def test_an_answer_of_no_type_is_in_the_thread_of_its_request() -> None:
    tracker = Tracker()
    add(tracker, on_mail("[b-1] OFFERING_READY", request_id="r-a", routing_info={"thread_id": "wave"}))
    add(tracker, on_mail("Re: [b-1] OFFERING_READY", "crank", answers="r-a", body="Accepted."))
    assert [len(thread.messages) for thread in tracker.threads().values()] == [2]


def test_thanks_for_a_message_of_a_bead_stay_in_its_thread() -> None:
    tracker = Tracker()
    add(tracker, on_mail("[b-1] OFFERING_READY"))
    add(tracker, on_mail("Re: Re: [b-1] OFFERING_READY", "crank", body="Thank you.\nBead: mine"))
    add(tracker, on_mail("Hello", "crank", body="Bead: mine, all mine"))
    assert {name: len(thread.messages) for name, thread in tracker.threads().items()} == {"b-1": 2, "t-1": 1}
    assert set(tracker.beads()) == {"b-1"}
