"""The agent that advises."""

from mail.factories import LiteLLMAgentFunction


class LiteLLMConsultantFunction(LiteLLMAgentFunction):
    """Advises on decisions; it has no actions, only what others tell it."""
