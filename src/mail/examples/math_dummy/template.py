"""The action and the template of the math agent, for `MAILAgentTemplate.from_example("math", …)`."""

from mail.api.actions import MAILAction
from mail.examples.math_dummy.actions import MAX_PRECISION, calculate_expression
from mail.examples.math_dummy.prompts import SYSPROMPT

action_calculate_expression = MAILAction(
    name="calculate_expression",
    description="Evaluate a basic arithmetic expression",
    parameters={
        "type": "object",
        "properties": {
            "expression": {"type": "string", "description": "Expression to evaluate"},
            "precision": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_PRECISION,
                "description": "Optional number of decimal places",
            },
        },
        "required": ["expression"],
    },
    function=calculate_expression,
    idempotent=True,
)

TEMPLATE = {
    "factory": "python::mail.examples.math_dummy.agent:LiteLLMMathFunction",
    "actions": [action_calculate_expression],
    "agent_params": {"llm": "openai/gpt-5-mini", "system": SYSPROMPT},
}
