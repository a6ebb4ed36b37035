"""The class of the agent."""

from mail.factories import LiteLLMSupervisorFunction


class LiteLLMCoordinatorFunction(LiteLLMSupervisorFunction):
    """An agent that leads the help desk."""
