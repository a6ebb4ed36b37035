"""Tools to test agents and swarms without a model, a server or a network, and to test your own stores and queues.

- `agents`     scripted agents, each a function from the mail it has read to the tools it calls; small swarms of them
- `models`     scripted language models, in place of those of your swarm
- `rig`        a swarm on the real engine, in this process and in memory
- `clock`      a clock whose times and ids are the same in every run
- `changes`    changes of tasks, as stores commit them
- `faults`     points at which a plan delays, fails or kills your code, and ports that pass them
- `contracts`  the test suites for stores and queues (these need pytest)
"""

from mail.testing.agents import (
    Call,
    Rule,
    View,
    build_agent,
    build_swarm,
    call,
    complete,
    request,
    respond,
    rule_based,
    scripted,
    turns,
    wait,
)
from mail.testing.clock import FakeClock
from mail.testing.models import scripted_model, with_scripts
from mail.testing.rig import Outcome, Rig

__all__ = [
    "Call",
    "FakeClock",
    "Outcome",
    "Rig",
    "Rule",
    "View",
    "build_agent",
    "build_swarm",
    "call",
    "complete",
    "request",
    "respond",
    "rule_based",
    "scripted",
    "scripted_model",
    "turns",
    "wait",
    "with_scripts",
]
