"""Supervisors: agents that interrupt, broadcast, and finish tasks."""

from mail.factories.base import LiteLLMAgentFunction, MAILAgentFunction


class SupervisorFunction(MAILAgentFunction):
    """An agent function with the tools of supervisors; it completes tasks unless it is told that it can't."""

    supervises = True


class LiteLLMSupervisorFunction(SupervisorFunction, LiteLLMAgentFunction):
    """A supervisor, with or without actions, whose turns a language model takes."""
