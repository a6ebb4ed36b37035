"""The class of the agent."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMSearcherFunction(LiteLLMActionAgentFunction):
    """An agent that finds facts in the library."""
