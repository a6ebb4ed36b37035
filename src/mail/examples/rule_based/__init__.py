"""Agents that follow rules instead of calling a language model. Start with `agents`.

Like any agent, they get their history and return tool calls. They keep no state of their own, so they can be stopped
at any point and resume from the history.
"""

from mail.examples.rule_based.agents import MathAgent, Supervisor, WeatherAgent

__all__ = ["MathAgent", "Supervisor", "WeatherAgent"]
