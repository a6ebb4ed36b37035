"""Actions: accept work, report on it, request help, hand it over, and request workers.

They are forms (`mail.core.task.swarm`): each sends one MAIL message, in the thread of its bead, and does nothing else.

| message | sent as | the recipient's request |
| --- | --- | --- |
| BEAD_ACCEPTED, PROGRESS, SPAWN_ACK of a worker that was spawned | response | stays open |
| DONE, FAILED, CHECKPOINT, HELP_RESPONSE, SPAWN_ACK of a failure | response | is answered |
| OFFERING_READY, which expects an answer itself | request | is answered |
| HELP_REQUEST, SPAWN_REQUEST | request | stays open |
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
from mail.agentmail.envelope import bead_of, write_subject
from mail.core.task.swarm import FormContext, FormResult
from mail.errors import ToolCallFault
from mail.stdlib.agentmail.forms import (
    AboutBead,
    Described,
    Targeted,
    Word,
    ask_user,
    form_action,
    request,
    respond,
)

BRIEF = "Brief"
"""The header of the work's description in a request for a worker."""

HANDOVER = "Handover"
"""The header of the checkpoint in a request for a successor."""

OWNER = "user"
"""The task's owner as the target of a help request. The task pauses until they answer."""


class AcceptBead(AboutBead):
    """Tell the agent that asked you that you accept the work and begin."""

    title: str = Described("The work, in one line.")

    def write(self, context: FormContext) -> FormResult:
        message = BeadAccepted(bead_id=self.bead_id, title=self.title, started_at=context.timestamp)
        return respond(self.target, message, settles=False)


class ReportProgress(AboutBead):
    """Report your progress to the agent that asked you, after each major step and every few minutes."""

    step: str = Described("The present step, in one line.")
    status: str = Described("The status, in one line.")
    context_usage: int = Described("How much of your context window is used, in percent.", default=0, ge=0)
    files_touched: tuple[str, ...] = Described("The files that you have changed so far.", default=())

    def write(self, context: FormContext) -> FormResult:
        return respond(self.target, self.fill(Progress), settles=False)


class AskForHelp(AboutBead):
    """Request help, and ask one question. Wait for the answer with await_message."""

    target: str = Described(
        f"The agent to ask, or {OWNER!r} for the task's owner; the task then pauses until they answer.",
        default=OWNER,
    )
    issue_type: Word[IssueType] = Described(
        "STUCK: no idea how to continue; SPEC_UNCLEAR; BLOCKED: by something external; TECHNICAL."
    )
    problem: str = Described("What the problem is.")
    what_i_tried: str = Described("What you have tried.")
    files_touched: tuple[str, ...] = Described("The files that you have changed so far.", default=())
    question: str = Described("The question that needs an answer.")

    def write(self, context: FormContext) -> FormResult:
        message = self.fill(HelpRequest)
        if self.target == OWNER:
            return ask_user(message, MessageType.HELP_RESPONSE)
        return request(self.target, message)


class AnswerHelp(Targeted):
    """Answer a request for help."""

    bead_id: str = Described("The bead, if this agent has asked about several.", default="")
    guidance: str = Described("What to do.")

    def write(self, context: FormContext) -> FormResult:
        asked = [
            message
            for message in read(context).pending()
            if message.type is MessageType.HELP_REQUEST
            and (message.sender, message.recipient) == (self.target, context.agent)
            and self.bead_id in ("", message.bead_id)
        ]
        if not asked:
            about = f" with {self.bead_id!r}" if self.bead_id else ""
            raise ToolCallFault(
                f"{self.target!r} has not asked you for help{about}; to write to it, use another tool"
            )
        bead_id, thread_id = asked[0].bead_id, asked[0].thread_id
        if bead_of(write_subject(MessageType.HELP_RESPONSE, bead_id)) != bead_id:
            bead_id = ""  # the id doesn't fit into a subject; the thread identifies the bead
        message = HelpResponse(bead_id=bead_id, guidance=self.guidance)
        return respond(self.target, message, thread_id=thread_id)


