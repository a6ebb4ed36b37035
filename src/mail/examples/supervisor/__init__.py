"""A supervisor: it delegates a user's questions to other agents and combines their answers."""

from typing import TYPE_CHECKING

from mail.startup import homes_of, lazy_exports

if TYPE_CHECKING:
    from mail.examples.supervisor.agent import TEMPLATE as TEMPLATE
    from mail.examples.supervisor.agent import LiteLLMSupervisorFunction as LiteLLMSupervisorFunction
    from mail.examples.supervisor.agent import supervisor_agent_params as supervisor_agent_params
    from mail.examples.supervisor.prompts import SYSPROMPT as SUPERVISOR_SYSPROMPT  # noqa: F401

_HOMES = homes_of(
    {f"{__name__}.agent": "LiteLLMSupervisorFunction TEMPLATE supervisor_agent_params supervisor_factory"}
)
__getattr__, __dir__ = lazy_exports(
    __name__, {**_HOMES, "SUPERVISOR_SYSPROMPT": f"{__name__}.prompts:SYSPROMPT"}
)
