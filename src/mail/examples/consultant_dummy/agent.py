"""The consultant: its class, and its template for `MAILAgentTemplate.from_example("consultant", …)`."""

from mail.examples.consultant_dummy.prompts import SYSPROMPT
from mail.factories import LiteLLMAgentFunction
from mail.factories.base import deprecated_factory


class LiteLLMConsultantFunction(LiteLLMAgentFunction):
    """A consultant, without actions; all its facts come from other agents."""


factory_consultant_dummy = deprecated_factory("factory_consultant_dummy", LiteLLMConsultantFunction)

consultant_agent_params = {"llm": "openai/gpt-5-mini", "system": SYSPROMPT}

TEMPLATE = {
    "factory": "python::mail.examples.consultant_dummy.agent:LiteLLMConsultantFunction",
    "actions": [],
    "agent_params": consultant_agent_params,
}
