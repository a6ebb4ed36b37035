"""The actions of the default swarm: made-up weather, and arithmetic."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mail.examples.math_dummy.actions import MAX_BITS, calculate_expression, evaluate
from mail.examples.weather_dummy.actions import MAX_DAYS_AHEAD, get_weather_forecast


class TestWeather:
    async def test_same_place_and_day_same_weather(self) -> None:
        tokyo = await get_weather_forecast({"location": "Tokyo"})
        assert tokyo == await get_weather_forecast({"location": "Tokyo", "days_ahead": 0, "metric": True})
        assert tokyo != await get_weather_forecast({"location": "Tokyo", "days_ahead": 1})
        assert tokyo != await get_weather_forecast({"location": "Rome"})
        assert json.loads(tokyo) == {
            "location": "Tokyo",
            "days_ahead": 0,
            "condition": "rainy",
            "temperature": 6,
            "unit": "°C",
        }

    async def test_units(self) -> None:
        fahrenheit = json.loads(await get_weather_forecast({"location": "Tokyo", "metric": False}))
        assert (fahrenheit["temperature"], fahrenheit["unit"]) == (43, "°F")

    @pytest.mark.parametrize(
        ("args", "complaint"),
        [
            ({}, "location"),
            ({"location": " "}, "location"),
            ({"location": 3}, "location"),
            ({"location": "x", "days_ahead": -1}, "days_ahead"),
            ({"location": "x", "days_ahead": MAX_DAYS_AHEAD + 1}, "days_ahead"),
            ({"location": "x", "days_ahead": True}, "days_ahead"),
            ({"location": "x", "days_ahead": "1"}, "days_ahead"),
        ],
    )
    async def test_senseless_arguments(self, args: dict[str, Any], complaint: str) -> None:
        with pytest.raises(ValueError, match=complaint):
            await get_weather_forecast(args)


class TestMath:
    @pytest.mark.parametrize(
        ("expression", "value"),
        [
            ("12*(3+4)", "84"),
            (" 1 + 1 ", "2"),
            ("8/2", "4"),
            ("1/4", "0.25"),
            ("-2**2", "-4"),
            ("2**-1", "0.5"),
            ("7//2", "3"),
            ("7%4", "3"),
            ("+3", "3"),
            ("2**10", "1024"),
            ("1e300*10", "1e+301"),
            ("-" * 299 + "1", "-1"),
        ],
    )
    async def test_value(self, expression: str, value: str) -> None:
        assert await calculate_expression({"expression": expression}) == value

    @pytest.mark.parametrize(("precision", "value"), [(0, "0"), (2, "0.33"), (12, "0.333333333333")])
    async def test_precision(self, precision: int, value: str) -> None:
        assert await calculate_expression({"expression": "1/3", "precision": precision}) == value

    @pytest.mark.parametrize(
        ("args", "complaint"),
        [
            ({}, "expression"),
            ({"expression": ""}, "expression"),
            ({"expression": 3}, "expression"),
            ({"expression": "1", "precision": 13}, "precision"),
            ({"expression": "1", "precision": True}, "precision"),
            ({"expression": "1/0"}, "division by zero"),
            ({"expression": "0**-1"}, "division by zero"),
            ({"expression": "2**100000"}, "too large"),
            ({"expression": "9**9**9**9"}, "too large"),
            ({"expression": "1e308*10"}, "too large"),
            ({"expression": "1e200**2"}, "too large"),
            ({"expression": "*".join(["2**1000"] * 20)}, "too large"),
            ({"expression": "(-8)**0.5"}, "negative number"),
            ({"expression": "1" * 301}, "longer than"),
            ({"expression": "(" * 150 + "1" + ")" * 150}, "longer than|not an arithmetic"),
            ({"expression": "2 +"}, "not an arithmetic"),
            ({"expression": "1\x00"}, "arithmetic|null"),
            ({"expression": "__import__('os')"}, "only numbers"),
            ({"expression": "True"}, "only numbers"),
            ({"expression": "1j"}, "only numbers"),
            ({"expression": "1 << 9"}, "only numbers"),
            ({"expression": "'a'*9"}, "only numbers"),
        ],
    )
    async def test_clear_errors(self, args: dict[str, Any], complaint: str) -> None:
        with pytest.raises(ValueError, match=complaint):
            await calculate_expression(args)

    @given(st.text(alphabet="0123456789+-*/%(). ", max_size=60))
    def test_any_expression_has_a_bounded_value_or_a_clear_error(self, expression: str) -> None:
        try:
            value = evaluate(expression)
        except (ValueError, ZeroDivisionError, OverflowError):
            return
        assert math.isfinite(value)
        assert abs(value) < 2**MAX_BITS
