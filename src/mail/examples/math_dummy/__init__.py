"""A math agent, and the action that calculates for it."""

from typing import TYPE_CHECKING

from mail.startup import lazy_exports

if TYPE_CHECKING:
    from mail.examples.math_dummy.actions import calculate_expression as calculate_expression
    from mail.examples.math_dummy.agent import LiteLLMMathFunction as LiteLLMMathFunction
    from mail.examples.math_dummy.prompts import SYSPROMPT as MATH_SYSPROMPT  # noqa: F401
    from mail.examples.math_dummy.template import action_calculate_expression as action_calculate_expression
    from mail.examples.math_dummy.template import math_agent_params as math_agent_params

_PACKAGE = "mail.examples.math_dummy"
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "MATH_SYSPROMPT": f"{_PACKAGE}.prompts:SYSPROMPT",
        "LiteLLMMathFunction": f"{_PACKAGE}.agent",
        "action_calculate_expression": f"{_PACKAGE}.template",
        "factory_math_dummy": f"{_PACKAGE}.agent",
        "calculate_expression": f"{_PACKAGE}.actions",
        "math_agent_params": f"{_PACKAGE}.template",
    },
)
