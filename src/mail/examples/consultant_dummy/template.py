"""The consultant, as `MAILAgentTemplate.from_example("consultant", …)` builds it."""

from mail.examples.consultant_dummy.prompts import SYSPROMPT

TEMPLATE = {
    "factory": "python::mail.examples.consultant_dummy.agent:LiteLLMConsultantFunction",
    "actions": [],
    "agent_params": {"llm": "openai/gpt-5-mini", "system": SYSPROMPT},
}
