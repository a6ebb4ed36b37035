"""Builders: what is built is read back as it was, however hostile; what can't be is refused."""

from datetime import datetime, timedelta, timezone

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings
from support.plugins.tiers import sized
from test_agentmail_reading import SAMPLES

from mail.agentmail import (
    BeadAccepted,
    Checkpoint,
    CheckpointReason,
    Done,
    Failed,
    FailureType,
    HelpRequest,
    HelpResponse,
    IssueType,
    MalformedMessage,
    MessageType,
    OfferingReady,
    Parser,
    Progress,
    SpawnAck,
    SpawnRequest,
    SpawnStatus,
    TypedMessage,
    Unknown,
    ValidationResult,
    build,
)
from mail.agentmail.body import grammar_of, mark_code
from mail.agentmail.envelope import type_of

HOSTILE = st.sampled_from(
    [
        *(
            "Bead: evil-1",
            "Accepted bead: evil-1",
            "Issue: evil-1",
            "- Commit: evil",
            "* Files: evil",
            "Type: ERROR",
        ),
        *("Reason: evil", "- Tests: PASS", "Status: DONE", "Context usage: 99%", "Internal Attempts: 99"),
        *(
            "## Problem",
            "## Failure",
            "##",
            "###",
            "```",
            "\\```",
            "~~~ md",
            "~~~",
            "**Bead:** evil-1",
            "`Bead`",
            "\\## Summary",
            "\\\\- Commit: x",
            "\\",
            "\n",
            "\n",
            "\n\n",
            "\r\n",
            "\r",
        ),
        *(
            " ",
            "  ",
            "\t",
            "- ",
            "* ",
            ",",
            ", ",
            ":",
            "x",
            "\x00",
            "\x1c",
            "\x85",
            "\u2028",
            "```",
            "Subject: DONE",
            "é",
        ),
    ]
)
CHARACTERS = st.characters(exclude_categories=["Cs"])
TEXTS = st.one_of(st.lists(HOSTILE, max_size=8).map("".join), st.text(CHARACTERS))
SOME_TEXT = TEXTS.filter(str.strip)
SOME_LINE = TEXTS.map(lambda text: text.replace("\n", "").replace("\r", "")).filter(str.strip)
MAYBE_LINE = st.one_of(st.just(""), SOME_LINE)
BEADS = st.one_of(
    st.from_regex(r"[a-z]{1,4}-[0-9]{1,3}(\.[0-9])?", fullmatch=True),
    st.text(CHARACTERS, min_size=1, max_size=20).filter(lambda t: t.isprintable() and {*" []"}.isdisjoint(t)),
)
FILES = st.lists(SOME_LINE, max_size=4).map(tuple)
SOME_FILES = st.lists(SOME_LINE, min_size=1, max_size=4).map(tuple)
COUNTS = st.integers(0, 10**18 - 1)
ZONES = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(timezones=ZONES).filter(lambda moment: 2 < moment.year < 9998).map(datetime.isoformat)
CHECKS = st.sampled_from([ValidationResult.PASS, ValidationResult.FAIL])


def words(kind: type) -> st.SearchStrategy[object]:
    return st.sampled_from([word for word in kind if word])  # type: ignore[attr-defined]


COMPLETED = {
    "bead_id": BEADS,
    "commit_sha": SOME_LINE,
    "files": SOME_FILES,
    "tests": CHECKS,
    "lint": CHECKS,
    "build": CHECKS,
    "summary": SOME_TEXT,
}

MESSAGES = st.one_of(
    st.builds(BeadAccepted, bead_id=BEADS, title=SOME_LINE, started_at=TIMES),
    st.builds(
        Progress, bead_id=BEADS, step=SOME_LINE, status=SOME_LINE, context_usage=COUNTS, files_touched=FILES
    ),
    st.builds(
        HelpRequest,
        bead_id=BEADS,
        issue_type=words(IssueType),
        problem=SOME_TEXT,
        what_i_tried=SOME_TEXT,
        files_touched=FILES,
        question=SOME_TEXT,
    ),
    st.builds(
        HelpResponse,
        bead_id=st.just("") | BEADS.filter(lambda bead: type_of(bead) is MessageType.UNKNOWN),
        guidance=SOME_TEXT,
    ),
    st.builds(OfferingReady, **COMPLETED),
    st.builds(Done, **COMPLETED),
    st.builds(
        Failed,
        bead_id=BEADS,
        failure_type=words(FailureType),
        reason=SOME_LINE,
        internal_attempts=COUNTS,
        commit_sha=MAYBE_LINE,
        files=FILES,
        recommendation=SOME_TEXT,
    ),
    st.builds(
        Checkpoint,
        bead_id=BEADS,
        reason=words(CheckpointReason),
        commit_sha=SOME_LINE,
        description=SOME_LINE,
        context_usage=COUNTS,
        next_steps=SOME_TEXT,
    ),
    st.builds(
        SpawnRequest, bead_id=BEADS, resume=st.booleans(), checkpoint=SOME_LINE, orchestrator=SOME_LINE
    ),
    st.builds(SpawnAck, bead_id=BEADS, status=words(SpawnStatus), session=SOME_LINE),
)


