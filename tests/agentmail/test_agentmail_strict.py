"""Strict reading: what it refuses, and that it names every fault."""

import pytest
from test_agentmail_reading import SAMPLES

from mail.agentmail import MalformedMessage, MessageType, Parser
from mail.agentmail.messages import CLASSES
from mail.errors import BadRequest

STRICT = Parser(strict=True)


def refusal(subject: str, body: str = "", **more: object) -> MalformedMessage:
    with pytest.raises(MalformedMessage) as caught:
        STRICT.parse({"subject": subject, "body": body, **more})
    for name in caught.value.fields:
        assert name in caught.value.detail
    return caught.value


NEEDED = {
    "BEAD_ACCEPTED": {"bead_id", "title", "started_at"},
    "PROGRESS": {"bead_id", "step", "status", "context_usage"},
    "HELP_REQUEST": {"bead_id", "issue_type", "problem", "what_i_tried", "question"},
    "HELP_RESPONSE": {"guidance"},
    "OFFERING_READY": {"bead_id", "status", "commit_sha", "files", "tests", "lint", "build", "summary"},
    "DONE": {"bead_id", "status", "commit_sha", "files", "tests", "lint", "build", "summary"},
    "FAILED": {"bead_id", "status", "failure_type", "reason", "internal_attempts", "recommendation"},
    "CHECKPOINT": {"bead_id", "reason", "commit_sha", "description", "context_usage", "next_steps"},
    "SPAWN_REQUEST": {"bead_id", "resume", "orchestrator"},
    "SPAWN_ACK": {"bead_id", "status"},
}


@pytest.mark.parametrize("kind", NEEDED)
def test_every_missing_field_is_named(kind: str) -> None:
    error = refusal(kind)
    assert set(error.missing) == NEEDED[kind]
    assert error.invalid == {}
    assert error.kind == kind


def test_every_invalid_field_is_named() -> None:
    body = (
        "Bead: ol 1\nStatus: almost\n## Failure\nType: BAD_LUCK\nReason: none\nInternal Attempts: few\n"
        "## Recommendation\nRest."
    )
    error = refusal("FAILED", body, timestamp="noon")
    assert set(error.invalid) == {"bead_id", "status", "failure_type", "internal_attempts", "timestamp"}
    assert error.missing == {}
    assert "BAD_LUCK" in error.detail
    assert isinstance(error, BadRequest)


def test_missing_and_invalid_fields_at_once() -> None:
    error = refusal("PROGRESS", "Bead: ol-1\nContext usage: 45.5%")
    assert set(error.missing) == {"step", "status"}
    assert set(error.invalid) == {"context_usage"}


def test_context_usage_is_a_percentage() -> None:
    body = "Bead: a-1\nStep: 1\nStatus: ok\nContext usage: "
    for text in ("45 %", "~45%", "45.5%", "45"):
        assert set(refusal("PROGRESS", body + text).fields) == {"context_usage"}
    for text in ("0%", "+45%", "150%"):
        STRICT.parse({"subject": "PROGRESS", "body": body + text})


@pytest.mark.parametrize(
    "subject",
    [
        "ABANDONED",
        "NOT DONE",
        "DONE!",
        "Re: DONE",
        "DONE later",
        "[] DONE",
        "[a] [b] DONE",
        "undone",
        "",
        "Hi",
    ],
)
def test_a_subject_that_is_not_just_a_type(subject: str) -> None:
    error = refusal(subject, SAMPLES[5][1])
    assert error.fields == ("subject",)
    assert error.kind is MessageType.UNKNOWN


@pytest.mark.parametrize(
    "subject", ["DONE", "done", "[ol-527.1] DONE", "ol-527.1: DONE", "  [ol-527.1]  DONE "]
)
def test_a_subject_that_is_a_type_with_or_without_bead(subject: str) -> None:
    assert STRICT.parse({"subject": subject, "body": SAMPLES[5][1]}).type is MessageType.DONE


