"""The agent that tells the weather."""

from mail.factories import LiteLLMActionAgentFunction


class LiteLLMWeatherFunction(LiteLLMActionAgentFunction):
    """Tells the weather; its action is `get_weather_forecast`."""
