"""The example agents that `MAILAgentTemplate.from_example` knows."""

from importlib import import_module
from typing import Any

EXAMPLES = {
    "supervisor": "mail.examples.supervisor.template",
    "weather": "mail.examples.weather_dummy.template",
    "math": "mail.examples.math_dummy.template",
    "consultant": "mail.examples.consultant_dummy.template",
    "analyst": "mail.examples.analyst_dummy.template",
}
"""In each, `TEMPLATE` is the parameters of its template but for its name and `comm_targets`."""


def load_example(name: str) -> dict[str, Any]:
    """The parameters of an example agent's template."""
    template: dict[str, Any] = import_module(EXAMPLES[name]).TEMPLATE
    return dict(template)
