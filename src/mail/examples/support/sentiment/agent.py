"""The class of the agent."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMSentimentFunction(LiteLLMActionAgentFunction):
    """An agent that judges how a customer feels."""
