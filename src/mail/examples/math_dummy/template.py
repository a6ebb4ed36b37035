"""The action and the template of the math agent, for `MAILAgentTemplate.from_example("math", …)`."""

from mail.examples.math_dummy.actions import calculate_expression
from mail.examples.math_dummy.prompts import SYSPROMPT

action_calculate_expression = calculate_expression

math_agent_params = {"llm": "openai/gpt-5-mini", "system": SYSPROMPT}

TEMPLATE = {
    "factory": "python::mail.examples.math_dummy.agent:LiteLLMMathFunction",
    "actions": [action_calculate_expression],
    "agent_params": math_agent_params,
}
