"""An analyst: an agent that analyses reports and figures."""

from typing import TYPE_CHECKING

from mail.startup import lazy_exports

if TYPE_CHECKING:
    from mail.examples.analyst_dummy.agent import LiteLLMAnalystFunction as LiteLLMAnalystFunction
    from mail.examples.analyst_dummy.agent import analyst_agent_params as analyst_agent_params
    from mail.examples.analyst_dummy.prompts import SYSPROMPT as ANALYST_SYSPROMPT  # noqa: F401

_PACKAGE = "mail.examples.analyst_dummy"
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "ANALYST_SYSPROMPT": f"{_PACKAGE}.prompts:SYSPROMPT",
        "LiteLLMAnalystFunction": f"{_PACKAGE}.agent",
        "factory_analyst_dummy": f"{_PACKAGE}.agent",
        "analyst_agent_params": f"{_PACKAGE}.agent",
    },
)
