"""The class of the agent."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMProcessorFunction(LiteLLMActionAgentFunction):
    """An agent that provides and reads tables."""
