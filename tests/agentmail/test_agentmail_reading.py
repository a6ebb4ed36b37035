"""Lenient reading: every documented type, field and rule."""

import json
from typing import Any

import pytest

from mail.agentmail import (
    AgentMailMessage,
    BeadAccepted,
    Checkpoint,
    CheckpointReason,
    Done,
    Envelope,
    Failed,
    FailureType,
    HelpRequest,
    HelpResponse,
    IssueType,
    MessageType,
    OfferingReady,
    Parser,
    Progress,
    SpawnAck,
    SpawnRequest,
    SpawnStatus,
    TypedMessage,
    ValidationResult,
)
from mail.errors import BadRequest

PASS, FAIL = ValidationResult.PASS, ValidationResult.FAIL

COMPLETED = """\
Bead: ol-527.1
Status: DONE

## Changes
- Commit: 9f8e7d6
- Files: src/auth.py, tests/test_auth.py

## Self-Validation
- Tests: PASS
- Lint: PASS
- Build: FAIL

## Summary
Sessions expire.

Tokens rotate."""

COMPLETED_VALUES: dict[str, Any] = {
    "bead_id": "ol-527.1",
    "commit_sha": "9f8e7d6",
    "files": ("src/auth.py", "tests/test_auth.py"),
    "tests": PASS,
    "lint": PASS,
    "build": FAIL,
    "summary": "Sessions expire.\n\nTokens rotate.",
}

SAMPLES: list[tuple[str, str, TypedMessage]] = [
    (
        "BEAD_ACCEPTED",
        "Accepted bead: ol-527.1\nTitle: Add auth\nStarting implementation at: 2026-01-31T08:00:00Z",
        BeadAccepted(bead_id="ol-527.1", title="Add auth", started_at="2026-01-31T08:00:00Z"),
    ),
    (
        "[ol-527.1] PROGRESS",
        "Bead: ol-527.1\nStep: Step 4 - implementing auth\nStatus: writing tests\nContext usage: 45%\n"
        "Files touched: a.py, b.py",
        Progress(
            bead_id="ol-527.1",
            step="Step 4 - implementing auth",
            status="writing tests",
            context_usage=45,
            files_touched=("a.py", "b.py"),
        ),
    ),
    (
        "HELP_REQUEST",
        "Bead: ol-527.1\nIssue Type: SPEC_UNCLEAR\n\n## Problem\nTwo specs.\n\n## What I Tried\nReading both.\n\n"
        "## Files Touched\n- path/to/file1\n- path/to/file2\n\n## Question\nWhich one?",
        HelpRequest(
            bead_id="ol-527.1",
            issue_type=IssueType.SPEC_UNCLEAR,
            problem="Two specs.",
            what_i_tried="Reading both.",
            files_touched=("path/to/file1", "path/to/file2"),
            question="Which one?",
        ),
    ),
    (
        "HELP_RESPONSE",
        "Take the newer.\n\n## Why\nIt binds.",
        HelpResponse(guidance="Take the newer.\n\n## Why\nIt binds."),
    ),
    ("OFFERING_READY", COMPLETED, OfferingReady(**COMPLETED_VALUES)),
    ("[ol-527.1] DONE", COMPLETED, Done(**COMPLETED_VALUES)),
    (
        "FAILED",
        "Bead: ol-527.1\nStatus: FAILED\n\n## Failure\nType: BUILD_FAIL\nReason: no compiler\nInternal Attempts: 3\n\n"
        "## Partial Progress\n- Commit: 1234567\n- Files: a.c\n\n## Recommendation\nInstall one.",
        Failed(
            bead_id="ol-527.1",
            failure_type=FailureType.BUILD_FAIL,
            reason="no compiler",
            internal_attempts=3,
            commit_sha="1234567",
            files=("a.c",),
            recommendation="Install one.",
        ),
    ),
    (
        "CHECKPOINT",
        "Bead: ol-527.1\nReason: CONTEXT_HIGH\n\n## Progress\n- Commit: 1234567\n- Description: half of it\n"
        "- Context usage: 85%\n\n## Next Steps for Successor\nThe other half.",
        Checkpoint(
            bead_id="ol-527.1",
            reason=CheckpointReason.CONTEXT_HIGH,
            commit_sha="1234567",
            description="half of it",
            context_usage=85,
            next_steps="The other half.",
        ),
    ),
    (
        "SPAWN_REQUEST",
        "Issue: ol-527.1\nResume: true\nCheckpoint: 1234567\nOrchestrator: crank-1",
        SpawnRequest(bead_id="ol-527.1", resume=True, checkpoint="1234567", orchestrator="crank-1"),
    ),
    (
        "SPAWN_ACK",
        "Issue: ol-527.1\nStatus: spawned\nSession: demigod-7",
        SpawnAck(bead_id="ol-527.1", status=SpawnStatus.SPAWNED, session="demigod-7"),
    ),
]


