"""The analyst, as `MAILAgentTemplate.from_example("analyst", …)` builds it."""

from mail.examples.analyst_dummy.prompts import SYSPROMPT

TEMPLATE = {
    "factory": "python::mail.examples.analyst_dummy.agent:LiteLLMAnalystFunction",
    "actions": [],
    "agent_params": {"llm": "openai/gpt-5-mini", "system": SYSPROMPT},
}
