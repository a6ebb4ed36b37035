"""A supervisor: it delegates a user's questions to other agents and combines their answers.

`TEMPLATE` is its template for `MAILAgentTemplate.from_example("supervisor", …)`.
"""

from mail.examples.supervisor.prompts import SYSPROMPT

TEMPLATE = {
    "factory": "python::mail.factories.supervisor:LiteLLMSupervisorFunction",
    "actions": [],
    "agent_params": {"llm": "openai/gpt-5-mini", "system": SYSPROMPT},
    "enable_entrypoint": True,
    "can_complete_tasks": True,
}
