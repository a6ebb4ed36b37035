"""Cron expressions: when they come, where clocks move, and what is said about wrong ones."""

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from mail.core.protocol.cron import check_cron, latest_times, next_time
from mail.errors import BadRequest

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"


def local(zone: str, text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def coming(cron: str, zone: str, after: str, count: int) -> list[str]:
    """Return the next times, as the clocks of the zone show them, with their offset."""
    shown, time = [], local(zone, after)
    for _ in range(count):
        time = next_time(cron, zone, time)
        shown.append(datetime.fromtimestamp(time, ZoneInfo(zone)).isoformat(timespec="minutes"))
    return shown


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        pytest.param(
            "30 2 * * *",
            BERLIN,
            "2026-03-28T12:00",
            ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"],
            id="a skipped time comes right after",
        ),
        pytest.param(
            "30 2 * * *",
            BERLIN,
            "2026-10-24T12:00",
            ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"],
            id="a repeated time comes once",
        ),
        pytest.param(
            "0,30 1-3 * * *",
            NEW_YORK,
            "2026-03-08T00:00",
            [
                "2026-03-08T01:00-05:00",
                "2026-03-08T01:30-05:00",
                "2026-03-08T03:00-04:00",
                "2026-03-08T03:30-04:00",
                "2026-03-09T01:00-04:00",
            ],
            id="several skipped times come as one",
        ),
        pytest.param(
            "0,30 1-2 * * *",
            NEW_YORK,
            "2026-11-01T00:00",
            [
                "2026-11-01T01:00-04:00",
                "2026-11-01T01:30-04:00",
                "2026-11-01T02:00-05:00",
                "2026-11-01T02:30-05:00",
                "2026-11-02T01:00-05:00",
            ],
            id="several repeated times come once each",
        ),
        pytest.param(
            "15 2 * * *",
            LORD_HOWE,
            "2026-10-03T12:00",
            ["2026-10-04T02:30+11:00", "2026-10-05T02:15+11:00"],
            id="half an hour is skipped",
        ),
        pytest.param(
            "45 1 * * *",
            LORD_HOWE,
            "2026-04-04T12:00",
            ["2026-04-05T01:45+11:00", "2026-04-06T01:45+10:30"],
            id="half an hour is repeated",
        ),
        pytest.param(
            "0 * * * *",
            BERLIN,
            "2026-10-25T01:30",
            ["2026-10-25T02:00+02:00", "2026-10-25T02:00+01:00", "2026-10-25T03:00+01:00"],
            id="each hour comes after an hour",
        ),
        pytest.param(
            "0 0 * * *",
            "America/Havana",
            "2026-03-07T12:00",
            ["2026-03-08T01:00-04:00", "2026-03-09T00:00-04:00"],
            id="midnight is skipped",
        ),
        pytest.param(
            "0 12 29 2 *",
            "UTC",
            "2026-01-01T00:00",
            ["2028-02-29T12:00+00:00", "2032-02-29T12:00+00:00"],
            id="leap days",
        ),
        pytest.param(
            "0 12 29 2 *", "UTC", "2096-03-01T00:00", ["2104-02-29T12:00+00:00"], id="2100 is no leap year"
        ),
        pytest.param(
            "0 9 * * mon#1",
            "Asia/Tokyo",
            "2026-10-25T00:00",
            ["2026-11-02T09:00+09:00", "2026-12-07T09:00+09:00"],
            id="the first Monday of a month",
        ),
        pytest.param(
            "0 18 lw * *", BERLIN, "2026-05-01T00:00", ["2026-05-29T18:00+02:00"], id="the last working day"
        ),
    ],
)
def test_the_times_of_an_expression(cron: str, zone: str, after: str, expected: list[str]) -> None:
    assert coming(cron, zone, after, len(expected)) == expected


@pytest.mark.parametrize(
    ("cron", "zone", "day"),
    [
        ("30 2 * * *", BERLIN, "2026-03-29"),
        ("30 2 * * *", BERLIN, "2026-10-25"),
        ("10,50 1,2 * * *", NEW_YORK, "2026-11-01"),
        ("15,45 1-2 * * *", LORD_HOWE, "2026-04-05"),
        ("15,45 1-2 * * *", LORD_HOWE, "2026-10-04"),
        ("*/20 * * * *", BERLIN, "2026-10-25"),
    ],
)
def test_it_does_not_matter_when_one_asks(cron: str, zone: str, day: str) -> None:
    """A question in the middle of a change of the clocks has the same answer as one before it."""
    begin = local(zone, f"{day}T00:00")
    all_times = latest_times(cron, zone, begin, begin + 2 * 86_400, 1000)
    for asked in range(int(begin), int(begin) + 5 * 3600, 300):
        assert next_time(cron, zone, asked) == next(time for time in all_times if time > asked)


def test_the_latest_times_are_found_after_a_minute_and_after_years() -> None:
    until = local("UTC", "2026-06-01T12:00")
    assert latest_times("* * * * *", "UTC", until - 180, until, 24) == [until - 120, until - 60, until]
    assert latest_times("* * * * *", "UTC", 0.0, until, 3) == [until - 120, until - 60, until]
    years = latest_times("0 12 1 6 *", "UTC", local("UTC", "2019-06-01T12:00"), until, 24)
    assert [datetime.fromtimestamp(time, ZoneInfo("UTC")).year for time in years] == [*range(2020, 2027)]
    assert latest_times("0 0 29 2 *", "UTC", until - timedelta(days=300).total_seconds(), until, 24) == []


@pytest.mark.parametrize(
    ("cron", "zone", "problem"),
    [
        ("* * * *", "UTC", "has 4 of 5 fields; write five fields, minute hour day month weekday"),
        ("0 8 * * * *", "UTC", "has 6 of 5 fields"),
        ("61 * * * *", "UTC", "bad minute; write five fields"),
        ("0 8 * * noday", "UTC", "bad day-of-week"),
        ("0 0 30 2 *", "UTC", "bad day-of-month"),
        ("0 0 */20 * 1L", "UTC", "never comes"),
        ("0 8 * * *", "Europe/Berln", "no time zone 'Europe/Berln'. Did you mean 'Europe/Berlin'?"),
        ("0 8 * * *", "Mars", "no time zone 'Mars'; write one such as Europe/Berlin, or UTC"),
        ("0 8 * * *", "../UTC", "no time zone '../UTC'"),
        ("0 8 * * *", "Europe", "no time zone 'Europe'"),
    ],
)
def test_what_is_said_about_a_wrong_one(cron: str, zone: str, problem: str) -> None:
    with pytest.raises(BadRequest) as refusal:
        check_cron(cron, zone)
    assert problem in refusal.value.detail
