"""The action and the template of the weather agent, for `MAILAgentTemplate.from_example("weather", …)`."""

from mail.api.actions import MAILAction
from mail.examples.weather_dummy.actions import MAX_DAYS_AHEAD, get_weather_forecast
from mail.examples.weather_dummy.prompts import SYSPROMPT

action_get_weather_forecast = MAILAction(
    name="get_weather_forecast",
    description="Get the weather forecast for a given location",
    parameters={
        "type": "object",
        "properties": {
            "location": {"type": "string", "description": "The location to get the weather forecast for"},
            "days_ahead": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_DAYS_AHEAD,
                "description": "The number of days ahead to get the weather forecast for",
            },
            "metric": {"type": "boolean", "description": "Whether to use metric units"},
        },
        "required": ["location"],
    },
    function=get_weather_forecast,
    idempotent=True,
)

TEMPLATE = {
    "factory": "python::mail.examples.weather_dummy.agent:LiteLLMWeatherFunction",
    "actions": [action_get_weather_forecast],
    "agent_params": {"llm": "openai/gpt-5-mini", "system": SYSPROMPT},
}
