"""The supervisor, as `MAILAgentTemplate.from_example("supervisor", …)` builds it."""

from mail.examples.supervisor.prompts import SYSPROMPT

TEMPLATE = {
    "factory": "python::mail.factories.supervisor:LiteLLMSupervisorFunction",
    "actions": [],
    "agent_params": {"llm": "openai/gpt-5-mini", "system": SYSPROMPT},
    "enable_entrypoint": True,
    "can_complete_tasks": True,
}