def read(subject: str, body: str = "") -> AgentMailMessage:
    return Parser().parse({"subject": subject, "body": body})


def test_the_first_of_headers_of_one_name_counts() -> None:
    message = read(
        "HELP_REQUEST", "## Problem\nfirst\n## Question\nWhy?\n## problem\nlast\n## What I Tried\nx"
    )
    assert (lookup(message, "problem"), lookup(message, "question")) == ("first", "Why?")


@pytest.mark.parametrize("gap", ["", "\n", "\n \t\n"])
def test_a_list_below_its_label_may_begin_after_blank_lines(gap: str) -> None:
    body = f"Bead: b-1\nFiles touched:\n{gap}- a.py\n- b.py\n\n- no file"
    assert lookup(read("PROGRESS", body), "files_touched") == ("a.py", "b.py")


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffSubject: [b-1] DONE\nBody:\n## Summary\nx",
        "subject: [b-1] DONE\nbody:\n## Summary\nx",
        "SUBJECT: [b-1] DONE\n\n## Summary\nx",
        b"\xef\xbb\xbfSubject: [b-1] DONE\n## Summary\nx",
        '\ufeff{"subject": "[b-1] DONE", "body": "## Summary\\nx"}',
    ],
)
def test_raw_text_as_people_and_editors_write_it(text: str | bytes) -> None:
    message = Parser().parse(text)
    assert (message.type, message.bead_id, lookup(message, "summary")) == (MessageType.DONE, "b-1", "x")


def lookup(message: AgentMailMessage, name: str) -> Any:
    return getattr(message.parsed, name)


@pytest.mark.parametrize(("subject", "body", "expected"), SAMPLES, ids=[subject for subject, _, _ in SAMPLES])
@pytest.mark.parametrize("strict", [False, True])
def test_every_type_is_read_whole(strict: bool, subject: str, body: str, expected: TypedMessage) -> None:
    message = Parser(strict=strict).parse({"subject": subject, "body": body})
    assert message.parsed == expected
    assert (message.type, message.bead_id) == (expected.type, expected.bead_id)


@pytest.mark.parametrize(("subject", "body", "expected"), SAMPLES, ids=[subject for subject, _, _ in SAMPLES])
def test_lines_may_end_with_carriage_returns(subject: str, body: str, expected: TypedMessage) -> None:
    parsed = read(subject, body.replace("\n", "\r\n")).parsed.model_dump()
    assert {
        n: v.replace("\r", "") if isinstance(v, str) else v for n, v in parsed.items()
    } == expected.model_dump()


@pytest.mark.parametrize("kind", [kind for kind in MessageType if kind is not MessageType.UNKNOWN])
@pytest.mark.parametrize("form", ["{}", "[ol-1] {}", "ol-1.2: {}", "Re: {}!", "un{}ed"])
def test_type_is_a_case_insensitive_part_of_the_subject(kind: MessageType, form: str) -> None:
    assert read(form.format(kind.value)).type is kind
    assert read(form.format(kind.value.lower())).type is kind


