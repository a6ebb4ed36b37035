"""A consultant: an agent that advises on decisions."""

from typing import TYPE_CHECKING

from mail.startup import lazy_exports

if TYPE_CHECKING:
    from mail.examples.consultant_dummy.agent import LiteLLMConsultantFunction as LiteLLMConsultantFunction
    from mail.examples.consultant_dummy.agent import consultant_agent_params as consultant_agent_params
    from mail.examples.consultant_dummy.prompts import SYSPROMPT as CONSULTANT_SYSPROMPT  # noqa: F401

_PACKAGE = "mail.examples.consultant_dummy"
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CONSULTANT_SYSPROMPT": f"{_PACKAGE}.prompts:SYSPROMPT",
        "LiteLLMConsultantFunction": f"{_PACKAGE}.agent",
        "factory_consultant_dummy": f"{_PACKAGE}.agent",
        "consultant_agent_params": f"{_PACKAGE}.agent",
    },
)
