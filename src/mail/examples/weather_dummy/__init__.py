"""A weather agent, and its action, which makes the weather up."""

from typing import TYPE_CHECKING

from mail.startup import lazy_exports

if TYPE_CHECKING:
    from mail.examples.weather_dummy.actions import get_weather_forecast as get_weather_forecast
    from mail.examples.weather_dummy.agent import LiteLLMWeatherFunction as LiteLLMWeatherFunction
    from mail.examples.weather_dummy.prompts import SYSPROMPT as WEATHER_SYSPROMPT  # noqa: F401
    from mail.examples.weather_dummy.template import (
        action_get_weather_forecast as action_get_weather_forecast,
    )
    from mail.examples.weather_dummy.template import weather_agent_params as weather_agent_params

_PACKAGE = "mail.examples.weather_dummy"
__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "WEATHER_SYSPROMPT": f"{_PACKAGE}.prompts:SYSPROMPT",
        "LiteLLMWeatherFunction": f"{_PACKAGE}.agent",
        "action_get_weather_forecast": f"{_PACKAGE}.template",
        "factory_weather_dummy": f"{_PACKAGE}.agent",
        "get_weather_forecast": f"{_PACKAGE}.actions",
        "weather_agent_params": f"{_PACKAGE}.template",
    },
)