@pytest.mark.parametrize(
    ("subject", "kind"),
    [
        ("ABANDONED", MessageType.DONE),
        ("NOT DONE", MessageType.DONE),
        ("DONE FAILED PROGRESS CHECKPOINT SPAWN_ACK", MessageType.SPAWN_ACK),
        ("DONE FAILED PROGRESS CHECKPOINT", MessageType.CHECKPOINT),
        ("DONE FAILED PROGRESS", MessageType.PROGRESS),
        ("DONE FAILED", MessageType.FAILED),
        ("SPAWN_ACK SPAWN_REQUEST", MessageType.SPAWN_REQUEST),
        ("SPAWN_REQUEST HELP_RESPONSE", MessageType.HELP_RESPONSE),
        ("HELP_RESPONSE to your HELP_REQUEST", MessageType.HELP_REQUEST),
        ("HELP_REQUEST on OFFERING_READY", MessageType.OFFERING_READY),
        ("OFFERING_READY after BEAD_ACCEPTED", MessageType.BEAD_ACCEPTED),
        ("Hello", MessageType.UNKNOWN),
        ("", MessageType.UNKNOWN),
        ("PROGREſS", MessageType.UNKNOWN),
    ],
)
def test_precedence_of_types(subject: str, kind: MessageType) -> None:
    assert read(subject).type is kind


@pytest.mark.parametrize(
    ("subject", "body", "bead_id"),
    [
        ("[ol-2] PROGRESS", "Bead: ol-1", "ol-1"),
        ("[ol-2] PROGRESS", "Accepted bead: ol-1", "ol-1"),
        ("[ol-2] PROGRESS", "", "ol-2"),
        ("[ol-2] PROGRESS", "Bead:\nStep: 1", "ol-2"),
        ("ol-527.1: PROGRESS", "", "ol-527.1"),
        ("Re: PROGRESS", "", ""),
        ("PROGRESS [ol-2]", "", ""),
        ("PROGRESS", "bead: ol-1", ""),
        ("PROGRESS", "The Bead: ol-1", ""),
        ("SPAWN_REQUEST", "Bead: ol-2\nIssue: ol-1", "ol-1"),
        ("SPAWN_ACK", "Bead: ol-2", "ol-2"),
        ("[ol-3] SPAWN_ACK", "", "ol-3"),
        ("PROGRESS", "Issue: ol-1", ""),
        ("[ol-3] Hello", "", "ol-3"),
        ("Hello", "Bead: ol-1", "ol-1"),
        ("[ol-3] HELP_RESPONSE", "Go on.", "ol-3"),
    ],
)
def test_bead_id_from_the_body_then_the_subject(subject: str, body: str, bead_id: str) -> None:
    assert read(subject, body).bead_id == bead_id


def test_first_hit_of_a_label_wins() -> None:
    assert lookup(read("PROGRESS", "Step: one\nStep: two"), "step") == "one"


def test_labels_are_case_sensitive() -> None:
    assert lookup(read("PROGRESS", "step: one\nStep: two"), "step") == "two"


def test_a_label_begins_its_line() -> None:
    assert lookup(read("PROGRESS", "In Step: one\n  * Step:two"), "step") == "two"


def test_headers_are_case_insensitive_and_sections_end_at_the_next() -> None:
    body = "##  SUMMARY \nfirst\n ## not at the start\n### ends it\nrest\n## Summary\nsecond"
    assert lookup(read("DONE", body), "summary") == "first\n ## not at the start"


@pytest.mark.parametrize(
    ("text", "percent"),
    [("45%", 45), ("+45%", 45), ("150%", 150), ("0%", 0), ("  45%  ", 45)]
    + [(text, 0) for text in ("45 %", "~45%", "45.5%", "45", "-45%", "high", "", "٤٥%", "9" * 5000 + "%")],
)
def test_context_usage(text: str, percent: int) -> None:
    assert lookup(read("PROGRESS", f"Context usage: {text}"), "context_usage") == percent


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("2026-01-31T08:00:00Z", True),
        ("2026-01-31T08:00:00.123456+01:00", True),
        ("2026-01-31 08:00", False),
        ("2026-01-31T08:00:00", False),
        ("2026-02-31T08:00:00Z", False),
        ("yesterday", False),
    ],
)
def test_timestamps_are_rfc_3339_only(text: str, kept: bool) -> None:
    body = f"Starting implementation at: {text}"
    assert lookup(read("BEAD_ACCEPTED", body), "started_at") == (text if kept else "")
    assert Parser().parse({"subject": "DONE", "timestamp": text}).timestamp == (text if kept else "")


