"""A supervisor: it delegates a user's questions to other agents and combines their answers."""

from mail.examples.supervisor.agent import (
    TEMPLATE,
    LiteLLMSupervisorFunction,
    supervisor_agent_params,
    supervisor_factory,
)
from mail.examples.supervisor.prompts import SYSPROMPT as SUPERVISOR_SYSPROMPT

__all__ = [
    "SUPERVISOR_SYSPROMPT",
    "TEMPLATE",
    "LiteLLMSupervisorFunction",
    "supervisor_agent_params",
    "supervisor_factory",
]
