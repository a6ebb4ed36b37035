"""Actions: accept work, report on it, ask for help, hand it over, and ask for workers.

They are forms (`mail.core.task.swarm`): each sends one MAIL message, in the thread of its bead, and does nothing else.

| message | sent as | the recipient's request |
| --- | --- | --- |
| BEAD_ACCEPTED, PROGRESS, SPAWN_ACK of a worker that was spawned | response | goes on waiting |
| DONE, FAILED, CHECKPOINT, HELP_RESPONSE, SPAWN_ACK of a failure | response | is answered |
| OFFERING_READY, which wants an answer itself | request | is answered |
| HELP_REQUEST, SPAWN_REQUEST | request | goes on waiting |
"""

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
    MessageType,
    OfferingReady,
    Progress,
    SpawnAck,
    SpawnRequest,
    SpawnStatus,
    Tracker,
    ValidationResult,
    build,
)
from mail.agentmail.subject import bead_of, write_subject
from mail.core.task.swarm import FormContext, FormResult
from mail.errors import ToolCallFault
from mail.stdlib.agentmail.letters import (
    AboutBead,
    Described,
    Targeted,
    Word,
    appeal,
    form_action,
    request,
    respond,
)

BRIEF = "Brief"
"""The header in a request for a worker below which it is said what the work is."""

HANDOVER = "Handover"
"""The header in a request for a successor below which the checkpoint is."""

OWNER = "user"
"""As the target of a request for help: whoever gave the task. It pauses until they have answered."""


class AcceptBead(AboutBead):
    """Tell whoever asked you that you have taken the work and begin."""

    title: str = Described("What the work is, in a line.")

    def write(self, desk: FormContext) -> FormResult:
        message = BeadAccepted(bead_id=self.bead_id, title=self.title, started_at=desk.timestamp)
        return respond(self.target, message, settles=False)


class ReportProgress(AboutBead):
    """Tell whoever asked you how far you are; after each major step, and every few minutes."""

    step: str = Described("The step that you are at, in a line.")
    status: str = Described("What is happening, in a line.")
    context_usage: int = Described("How much of your context window is used, in percent.", default=0, ge=0)
    files_touched: tuple[str, ...] = Described("The files that you have changed so far.", default=())

    def write(self, desk: FormContext) -> FormResult:
        return respond(self.target, self.fill(Progress), settles=False)


class AskForHelp(AboutBead):
    """Say that you can't go on alone, and ask one question. Await the answer with await_message."""

    target: str = Described(
        f"The agent to ask, or {OWNER!r} for whoever gave the task, which then pauses until they answer.",
        default=OWNER,
    )
    issue_type: Word[IssueType] = Described(
        "STUCK: no idea how to go on; SPEC_UNCLEAR; BLOCKED: by something outside; TECHNICAL."
    )
    problem: str = Described("What the problem is.")
    what_i_tried: str = Described("What you have tried.")
    files_touched: tuple[str, ...] = Described("The files that you have changed so far.", default=())
    question: str = Described("The question that needs an answer.")

    def write(self, desk: FormContext) -> FormResult:
        message = self.fill(HelpRequest)
        if self.target == OWNER:
            return appeal(message, MessageType.HELP_RESPONSE)
        return request(self.target, message)


class AnswerHelp(Targeted):
    """Answer a request for help."""

    bead_id: str = Described("The bead that it is about, if this agent has asked about several.", default="")
    guidance: str = Described("What to do.")

    def write(self, desk: FormContext) -> FormResult:
        asked = [
            message
            for message in read(desk).pending()
            if message.type is MessageType.HELP_REQUEST
            and (message.sender, message.recipient) == (self.target, desk.agent)
            and self.bead_id in ("", message.bead_id)
        ]
        if not asked:
            about = f" with {self.bead_id!r}" if self.bead_id else ""
            raise ToolCallFault(
                f"{self.target!r} waits for no help of yours{about}; to write to it, use another tool"
            )
        bead_id, thread_id = asked[0].bead_id, asked[0].thread_id
        if bead_of(write_subject(MessageType.HELP_RESPONSE, bead_id)) != bead_id:
            bead_id = ""  # no subject can hold it; the thread says what this is about
        message = HelpResponse(bead_id=bead_id, guidance=self.guidance)
        return respond(self.target, message, thread_id=thread_id)