@pytest.mark.parametrize(
    ("text", "result"),
    [(text, PASS) for text in ("PASS", "pass", "TRUE", "True", "yes", "OK", "ok")]
    + [(text, FAIL) for text in ("FAIL", "fail", "false", "NO")]
    + [(text, ValidationResult.UNKNOWN) for text in ("PASS (12)", "passed", "", "PAß", "PASS | FAIL")],
)
@pytest.mark.parametrize("field", ["tests", "lint", "build"])
def test_results_of_validation(field: str, text: str, result: ValidationResult) -> None:
    found = lookup(read("OFFERING_READY", f"- {field.title()}: {text}"), field)
    assert found is result
    assert found.passed is (result is PASS)


def test_an_offering_is_validated_if_all_has_passed() -> None:
    body = "Tests: OK\nLint: PASS\nBuild: {}"
    assert lookup(read("DONE", body.format("yes")), "validated")
    assert not lookup(read("DONE", body.format("no")), "validated")


@pytest.mark.parametrize(
    ("text", "resume"),
    [("true", True), ("YES", True), ("false", False), ("no", False), ("1", False), ("", False)],
)
def test_resume(text: str, resume: bool) -> None:
    assert lookup(read("SPAWN_REQUEST", f"Resume: {text}"), "resume") is resume


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("Files: a.py, b.py", ("a.py", "b.py")),
        ("Files: a.py,, ,b.py,", ("a.py", "b.py")),
        ("- Files:\n  - a.py\n  * b, c.py\n  - \n- Tests: PASS", ("a.py", "b, c.py")),
        ("Files:\n- a.py\n\n- b.py", ("a.py",)),
        ("Files:\nnone", ()),
        ("Files:", ()),
    ],
)
def test_files_with_commas_or_as_a_list(text: str, files: tuple[str, ...]) -> None:
    assert lookup(read("DONE", text), "files") == files


def test_files_touched_of_a_help_request() -> None:
    body = "## Files Touched\n- a.py\n* b.py\n\nc.py, d.py\n## Question\n- e.py"
    assert lookup(read("HELP_REQUEST", body), "files_touched") == ("a.py", "b.py", "c.py", "d.py")


def test_type_and_reason_of_a_failure_stand_inside_of_failure_only() -> None:
    outside = (
        "Type: ERROR\nReason: outside\nInternal Attempts: 2\n## Recommendation\nType: ERROR\nReason: outside"
    )
    assert lookup(read("FAILED", outside), "failure_type") is FailureType.UNKNOWN
    assert lookup(read("FAILED", outside), "reason") == ""
    assert lookup(read("FAILED", outside), "internal_attempts") == 2
    both = outside + "\n## failure\nType: TESTS_FAIL\nReason: inside"
    assert lookup(read("FAILED", both), "failure_type") is FailureType.TESTS_FAIL
    assert lookup(read("FAILED", both), "reason") == "inside"


@pytest.mark.parametrize(
    ("subject", "form", "field", "words"),
    [
        ("HELP_REQUEST", "Issue Type: {}", "issue_type", ["STUCK", "SPEC_UNCLEAR", "BLOCKED", "TECHNICAL"]),
        (
            "FAILED",
            "## Failure\nType: {}",
            "failure_type",
            ["TESTS_FAIL", "BUILD_FAIL", "SPEC_IMPOSSIBLE", "CONTEXT_HIGH", "ERROR"],
        ),
        ("CHECKPOINT", "Reason: {}", "reason", ["CONTEXT_HIGH", "MANUAL", "TIMEOUT"]),
        ("SPAWN_ACK", "Status: {}", "status", ["spawned", "failed"]),
    ],
)
def test_words_of_fields(subject: str, form: str, field: str, words: list[str]) -> None:
    for word in words:
        assert lookup(read(subject, form.format(word)), field) == word
    assert {word.value for word in type(lookup(read(subject), field))} == {*words, ""}
    assert lookup(read(subject, form.format("SOMETHING ELSE")), field) == ""


