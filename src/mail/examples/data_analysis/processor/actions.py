"""Made-up data as CSV, and CSV as columns."""

import csv
import io
from collections.abc import Callable
from datetime import date, timedelta
from random import Random
from typing import Annotated, Any, Literal

from pydantic import Field

from mail.api.actions import action
from mail.errors import ToolCallFault

REGIONS = ("north", "east", "south", "west")

ROWS: dict[str, Callable[[Random, int], dict[str, Any]]] = {
    "sales": lambda luck, day: {
        "date": _date(day),
        "region": luck.choice(REGIONS),
        "units": (units := luck.randint(1, 40)),
        "revenue": round(units * luck.uniform(9, 12), 2),
    },
    "users": lambda luck, number: {
        "user": f"user-{number + 1}",
        "age": luck.randint(18, 80),
        "region": luck.choice(REGIONS),
        "visits": luck.randint(0, 60),
    },
    "inventory": lambda luck, number: {
        "item": f"item-{number + 1}",
        "stock": luck.randint(0, 500),
        "reorder_at": luck.randint(20, 80),
        "price": round(luck.uniform(1, 90), 2),
    },
    "weather": lambda luck, day: {
        "date": _date(day),
        "temperature": round(luck.gauss(12, 6), 1),
        "rain_mm": max(0.0, round(luck.gauss(1, 4), 1)),
        "wind_kmh": luck.randint(0, 60),
    },
}
"""A row of each dataset, by its number."""


def _date(day: int) -> str:
    return str(date(2025, 1, 1) + timedelta(days=day))


@action(read_only=True)
def generate_sample_data(
    dataset: Literal["sales", "users", "inventory", "weather"],
    rows: Annotated[int, Field(ge=1, le=1000)] = 50,
) -> str:
    """Make up a table, always the same one. Returns CSV with a header.

    Args:
        dataset: what the table is about.
        rows: how many rows it has.
    """
    luck = Random(dataset)  # noqa: S311 - the same data each time
    table = [ROWS[dataset](luck, number) for number in range(rows)]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(table[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()


@action(read_only=True)
def parse_csv(data: Annotated[str, Field(min_length=1, max_length=1_000_000)]) -> dict[str, Any]:
    """Read CSV with a header. Returns JSON: the number of rows, and columns: the values of each, as numbers if all are.

    Args:
        data: the text.
    """
    try:
        header, *rows = [row for row in csv.reader(io.StringIO(data), strict=True) if row] or [[]]
    except csv.Error as error:
        raise ToolCallFault(f"the data is not CSV: {error}") from error
    for number, row in enumerate(rows, start=2):
        if len(row) != len(header):
            raise ToolCallFault(f"row {number} has {len(row)} values, but the header has {len(header)}")
    columns = {name.strip(): _values([row[place] for row in rows]) for place, name in enumerate(header)}
    return {"rows": len(rows), "columns": columns}


def _values(texts: list[str]) -> list[str] | list[float]:
    try:
        return [float(text) for text in texts]
    except ValueError:
        return texts
