"""The class of the math agent."""

from mail.factories import LiteLLMActionAgentFunction
from mail.factories.base import deprecated_factory


class LiteLLMMathFunction(LiteLLMActionAgentFunction):
    """An agent that calculates; its action is `calculate_expression`."""


factory_math_dummy = deprecated_factory("factory_math_dummy", LiteLLMMathFunction)