@pytest.mark.parametrize("kind", list(MessageType))
def test_missing_fields_are_empty(kind: MessageType) -> None:
    parsed = read(kind.value).parsed
    assert parsed.type is kind
    assert not any(value for name, value in parsed.model_dump().items() if name != "type")


def test_malformed_bodies_are_partly_read() -> None:
    parsed = read(
        "DONE", "Bead ol-1\n- Commit: abc\n## Self-Validation\n- Tests: perhaps\n- Lint: PASS\n##"
    ).parsed
    assert parsed == Done(status="", commit_sha="abc", lint=PASS)


ENVELOPE = {
    "id": "m-1",
    "thread_id": "ol-527.1",
    "sender": "demigod-7",
    "recipient": "crank-1",
    "subject": "PROGRESS",
    "body": "Step: 1",
    "timestamp": "2026-01-31T08:00:00Z",
    "ack_required": True,
    "acknowledged": True,
}


def test_the_envelope_in_all_its_forms() -> None:
    message = Parser().parse(ENVELOPE)
    assert message.model_dump(include=set(ENVELOPE)) == ENVELOPE
    for raw in (
        json.dumps(ENVELOPE),
        json.dumps(ENVELOPE).encode(),
        Envelope.model_validate(ENVELOPE),
        message,
    ):
        assert Parser().parse(raw) == message
        assert Parser(strict=True, exact_subjects=True).parse({**ENVELOPE, "subject": "HELP_RESPONSE"})


def test_names_that_mail_servers_use_and_fields_of_others() -> None:
    raw = {
        "id": 7,
        "from": "a",
        "to": "b",
        "body_md": "Step: 1",
        "created_ts": ENVELOPE["timestamp"],
        "kind": "to",
    }
    message = Parser().parse({**raw, "subject": "PROGRESS"})
    assert (message.id, message.sender, message.recipient) == ("7", "a", "b")
    assert (message.body, message.timestamp) == ("Step: 1", ENVELOPE["timestamp"])


def test_a_message_as_people_write_it() -> None:
    for text in (
        "Subject: [ol-1] PROGRESS\n\nBody:\nStep: 1\n",
        "\nSubject: [ol-1] PROGRESS\n\nStep: 1\n",
        b"Subject: [ol-1] PROGRESS\nBody:\nStep: 1",
    ):
        message = Parser().parse(text)
        assert message.parsed == Progress(bead_id="ol-1", step="1")
    assert Parser().parse("Step: 1").body == "Step: 1"
    assert Parser().parse("{Step: 1").body == "{Step: 1"


def test_wrong_values_in_an_envelope_are_passed_over() -> None:
    wrong = {
        "id": [],
        "sender": {},
        "timestamp": 5,
        "acknowledged": "perhaps",
        "ack_required": "?",
        "thread_id": None,
    }
    message = Parser().parse({**wrong, "subject": "\ud800 DONE", "body": "Commit: a\udc00b"})
    assert (message.id, message.sender, message.timestamp, message.acknowledged) == ("", "", "", False)
    assert message.subject == "\ufffd DONE"
    assert lookup(message, "commit_sha") == "a\ufffdb"


@pytest.mark.parametrize(
    ("subject", "kind", "bead_id"),
    [
        ("task42: DONE", "DONE", "task42"),
        ("gh/12: DONE", "DONE", "gh/12"),
        ("#12: failed", "FAILED", "#12"),
        ("Re: [ol-1] DONE", "DONE", "ol-1"),
        ("FWD: Re: ol-1: DONE", "DONE", "ol-1"),
        ("fwd: DONE", "DONE", ""),
        ("Note: not DONE", "DONE", ""),
        ("two words: DONE", "DONE", ""),
        ("[failed-1] DONE", "DONE", "failed-1"),
        ("[progress-bar] DONE", "DONE", "progress-bar"),
        ("failed-1: DONE", "DONE", "failed-1"),
        ("[DONE] at last", "DONE", "DONE"),
    ],
)
def test_bead_and_type_of_subjects(subject: str, kind: str, bead_id: str) -> None:
    message = read(subject)
    assert (message.type, message.bead_id) == (kind, bead_id)


