"""A weather agent, and its action, which makes the weather up."""

from mail.examples.weather_dummy.actions import get_weather_forecast
from mail.examples.weather_dummy.agent import LiteLLMWeatherFunction, factory_weather_dummy
from mail.examples.weather_dummy.prompts import SYSPROMPT as WEATHER_SYSPROMPT
from mail.examples.weather_dummy.template import action_get_weather_forecast, weather_agent_params

__all__ = [
    "WEATHER_SYSPROMPT",
    "LiteLLMWeatherFunction",
    "action_get_weather_forecast",
    "factory_weather_dummy",
    "get_weather_forecast",
    "weather_agent_params",
]
