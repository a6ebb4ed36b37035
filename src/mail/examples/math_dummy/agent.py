"""The class of the math agent."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMMathFunction(LiteLLMActionAgentFunction):
    """An agent that calculates; its action is `calculate_expression`."""
