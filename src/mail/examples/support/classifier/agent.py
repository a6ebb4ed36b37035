"""The class of the agent."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMClassifierFunction(LiteLLMActionAgentFunction):
    """An agent that classifies messages of customers."""
