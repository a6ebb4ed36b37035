"""Invented weather: the same location and day always have the same weather."""

import json
from hashlib import sha256
from typing import Any

from mail.api.actions import action

CONDITIONS = ("sunny", "partly cloudy", "cloudy", "foggy", "rainy", "stormy", "snowy")
MAX_DAYS_AHEAD = 14


@action(
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
    read_only=True,
)
async def get_weather_forecast(args: dict[str, Any]) -> str:
    """Return the forecast for a location, as a JSON object.

    Args:
        args: `location`; `days_ahead`, 0 for today, which is the default; `metric`, true by default.

    Raises ValueError for invalid arguments; the agent sees its text.
    """
    location, days_ahead, metric = args.get("location"), args.get("days_ahead", 0), args.get("metric", True)
    if not isinstance(location, str) or not location.strip():
        raise ValueError("location must be the name of a place")
    if type(days_ahead) is not int or not 0 <= days_ahead <= MAX_DAYS_AHEAD:
        raise ValueError(f"days_ahead must be a whole number from 0 to {MAX_DAYS_AHEAD}")
    luck = sha256(f"{location.strip().casefold()}/{days_ahead}".encode(errors="replace")).digest()
    celsius = luck[0] % 41 - 8
    forecast = {
        "location": location.strip(),
        "days_ahead": days_ahead,
        "condition": CONDITIONS[luck[1] % len(CONDITIONS)],
        "temperature": celsius if metric else round(celsius * 9 / 5 + 32),
        "unit": "°C" if metric else "°F",
    }
    return json.dumps(forecast, ensure_ascii=False)
