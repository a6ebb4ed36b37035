"""The agent that analyses."""

from mail.factories import LiteLLMAgentFunction


class LiteLLMAnalystFunction(LiteLLMAgentFunction):
    """Analyses what it is told; it has no actions."""
