"""Agent Mail: typed messages with which agents coordinate work on beads (pieces of work, issues).

The subject states the type (`[ol-527.1] PROGRESS`); labelled lines and sections of the body hold the fields. To other
readers it is an ordinary message. Pure: no I/O, no clock.
"""

from mail.agentmail.beads import BeadState, BeadStatus
from mail.agentmail.builder import build
from mail.agentmail.envelope import AgentMailMessage, Envelope, envelope_of
from mail.agentmail.filters import (
    ACK_WITHIN,
    deadline,
    filter_by_bead_id,
    filter_completions,
    filter_overdue,
    filter_pending,
    filter_successes,
)
from mail.agentmail.kinds import (
    ACK_REQUIRED,
    CheckpointReason,
    FailureType,
    IssueType,
    MessageType,
    SpawnStatus,
    ValidationResult,
)
from mail.agentmail.messages import (
    BeadAccepted,
    Checkpoint,
    Done,
    Failed,
    HelpRequest,
    HelpResponse,
    OfferingReady,
    Progress,
    SpawnAck,
    SpawnRequest,
    TypedMessage,
    Unknown,
)
from mail.agentmail.parser import MalformedMessage, Parser, UnknownMessage
from mail.agentmail.threads import Summary, Thread, Turn, group_threads
from mail.agentmail.tracker import Tracker

__all__ = [
    "ACK_REQUIRED",
    "ACK_WITHIN",
    "AgentMailMessage",
    "BeadAccepted",
    "BeadState",
    "BeadStatus",
    "Checkpoint",
    "CheckpointReason",
    "Done",
    "Envelope",
    "Failed",
    "FailureType",
    "HelpRequest",
    "HelpResponse",
    "IssueType",
    "MalformedMessage",
    "MessageType",
    "OfferingReady",
    "Parser",
    "Progress",
    "SpawnAck",
    "SpawnRequest",
    "SpawnStatus",
    "Summary",
    "Thread",
    "Tracker",
    "Turn",
    "TypedMessage",
    "Unknown",
    "UnknownMessage",
    "ValidationResult",
    "build",
    "deadline",
    "envelope_of",
    "filter_by_bead_id",
    "filter_completions",
    "filter_overdue",
    "filter_pending",
    "filter_successes",
    "group_threads",
]
