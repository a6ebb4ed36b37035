"""The consultant: its class, and its template for `MAILAgentTemplate.from_example("consultant", …)`."""

from mail.examples.consultant_dummy.prompts import SYSPROMPT
from mail.factories import LiteLLMAgentFunction


class LiteLLMConsultantFunction(LiteLLMAgentFunction):
    """A consultant, without actions; all its facts come from other agents."""


TEMPLATE = {
    "factory": "python::mail.examples.consultant_dummy.agent:LiteLLMConsultantFunction",
    "actions": [],
    "agent_params": {"llm": "openai/gpt-5-mini", "system": SYSPROMPT},
}
