"""The weather agent: its class, and its action and template for `MAILAgentTemplate.from_example("weather", …)`."""

from mail.examples.weather_dummy.actions import get_weather_forecast
from mail.examples.weather_dummy.prompts import SYSPROMPT
from mail.factories import LiteLLMActionAgentFunction
from mail.factories.base import deprecated_factory


class LiteLLMWeatherFunction(LiteLLMActionAgentFunction):
    """An agent that reports the weather; its action is `get_weather_forecast`."""


factory_weather_dummy = deprecated_factory("factory_weather_dummy", LiteLLMWeatherFunction)

action_get_weather_forecast = get_weather_forecast

weather_agent_params = {"llm": "openai/gpt-5-mini", "system": SYSPROMPT}

TEMPLATE = {
    "factory": "python::mail.examples.weather_dummy.agent:LiteLLMWeatherFunction",
    "actions": [action_get_weather_forecast],
    "agent_params": weather_agent_params,
}
