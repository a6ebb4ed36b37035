"""A math agent, and the action that calculates for it."""

from typing import TYPE_CHECKING

from mail.startup import homes_of, lazy_exports

if TYPE_CHECKING:
    from mail.examples.math_dummy.actions import calculate_expression as calculate_expression
    from mail.examples.math_dummy.agent import LiteLLMMathFunction as LiteLLMMathFunction
    from mail.examples.math_dummy.prompts import SYSPROMPT as MATH_SYSPROMPT  # noqa: F401
    from mail.examples.math_dummy.template import action_calculate_expression as action_calculate_expression
    from mail.examples.math_dummy.template import math_agent_params as math_agent_params

_HOMES = homes_of(
    {
        f"{__name__}.actions": "calculate_expression",
        f"{__name__}.agent": "LiteLLMMathFunction factory_math_dummy",
        f"{__name__}.template": "action_calculate_expression math_agent_params",
    }
)
__getattr__, __dir__ = lazy_exports(__name__, {**_HOMES, "MATH_SYSPROMPT": f"{__name__}.prompts:SYSPROMPT"})