class _Finished(AboutBead):
    """The fields of complete work."""

    commit_sha: str = Described("The commit with the work.")
    files: tuple[str, ...] = Described("The files that you have changed.")
    tests: Word[ValidationResult] = Described("Whether the tests pass: PASS or FAIL.")
    lint: Word[ValidationResult] = Described("Whether the linters pass: PASS or FAIL.")
    build: Word[ValidationResult] = Described("Whether it builds: PASS or FAIL.")
    summary: str = Described("What you have done, in a few sentences.")


class OfferWork(_Finished):
    """Submit your complete work for review. The reviewer answers."""

    def write(self, context: FormContext) -> FormResult:
        return request(self.target, self.fill(OfferingReady), settles=True)


class ReportDone(_Finished):
    """Report your complete work, if no review is needed."""

    def write(self, context: FormContext) -> FormResult:
        return respond(self.target, self.fill(Done))


class ReportFailure(AboutBead):
    """Report that you could not do the work, and hand over partial results."""

    failure_type: Word[FailureType] = Described(
        "TESTS_FAIL, BUILD_FAIL, SPEC_IMPOSSIBLE, CONTEXT_HIGH or ERROR."
    )
    reason: str = Described("The reason, in one line.")
    internal_attempts: int = Described("The number of attempts.", default=0, ge=0)
    commit_sha: str = Described("The commit with partial work, if there is any.", default="")
    files: tuple[str, ...] = Described("The files that you have changed.", default=())
    recommendation: str = Described("What has to happen before the work is possible.")

    def write(self, context: FormContext) -> FormResult:
        return respond(self.target, self.fill(Failed))


class LeaveCheckpoint(AboutBead):
    """Stop with the work half done, and hand over to a successor."""

    reason: Word[CheckpointReason] = Described(
        "CONTEXT_HIGH: your context window is nearly full; MANUAL; TIMEOUT."
    )
    commit_sha: str = Described("The commit with the work so far.")
    description: str = Described("What is done and what remains, in one line.")
    context_usage: int = Described("How much of your context window is used, in percent.", default=0, ge=0)
    next_steps: str = Described("What your successor should do.")

    def write(self, context: FormContext) -> FormResult:
        return respond(self.target, self.fill(Checkpoint))


class RequestWorker(AboutBead):
    """Ask an agent to work on a bead, or to find a worker for it."""

    resume: bool = Described(
        "Whether to resume from the last checkpoint of the bead, which is enclosed.", default=False
    )
    brief: str = Described("What the worker must know about the work.", default="")
    orchestrator: str = Described("The agent to report to; by default you.", default="")

    def write(self, context: FormContext) -> FormResult:
        checkpoint = ""
        enclosed = {BRIEF: self.brief} if self.brief else {}
        if self.resume:
            left = read(context).last_checkpoint(self.bead_id)
            if left is None:
                raise ToolCallFault(f"bead {self.bead_id!r} has no checkpoint in this task; leave resume out")
            checkpoint = left.commit_sha
            enclosed[HANDOVER] = build(left).body
        message = SpawnRequest(
            bead_id=self.bead_id,
            resume=self.resume,
            checkpoint=checkpoint,
            orchestrator=self.orchestrator or context.agent,
        )
        return request(self.target, message, enclosed=enclosed)


class AcknowledgeRequest(AboutBead):
    """Answer a request for a worker: whether one was spawned."""

    status: Word[SpawnStatus] = Described("spawned or failed.")
    session: str = Described("The name of the worker or of its session.", default="")

    def write(self, context: FormContext) -> FormResult:
        message = self.fill(SpawnAck)
        return respond(self.target, message, settles=self.status is not SpawnStatus.SPAWNED)


def read(context: FormContext) -> Tracker:
    """Read the mail of the task into a tracker."""
    tracker = Tracker()
    tracker.extend(context.mail)
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
