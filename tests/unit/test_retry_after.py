"""The header `Retry-After`."""

from datetime import UTC, datetime

import pytest

from mail.core.protocol.retry_after import read_retry_after

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("", None),
        ("soon", None),
        ("7", 7.0),
        (" 7 ", 7.0),
        ("0.5", 0.5),
        ("-1", 0.0),
        ("٣", None),
        ("inf", None),
        ("1e3", None),
        ("9" * 400, None),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 12:00:30 -0000", 30.0),  # a date without a time zone
        ("Thu, 01 Jan 2026 13:00:30 +0100", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("Thu, 41 Jan 2026 11:00:00 GMT", None),
        ("Thu, 01 Jan 2026 11:00:00 +99999999999999999", None),
    ],
)
def test_numbers_and_dates_are_read(header: str, seconds: float | None) -> None:
    assert read_retry_after(header, NOW) == seconds
