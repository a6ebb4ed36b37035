"""Basic arithmetic on text, without running the text as code."""

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

from mail.api.actions import action

Number = int | float

MAX_LENGTH = 300
"""Maximum number of characters of an expression."""

MAX_BITS = 1024
"""Maximum size of an integer, also of intermediate results: about 300 digits."""

MAX_PRECISION = 12


@action(
    description="Evaluate a basic arithmetic expression",
    parameters={
        "type": "object",
        "properties": {
            "expression": {"type": "string", "description": "Expression to evaluate"},
            "precision": {
                "type": "integer",
                "minimum": 0,
                "maximum": MAX_PRECISION,
                "description": "Optional number of decimal places",
            },
        },
        "required": ["expression"],
    },
    read_only=True,
)
async def calculate_expression(args: dict[str, Any]) -> str:
    """Return the value of an arithmetic expression, as text.

    Args:
        args: `expression`, made of numbers, + - * / // % ** and parentheses; `precision`, the number of
            decimal places to round to, from 0 to 12, optional.

    Raises ValueError for an invalid expression; the agent sees its text.
    """
    expression, precision = args.get("expression"), args.get("precision")
    if not isinstance(expression, str) or not expression.strip():
        raise ValueError("expression must be text, such as '12*(3+4)'")
    if precision is not None and (type(precision) is not int or not 0 <= precision <= MAX_PRECISION):
        raise ValueError(f"precision must be a whole number from 0 to {MAX_PRECISION}")
    try:
        return _format(evaluate(expression.strip()), precision)
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except OverflowError:
        raise ValueError("the result is too large") from None


def evaluate(expression: str) -> Number:
    """Return the value of an expression. Raises ValueError, ZeroDivisionError or OverflowError."""
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"the expression is longer than {MAX_LENGTH} characters")
    try:
        return _value(ast.parse(expression, mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{expression!r} is not an arithmetic expression") from None


def _format(value: Number, precision: int | None) -> str:
    if precision is not None:
        return f"{value:.{precision}f}"
    return str(value).removesuffix(".0")


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MAX_BITS:
        raise OverflowError
    result = base**exponent
    if isinstance(result, complex):
        raise ValueError("the root of a negative number is not a real number")
    return result


_OPERATIONS: dict[type[ast.AST], Callable[..., Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def _value(node: ast.expr) -> Number:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            value: Number = number
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATIONS:
            value = _OPERATIONS[type(operation)](_value(left), _value(right))
        case ast.UnaryOp(operation, operand) if type(operation) in _OPERATIONS:
            value = _OPERATIONS[type(operation)](_value(operand))
        case _:
            raise ValueError("only numbers, + - * / // % ** and parentheses can be calculated")
    if (isinstance(value, int) and value.bit_length() > MAX_BITS) or not math.isfinite(value):
        raise OverflowError
    return value
