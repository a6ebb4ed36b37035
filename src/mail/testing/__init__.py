"""Tools to test agents and swarms without a model, a server or a network, and to test your own stores and queues.

- `agents`     scripted agents, each a function from the mail it has read to the tools it calls; small swarms of them
- `models`     scripted language models, in place of those of your swarm
- `rig`        a swarm on the real engine, in this process and in memory
- `clock`      a clock whose times and ids are the same in every run
- `changes`    changes of tasks, as stores commit them
- `faults`     points at which a plan delays, fails or kills your code, and ports that pass them
- `contracts`  the test suites for stores and queues (these need pytest)
"""

from mail.testing.agents import Call as Call
from mail.testing.agents import Rule as Rule
from mail.testing.agents import View as View
from mail.testing.agents import build_agent as build_agent
from mail.testing.agents import build_swarm as build_swarm
from mail.testing.agents import call as call
from mail.testing.agents import complete as complete
from mail.testing.agents import request as request
from mail.testing.agents import respond as respond
from mail.testing.agents import rule_based as rule_based
from mail.testing.agents import scripted as scripted
from mail.testing.agents import turns as turns
from mail.testing.agents import wait as wait
from mail.testing.clock import FakeClock as FakeClock
from mail.testing.models import scripted_model as scripted_model
from mail.testing.models import with_scripts as with_scripts
from mail.testing.rig import Outcome as Outcome
from mail.testing.rig import Rig as Rig
from mail.testing.rig import ask_once as ask_once
