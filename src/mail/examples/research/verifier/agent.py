"""The class of the agent."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMVerifierFunction(LiteLLMActionAgentFunction):
    """An agent that verifies claims."""
