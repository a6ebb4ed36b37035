"""The supervisor: its class, and its template for `MAILAgentTemplate.from_example("supervisor", …)`."""

from mail.examples.supervisor.prompts import SYSPROMPT
from mail.factories.supervisor import LiteLLMSupervisorFunction, supervisor_factory

__all__ = ["TEMPLATE", "LiteLLMSupervisorFunction", "supervisor_agent_params", "supervisor_factory"]

supervisor_agent_params = {"llm": "openai/gpt-5-mini", "system": SYSPROMPT}

TEMPLATE = {
    "factory": "python::mail.factories.supervisor:LiteLLMSupervisorFunction",
    "actions": [],
    "agent_params": supervisor_agent_params,
    "enable_entrypoint": True,
    "can_complete_tasks": True,
}
