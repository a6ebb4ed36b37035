"""The class of the agent."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMStatisticsFunction(LiteLLMActionAgentFunction):
    """An agent that calculates figures."""
