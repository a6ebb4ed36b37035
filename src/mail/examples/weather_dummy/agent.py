"""The class of the weather agent."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMWeatherFunction(LiteLLMActionAgentFunction):
    """An agent that reports the weather; its action is `get_weather_forecast`."""
