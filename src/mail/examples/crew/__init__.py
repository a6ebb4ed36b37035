"""A crew that works on beads: an orchestrator and two workers, who coordinate by the forms of Agent Mail.

They follow rules, and what they build is made up (`workshop`). Begin with `worker`; `orchestrator` is the other side.
"""

from mail.examples.crew.orchestrator import Orchestrator
from mail.examples.crew.worker import Worker

__all__ = ["Orchestrator", "Worker"]
