"""The math agent: its class, and its action and template for `MAILAgentTemplate.from_example("math", …)`."""

from mail.examples.math_dummy.actions import calculate_expression
from mail.examples.math_dummy.prompts import SYSPROMPT
from mail.factories import LiteLLMActionAgentFunction
from mail.factories.base import deprecated_factory


class LiteLLMMathFunction(LiteLLMActionAgentFunction):
    """An agent that calculates; its action is `calculate_expression`."""


factory_math_dummy = deprecated_factory("factory_math_dummy", LiteLLMMathFunction)

action_calculate_expression = calculate_expression

math_agent_params = {"llm": "openai/gpt-5-mini", "system": SYSPROMPT}

TEMPLATE = {
    "factory": "python::mail.examples.math_dummy.agent:LiteLLMMathFunction",
    "actions": [action_calculate_expression],
    "agent_params": math_agent_params,
}
