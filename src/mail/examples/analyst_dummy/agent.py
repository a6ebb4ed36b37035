"""The analyst: its class, and its template for `MAILAgentTemplate.from_example("analyst", …)`."""

from mail.examples.analyst_dummy.prompts import SYSPROMPT
from mail.factories import LiteLLMAgentFunction
from mail.factories.base import deprecated_factory


class LiteLLMAnalystFunction(LiteLLMAgentFunction):
    """An analyst, without actions."""


factory_analyst_dummy = deprecated_factory("factory_analyst_dummy", LiteLLMAnalystFunction)

analyst_agent_params = {"llm": "openai/gpt-5-mini", "system": SYSPROMPT}

TEMPLATE = {
    "factory": "python::mail.examples.analyst_dummy.agent:LiteLLMAnalystFunction",
    "actions": [],
    "agent_params": analyst_agent_params,
}
