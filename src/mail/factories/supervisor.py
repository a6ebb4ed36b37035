"""Supervisors: agents that interrupt, broadcast, and complete tasks."""

from mail.factories.base import LiteLLMAgentFunction, MAILAgentFunction, deprecated_factory


class SupervisorFunction(MAILAgentFunction):
    """An agent function with the tools of supervisors; by default it can complete tasks."""

    supervises = True


class LiteLLMSupervisorFunction(SupervisorFunction, LiteLLMAgentFunction):
    """A supervisor, with or without actions, run by a language model."""


supervisor_factory = deprecated_factory("supervisor_factory", LiteLLMSupervisorFunction)
