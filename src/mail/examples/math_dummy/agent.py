"""The agent that calculates."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMMathFunction(LiteLLMActionAgentFunction):
    """Calculates; its action is `calculate_expression`."""
