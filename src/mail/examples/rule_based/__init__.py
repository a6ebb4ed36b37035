"""Agents that follow rules instead of asking a language model. Begin with `supervisor.py`.

Like any agent, they get the history of what they have read, said and been told, and return tool calls. They
keep no state of their own: what they know is in the history, so they can be stopped at any point and go on.
"""

from mail.examples.rule_based.supervisor import Supervisor
from mail.examples.rule_based.workers import MathAgent, WeatherAgent

__all__ = ["MathAgent", "Supervisor", "WeatherAgent"]
