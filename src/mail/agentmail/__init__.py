"""Agent Mail: typed messages with which agents coordinate work on beads (pieces of work, issues).

The subject states the type (`[ol-527.1] PROGRESS`); labelled lines and sections of the body hold the fields. To other
readers it is an ordinary message. Pure: no I/O, no clock.
"""

from mail.agentmail.beads import BeadState as BeadState
from mail.agentmail.beads import BeadStatus as BeadStatus
from mail.agentmail.builder import build as build
from mail.agentmail.envelope import ACK_WITHIN as ACK_WITHIN
from mail.agentmail.envelope import AgentMailMessage as AgentMailMessage
from mail.agentmail.envelope import Envelope as Envelope
from mail.agentmail.envelope import deadline as deadline
from mail.agentmail.envelope import envelope_of as envelope_of
from mail.agentmail.envelope import filter_by_bead_id as filter_by_bead_id
from mail.agentmail.envelope import filter_completions as filter_completions
from mail.agentmail.envelope import filter_overdue as filter_overdue
from mail.agentmail.envelope import filter_pending as filter_pending
from mail.agentmail.envelope import filter_successes as filter_successes
from mail.agentmail.messages import ACK_REQUIRED as ACK_REQUIRED
from mail.agentmail.messages import BeadAccepted as BeadAccepted
from mail.agentmail.messages import Checkpoint as Checkpoint
from mail.agentmail.messages import CheckpointReason as CheckpointReason
from mail.agentmail.messages import Done as Done
from mail.agentmail.messages import Failed as Failed
from mail.agentmail.messages import FailureType as FailureType
from mail.agentmail.messages import HelpRequest as HelpRequest
from mail.agentmail.messages import HelpResponse as HelpResponse
from mail.agentmail.messages import IssueType as IssueType
from mail.agentmail.messages import MessageType as MessageType
from mail.agentmail.messages import OfferingReady as OfferingReady
from mail.agentmail.messages import Progress as Progress
from mail.agentmail.messages import SpawnAck as SpawnAck
from mail.agentmail.messages import SpawnRequest as SpawnRequest
from mail.agentmail.messages import SpawnStatus as SpawnStatus
from mail.agentmail.messages import TypedMessage as TypedMessage
from mail.agentmail.messages import Unknown as Unknown
from mail.agentmail.messages import ValidationResult as ValidationResult
from mail.agentmail.parser import MalformedMessage as MalformedMessage
from mail.agentmail.parser import Parser as Parser
from mail.agentmail.parser import UnknownMessage as UnknownMessage
from mail.agentmail.threads import Summary as Summary
from mail.agentmail.threads import Thread as Thread
from mail.agentmail.threads import Turn as Turn
from mail.agentmail.threads import group_threads as group_threads
from mail.agentmail.tracker import Tracker as Tracker
