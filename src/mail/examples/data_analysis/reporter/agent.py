"""The class of the agent."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMReporterFunction(LiteLLMActionAgentFunction):
    """An agent that writes reports."""
