"""An analyst: an agent that analyses reports and figures."""

from typing import TYPE_CHECKING

from mail.startup import homes_of, lazy_exports

if TYPE_CHECKING:
    from mail.examples.analyst_dummy.agent import LiteLLMAnalystFunction as LiteLLMAnalystFunction
    from mail.examples.analyst_dummy.agent import analyst_agent_params as analyst_agent_params
    from mail.examples.analyst_dummy.prompts import SYSPROMPT as ANALYST_SYSPROMPT  # noqa: F401

_HOMES = homes_of({f"{__name__}.agent": "LiteLLMAnalystFunction analyst_agent_params factory_analyst_dummy"})
__getattr__, __dir__ = lazy_exports(
    __name__, {**_HOMES, "ANALYST_SYSPROMPT": f"{__name__}.prompts:SYSPROMPT"}
)
