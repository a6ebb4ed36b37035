"""A weather agent, and its action, which makes the weather up."""

from typing import TYPE_CHECKING

from mail.startup import homes_of, lazy_exports

if TYPE_CHECKING:
    from mail.examples.weather_dummy.actions import get_weather_forecast as get_weather_forecast
    from mail.examples.weather_dummy.agent import LiteLLMWeatherFunction as LiteLLMWeatherFunction
    from mail.examples.weather_dummy.prompts import SYSPROMPT as WEATHER_SYSPROMPT  # noqa: F401
    from mail.examples.weather_dummy.template import (
        action_get_weather_forecast as action_get_weather_forecast,
    )
    from mail.examples.weather_dummy.template import weather_agent_params as weather_agent_params

_HOMES = homes_of(
    {
        f"{__name__}.actions": "get_weather_forecast",
        f"{__name__}.agent": "LiteLLMWeatherFunction factory_weather_dummy",
        f"{__name__}.template": "action_get_weather_forecast weather_agent_params",
    }
)
__getattr__, __dir__ = lazy_exports(
    __name__, {**_HOMES, "WEATHER_SYSPROMPT": f"{__name__}.prompts:SYSPROMPT"}
)
