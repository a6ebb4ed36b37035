"""The analyst: its class, and its template for `MAILAgentTemplate.from_example("analyst", …)`."""

from mail.examples.analyst_dummy.prompts import SYSPROMPT
from mail.factories import LiteLLMAgentFunction


class LiteLLMAnalystFunction(LiteLLMAgentFunction):
    """An analyst, without actions."""


TEMPLATE = {
    "factory": "python::mail.examples.analyst_dummy.agent:LiteLLMAnalystFunction",
    "actions": [],
    "agent_params": {"llm": "openai/gpt-5-mini", "system": SYSPROMPT},
}