class _Finished(AboutBead):
    """Work that is complete."""

    commit_sha: str = Described("The commit that holds the work.")
    files: tuple[str, ...] = Described("The files that you have changed.")
    tests: Word[ValidationResult] = Described("Whether the tests pass: PASS or FAIL.")
    lint: Word[ValidationResult] = Described("Whether the linters pass: PASS or FAIL.")
    build: Word[ValidationResult] = Described("Whether it builds: PASS or FAIL.")
    summary: str = Described("What you have done, in a few sentences.")


class OfferWork(_Finished):
    """Hand over your complete work for review. The reviewer answers it."""

    def write(self, desk: FormContext) -> FormResult:
        return request(self.target, self.fill(OfferingReady), settles=True)


class ReportDone(_Finished):
    """Report your complete work, where nobody reviews it."""

    def write(self, desk: FormContext) -> FormResult:
        return respond(self.target, self.fill(Done))


class ReportFailure(AboutBead):
    """Report that you could not do the work, and leave what there is of it."""

    failure_type: Word[FailureType] = Described(
        "TESTS_FAIL, BUILD_FAIL, SPEC_IMPOSSIBLE, CONTEXT_HIGH or ERROR."
    )
    reason: str = Described("Why, in a line.")
    internal_attempts: int = Described("How often you have tried.", default=0, ge=0)
    commit_sha: str = Described("The commit that holds what there is, if there is any.", default="")
    files: tuple[str, ...] = Described("The files that you have changed.", default=())
    recommendation: str = Described("What has to happen for the work to be possible.")

    def write(self, desk: FormContext) -> FormResult:
        return respond(self.target, self.fill(Failed))


class LeaveCheckpoint(AboutBead):
    """Stop with the work half done, and leave to a successor what it needs."""

    reason: Word[CheckpointReason] = Described(
        "CONTEXT_HIGH: your context window is nearly full; MANUAL; TIMEOUT."
    )
    commit_sha: str = Described("The commit that holds the work so far.")
    description: str = Described("What is done and what remains, in a line.")
    context_usage: int = Described("How much of your context window is used, in percent.", default=0, ge=0)
    next_steps: str = Described("What your successor should do.")

    def write(self, desk: FormContext) -> FormResult:
        return respond(self.target, self.fill(Checkpoint))


class RequestWorker(AboutBead):
    """Ask an agent to work on a bead, or to find a worker for it."""

    resume: bool = Described(
        "Whether to go on from the last checkpoint of the bead, which is handed over.", default=False
    )
    brief: str = Described("What the worker has to know of the work.", default="")
    orchestrator: str = Described("To whom the worker reports; you, if left out.", default="")

    def write(self, desk: FormContext) -> FormResult:
        message = SpawnRequest(bead_id=self.bead_id, orchestrator=self.orchestrator or desk.agent)
        enclosed = {BRIEF: self.brief} if self.brief else {}
        if self.resume:
            left = read(desk).last_checkpoint(self.bead_id)
            if left is None:
                raise ToolCallFault(f"bead {self.bead_id!r} has no checkpoint in this task; leave resume out")
            message = message.model_copy(update={"resume": True, "checkpoint": left.commit_sha})
            enclosed[HANDOVER] = build(left).body
        return request(self.target, message, enclosed=enclosed)


class AcknowledgeRequest(AboutBead):
    """Answer a request for a worker: say whether there is one now."""

    status: Word[SpawnStatus] = Described("spawned or failed.")
    session: str = Described("The name of the worker or of its session.", default="")

    def write(self, desk: FormContext) -> FormResult:
        message = self.fill(SpawnAck)
        return respond(self.target, message, settles=self.status is not SpawnStatus.SPAWNED)


def read(desk: FormContext) -> Tracker:
    """What the mail of the task says about its beads."""
    tracker = Tracker()
    tracker.extend(desk.mail)
    return tracker


accept_bead = form_action("accept_bead", AcceptBead)
report_progress = form_action("report_progress", ReportProgress)
ask_for_help = form_action("ask_for_help", AskForHelp)
answer_help = form_action("answer_help", AnswerHelp, reads_mail=True)
offer_work = form_action("offer_work", OfferWork)
report_done = form_action("report_done", ReportDone)
report_failure = form_action("report_failure", ReportFailure)
leave_checkpoint = form_action("leave_checkpoint", LeaveCheckpoint)
request_worker = form_action("request_worker", RequestWorker, reads_mail=True)
acknowledge_request = form_action("acknowledge_request", AcknowledgeRequest)

WORKER_ACTIONS = (
    accept_bead,
    report_progress,
    ask_for_help,
    offer_work,
    report_done,
    report_failure,
    leave_checkpoint,
    acknowledge_request,
)
ORCHESTRATOR_ACTIONS = (answer_help, request_worker)
