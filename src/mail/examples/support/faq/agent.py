"""The class of the agent."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMFaqFunction(LiteLLMActionAgentFunction):
    """An agent that answers common questions."""
