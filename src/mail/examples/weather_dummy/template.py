"""The action and the template of the weather agent, for `MAILAgentTemplate.from_example("weather", …)`."""

from mail.examples.weather_dummy.actions import get_weather_forecast
from mail.examples.weather_dummy.prompts import SYSPROMPT

action_get_weather_forecast = get_weather_forecast

weather_agent_params = {"llm": "openai/gpt-5-mini", "system": SYSPROMPT}

TEMPLATE = {
    "factory": "python::mail.examples.weather_dummy.agent:LiteLLMWeatherFunction",
    "actions": [action_get_weather_forecast],
    "agent_params": weather_agent_params,
}