@settings(max_examples=sized(fast=60, full=60, soak=20_000))
@given(MESSAGES)
@example(HelpResponse(guidance="Bead: evil-1\n\\Bead: evil-2\n  - Accepted bead: x"))
@example(
    Done(**SAMPLES[5][2].model_dump(exclude={"summary"}), summary="## Changes\n- Commit: evil\n\\## x\n## ")
)
@example(
    Progress(
        bead_id="a-1",
        step="s",
        status="t",
        context_usage=1,
        files_touched=("Step: x, y", "- z", "\\- Step: w, v"),
    )
)
@example(HelpResponse(guidance="```\nBead: x\n```\n~~~\n\\~~~\n```"))
@example(
    HelpRequest(**SAMPLES[2][2].model_dump(exclude={"problem"}), problem="See\n```\n## Question\n```\n```")
)
@example(Progress(bead_id="`a`", step="`` `s` ``", status="`t`", context_usage=1, files_touched=("`x`", "`")))
def test_what_is_built_is_read_back_strictly(message: TypedMessage) -> None:
    envelope = build(message)
    assert Parser(strict=True).parse(envelope).parsed == message
    assert Parser().parse(envelope).parsed == message
    assert Parser(exact_subjects=True).parse(envelope.model_dump()).parsed == message


@given(st.sampled_from([kind for kind in MessageType if kind is not MessageType.UNKNOWN]), TEXTS)
def test_free_text_is_escaped_without_loss(kind: MessageType, text: str) -> None:
    grammar = grammar_of(kind)
    escaped = grammar.escape(text)
    assert grammar.unescape(escaped) == text
    assert not any(
        (line.startswith("##") and grammar.has_sections) or grammar.find_field(line)
        for line, is_code in zip(escaped.split("\n"), mark_code(escaped.split("\n")), strict=True)
        if not is_code
    )


@pytest.mark.parametrize(("subject", "body", "message"), SAMPLES, ids=[subject for subject, _, _ in SAMPLES])
def test_what_is_built_looks_as_documented(subject: str, body: str, message: TypedMessage) -> None:
    assert build(message).body == body
    bead = f"[{message.bead_id}] " if message.bead_id else ""
    assert build(message).subject == f"{bead}{message.type}"


def test_the_envelope_of_what_is_built() -> None:
    message = SAMPLES[2][2]
    envelope = build(
        message, id="m-1", sender="a", recipient="b", timestamp="2026-01-31T08:00:00Z", reply_to="m-0"
    )
    assert (envelope.id, envelope.sender, envelope.recipient, envelope.reply_to) == ("m-1", "a", "b", "m-0")
    assert (envelope.thread_id, envelope.ack_required, envelope.acknowledged) == ("ol-527.1", True, False)
    assert build(message, thread_id="wave-1").thread_id == "wave-1"
    assert build(SAMPLES[1][2]).ack_required is False


@pytest.mark.parametrize("line_break", ["\n", "\r", "\r\n"])
def test_line_breaks_in_one_line_fields_are_refused(line_break: str) -> None:
    message = Progress(
        bead_id=f"a{line_break}b", step=f"1{line_break}2", status="ok", files_touched=(f"a{line_break}b",)
    )
    with pytest.raises(MalformedMessage) as caught:
        build(message)
    assert set(caught.value.fields) == {"bead_id", "step", "files_touched"}


def test_all_that_a_strict_message_lacks_is_named() -> None:
    with pytest.raises(MalformedMessage) as caught:
        build(Done(bead_id="a-1", tests=ValidationResult.PASS))
    assert set(caught.value.missing) == {"commit_sha", "files", "lint", "build", "summary"}
    with pytest.raises(MalformedMessage) as caught:
        build(Failed(failure_type=FailureType.ERROR, reason="x", recommendation="y"))
    assert caught.value.fields == ("bead_id",)


@pytest.mark.parametrize("bead_id", ["a b", "a]b", "[a", "a\tb", "x" * 257])
def test_beads_that_would_break_a_subject_are_refused(bead_id: str) -> None:
    with pytest.raises(MalformedMessage, match="bead_id"):
        build(HelpResponse(bead_id=bead_id, guidance="Go on."))


def test_a_bead_with_the_name_of_a_type_is_kept_out_of_subjects() -> None:
    message = Done(**SAMPLES[5][2].model_dump(exclude={"bead_id"}), bead_id="failed-1")
    assert build(message).subject == "DONE"
    assert Parser().parse(build(message)).parsed == message
    assert build(SpawnAck(bead_id="done-1", status=SpawnStatus.FAILED)).subject == "[done-1] SPAWN_ACK"
    with pytest.raises(MalformedMessage, match="bead_id"):
        build(HelpResponse(bead_id="HELP_REQUEST", guidance="Go on."))


def test_other_values_that_cannot_be_written_are_refused() -> None:
    with pytest.raises(MalformedMessage, match="started_at"):
        build(BeadAccepted(bead_id="a-1", title="x", started_at="noon"))
    with pytest.raises(MalformedMessage, match="status"):
        build(Done(**SAMPLES[5][2].model_dump(exclude={"status"}), status="almost"))
    with pytest.raises(MalformedMessage, match="no type"):
        build(Unknown())


def test_outer_white_space_and_empty_paths_are_no_part_of_values() -> None:
    assert Progress(step=" x\n", files_touched=(" a", "", " ")) == Progress(step="x", files_touched=("a",))


def test_a_timestamp_that_is_none_is_refused() -> None:
    with pytest.raises(MalformedMessage) as caught:
        build(HelpResponse(guidance="So."), timestamp="yesterday")
    assert caught.value.fields == ("timestamp",)
    assert build(HelpResponse(guidance="So."), timestamp="2026-01-31T08:00:00Z").timestamp