def test_a_result_with_a_remark_is_invalid() -> None:
    assert set(refusal("DONE", SAMPLES[5][1].replace("Tests: PASS", "Tests: PASS (12)")).fields) == {"tests"}


def test_a_checkpoint_to_resume_from_is_needed_if_there_is_one() -> None:
    assert set(refusal("SPAWN_REQUEST", "Issue: a-1\nResume: yes\nOrchestrator: o").fields) == {"checkpoint"}
    STRICT.parse({"subject": "SPAWN_REQUEST", "body": "Issue: a-1\nResume: no\nOrchestrator: o"})
    assert set(refusal("SPAWN_REQUEST", "Issue: a-1\nResume: maybe\nOrchestrator: o").fields) == {"resume"}


def test_a_session_is_needed_if_one_was_spawned() -> None:
    assert set(refusal("SPAWN_ACK", "Issue: a-1\nStatus: spawned").fields) == {"session"}
    STRICT.parse({"subject": "SPAWN_ACK", "body": "Issue: a-1\nStatus: failed"})


def test_a_bead_in_the_subject_is_enough() -> None:
    body = SAMPLES[1][1].partition("\n")[2]
    assert STRICT.parse({"subject": "[ol-9] PROGRESS", "body": body}).bead_id == "ol-9"


@pytest.mark.parametrize("kind", ["HELP_REQUEST", "OFFERING_READY", "SPAWN_REQUEST"])
def test_required_acknowledgements_cannot_be_waived(kind: str) -> None:
    [body] = [body for subject, body, _ in SAMPLES if subject == kind]
    assert refusal(kind, body, ack_required=False).fields == ("ack_required",)


def test_wrong_values_in_an_envelope_are_named() -> None:
    error = refusal("HELP_RESPONSE", "Go on.", id=[], sender={}, acknowledged="perhaps")
    assert set(error.invalid) == {"id", "sender", "acknowledged"}


def test_bytes_and_text_of_no_form() -> None:
    with pytest.raises(MalformedMessage, match="UTF-8"):
        STRICT.parse(b"Subject: HELP_RESPONSE\n\n\xff")
    with pytest.raises(MalformedMessage, match="subject is missing"):
        STRICT.parse("Bead: ol-1")


def test_long_values_are_quoted_in_part() -> None:
    assert len(refusal("PROGRESS", "Context usage: " + "x" * 10_000).detail) < 1000


def test_a_parser_can_be_made_strict_later() -> None:
    parser = Parser()
    assert not parser.strict
    parser.parse({"subject": "Hi"})
    parser.strict = True
    with pytest.raises(MalformedMessage):
        parser.parse({"subject": "Hi"})


def test_all_types_are_covered() -> None:
    assert {*NEEDED, "UNKNOWN"} == {kind.value for kind in CLASSES}


@pytest.mark.parametrize(
    ("subject", "body"),
    [
        ("[ol-1] HELP_RESPONSE", "Bead: ol-2\nGo on."),
        ("ol-1: SPAWN_ACK", "Issue: ol-2\nStatus: failed"),
        ("SPAWN_ACK", "Issue: ol-1\nBead: ol-2\nStatus: failed"),
        (
            "BEAD_ACCEPTED",
            "Accepted bead: ol-1\nBead: ol-2\nTitle: x\nStarting implementation at: 2026-01-31T08:00:00Z",
        ),
        ("[a b] SPAWN_ACK", "Issue: ol-2\nStatus: failed"),
    ],
)
def test_a_message_that_names_two_beads_is_refused(subject: str, body: str) -> None:
    with pytest.raises(MalformedMessage) as caught:
        STRICT.parse({"subject": subject, "body": body})
    assert tuple(caught.value.invalid) == ("bead_id",)
    assert Parser().parse({"subject": subject, "body": body}).bead_id in ("ol-1", "ol-2")
