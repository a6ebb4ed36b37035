"""Agent Mail: typed messages with which agents coordinate work on beads (pieces of work, issues).

The subject states the type (`[ol-527.1] PROGRESS`); labelled lines and sections of the body hold the fields. To other
readers it is an ordinary message. Pure: no I/O, no clock.
"""

from mail.agentmail.beads import BeadState, BeadStatus
from mail.agentmail.builder import build
from mail.agentmail.envelope import (
    ACK_WITHIN,
    AgentMailMessage,
    Envelope,
    deadline,
    envelope_of,
    filter_by_bead_id,
    filter_completions,
    filter_overdue,
    filter_pending,
    filter_successes,
)
from mail.agentmail.messages import (
    ACK_REQUIRED,
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
    TypedMessage,
    Unknown,
    ValidationResult,
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