@pytest.mark.parametrize(
    ("subject", "kind", "bead_id"),
    [
        ("task42: DONE", "DONE", "task42"),
        ("Re: DONE", "UNKNOWN", ""),
        ("Re: [ol-1] DONE", "UNKNOWN", "ol-1"),
        ("Re: Re: [ol-1] OFFERING_READY", "UNKNOWN", "ol-1"),
        ("Re: [ol-1] lunch", "UNKNOWN", ""),
        ("[ol-1] lunch", "UNKNOWN", ""),
        ("Re: [a b] DONE", "UNKNOWN", ""),
    ],
)
def test_among_other_mail_only_typed_subjects_and_replies_to_them_name_a_bead(
    subject: str, kind: str, bead_id: str
) -> None:
    message = Parser(exact_subjects=True).parse({"subject": subject, "body": "Thanks.\nIssue: x"})
    assert (message.type, message.bead_id) == (kind, bead_id)


@pytest.mark.parametrize("bead", ["not a bead at all", "x" * 257, "a\0b", "[x]"])
def test_a_bead_that_cannot_be_one_is_none(bead: str) -> None:
    assert read("PROGRESS", f"Bead: {bead}").bead_id == ""
    assert read("[ol-1] PROGRESS", f"Bead: {bead}").bead_id == "ol-1"


def test_prose_names_no_bead_among_other_mail() -> None:
    body = "Fix this, please.\nBead: ol-1"
    assert Parser(exact_subjects=True).parse({"subject": "New Message", "body": body}).bead_id == ""
    assert read("New Message", body).bead_id == "ol-1"


def test_a_code_block_is_text() -> None:
    code = "See\n```md\n## Question\nBead: zz\nIssue Type: STUCK\n```\nand ~~~."
    message = read("HELP_REQUEST", f"## Problem\n{code}\n## Question\nWhy?")
    assert message.parsed == HelpRequest(problem=code, question="Why?")
    open_fence = read("HELP_REQUEST", "## Problem\nSee\n```\n## Question\nWhy?\nBead: zz")
    assert (open_fence.bead_id, lookup(open_fence, "question")) == ("zz", "Why?\nBead: zz")


def test_markdown_as_models_write_it() -> None:
    body = "**Bead:** b-1\n- **Commit**: `abc`\n__Tests__: PASS\n**Files:**\n- `a.py`\n- b.py\n### Summary\nIt `works`."
    assert read("DONE", body).parsed == Done(
        status="", bead_id="b-1", commit_sha="abc", tests=PASS, files=("a.py", "b.py"), summary="It `works`."
    )
    assert lookup(read("PROGRESS", "Files touched: `a`, `b`"), "files_touched") == ("a", "b")
    assert lookup(read("PROGRESS", "Step: `a` and `b`"), "step") == "`a` and `b`"


def test_text_may_have_other_headers_before_the_subject() -> None:
    message = Parser().parse("From: ann\nTo: bob\nDate: Monday\nSubject: [b-1] PROGRESS\n\nFrom: x\nStep: 1")
    assert (message.sender, message.recipient, message.body) == ("ann", "bob", "\nFrom: x\nStep: 1")
    assert message.parsed == Progress(bead_id="b-1", step="1")
    assert Parser().parse("From: ann\nStep: 1").body == "From: ann\nStep: 1"


@pytest.mark.parametrize("raw", [None, 5, [], True, object()])
@pytest.mark.parametrize("strict", [False, True])
def test_a_message_of_no_readable_type_is_refused(raw: Any, strict: bool) -> None:
    with pytest.raises(BadRequest, match="a message is an Envelope, a mapping, or text, not "):
        Parser(strict=strict).parse(raw)
