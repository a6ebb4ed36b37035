"""The class of the agent."""

from mail.factories import LiteLLMSupervisorFunction


class LiteLLMResearcherFunction(LiteLLMSupervisorFunction):
    """An agent that leads the research desk."""
