"""A crew that works on beads: an orchestrator and two workers, coordinated by the forms of Agent Mail.

They follow rules, and the work itself is simulated. Start with `worker`, then read `orchestrator`.
"""

from mail.examples.crew.orchestrator import Orchestrator
from mail.examples.crew.worker import Worker

__all__ = ["Orchestrator", "Worker"]
