"""A consultant: an agent that advises on decisions."""

from typing import TYPE_CHECKING

from mail.startup import homes_of, lazy_exports

if TYPE_CHECKING:
    from mail.examples.consultant_dummy.agent import LiteLLMConsultantFunction as LiteLLMConsultantFunction
    from mail.examples.consultant_dummy.agent import consultant_agent_params as consultant_agent_params
    from mail.examples.consultant_dummy.prompts import SYSPROMPT as CONSULTANT_SYSPROMPT  # noqa: F401

_HOMES = homes_of(
    {f"{__name__}.agent": "LiteLLMConsultantFunction consultant_agent_params factory_consultant_dummy"}
)
__getattr__, __dir__ = lazy_exports(
    __name__, {**_HOMES, "CONSULTANT_SYSPROMPT": f"{__name__}.prompts:SYSPROMPT"}
)
