"""A desk for data: a lead, an agent that reads tables, a statistician, and a writer, with a model.

It is the swarm `data_analysis` of the package's swarms.json. Its tables are made up.
"""

import json
import math
import statistics
from typing import Annotated

from pydantic import BaseModel, Field

from mail.api.actions import action
from mail.core.protocol.error_text import did_you_mean
from mail.errors import ToolCallFault

LEAD_PROMPT = """\
You lead a team that answers questions about data.

Ask tables with send_request for the numbers that the question is about, and call await_message. Send the numbers to
statistician, and wait for the figures. Then ask writer for a text, giving it the question and the figures; wait, check that
the text says nothing that the figures don't, and call task_complete with it."""

TABLES_PROMPT = """\
You read tables for other agents.

Call list_tables if you don't know the table's name, then read_column for each column that is asked for. Then answer the agent that
asked with send_response: the numbers, complete and in order, with their unit. Calculate nothing."""

STATISTICIAN_PROMPT = """\
You calculate figures for other agents.

Call describe_numbers for each list of numbers; never calculate in your head. Then answer the agent that asked with
send_response: the figures that it needs, and whether there are too few numbers to say anything."""

WRITER_PROMPT = """\
You write up figures for readers who are no statisticians.

Answer the agent that asked with send_response: at most five sentences, the most important first, with every figure rounded
to what matters. Add no figure of your own, and no cause that nobody has named."""

TABLES: dict[str, dict[str, list[float]]] = {
    "bakery": {
        "loaves per day": [212, 198, 205, 240, 260, 310, 120],
        "visitors per day": [160, 150, 158, 181, 202, 255, 98],
    },
    "river": {
        "level in cm": [231, 234, 240, 262, 291, 284, 270, 255],
        "temperature in °C": [11.2, 11.4, 11.1, 10.8, 10.2, 10.4, 10.9, 11.3],
    },
}
"""The numbers of each column, by table."""

Number = Annotated[float, Field(allow_inf_nan=False)]


class Column(BaseModel):
    """The arguments of `read_column`."""

    table: str = Field(description="The name of the table, from list_tables.")
    column: str = Field(description="The name of the column.")


class Numbers(BaseModel):
    """The arguments of `describe_numbers`."""

    numbers: list[Number] = Field(min_length=1, max_length=10_000, description="The numbers.")


@action(idempotent=True)
async def list_tables() -> str:
    """List the tables. Returns JSON: the names of the columns, by table."""
    return json.dumps({table: list(columns) for table, columns in TABLES.items()}, ensure_ascii=False)


@action(idempotent=True)
async def read_column(wanted: Column) -> str:
    """Read a column of a table. Returns JSON: table, column and numbers."""
    columns = TABLES.get(wanted.table)
    if columns is None:
        raise ToolCallFault(f"there is no table {wanted.table!r}{did_you_mean(wanted.table, TABLES)}")
    if wanted.column not in columns:
        known = ", ".join(columns)
        raise ToolCallFault(f"table {wanted.table!r} has no column {wanted.column!r}; it has: {known}")
    shown = {"table": wanted.table, "column": wanted.column, "numbers": columns[wanted.column]}
    return json.dumps(shown, ensure_ascii=False)


@action(idempotent=True)
async def describe_numbers(wanted: Numbers) -> str:
    """Describe numbers. Returns JSON: count, sum, mean, median, minimum, maximum, and standard deviation of a sample."""
    numbers = wanted.numbers
    figures = {
        "count": len(numbers),
        "sum": math.fsum(numbers),
        "mean": statistics.fmean(numbers),
        "median": statistics.median(numbers),
        "minimum": min(numbers),
        "maximum": max(numbers),
        "standard_deviation": statistics.stdev(numbers) if len(numbers) > 1 else None,
    }
    return json.dumps({name: value if value is None else round(value, 6) for name, value in figures.items()})
