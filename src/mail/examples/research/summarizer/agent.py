"""The class of the agent."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMSummarizerFunction(LiteLLMActionAgentFunction):
    """An agent that summarizes texts and lists their sources."""
