"""The class of the agent."""

from mail.factories import LiteLLMSupervisorFunction


class LiteLLMAnalystFunction(LiteLLMSupervisorFunction):
    """An agent that leads the analysis."""
