"""The class of the weather agent."""

from mail.factories import LiteLLMActionAgentFunction
from mail.factories.base import deprecated_factory


class LiteLLMWeatherFunction(LiteLLMActionAgentFunction):
    """An agent that reports the weather; its action is `get_weather_forecast`."""


factory_weather_dummy = deprecated_factory("factory_weather_dummy", LiteLLMWeatherFunction)
