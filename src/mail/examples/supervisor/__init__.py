"""A supervisor: it delegates a user's questions to other agents and combines their answers."""

from typing import TYPE_CHECKING

from mail.startup import lazy_exports

if TYPE_CHECKING:
    from mail.examples.supervisor.agent import TEMPLATE as TEMPLATE
    from mail.examples.supervisor.agent import LiteLLMSupervisorFunction as LiteLLMSupervisorFunction
    from mail.examples.supervisor.agent import supervisor_agent_params as supervisor_agent_params
    from mail.examples.supervisor.prompts import SYSPROMPT as SUPERVISOR_SYSPROMPT  # noqa: F401

_AGENT = "mail.examples.supervisor.agent"
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "LiteLLMSupervisorFunction": _AGENT,
        "SUPERVISOR_SYSPROMPT": "mail.examples.supervisor.prompts:SYSPROMPT",
        "TEMPLATE": _AGENT,
        "supervisor_agent_params": _AGENT,
        "supervisor_factory": _AGENT,
    },
)
