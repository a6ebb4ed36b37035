"""The costs of models: a documented import path for `mail.core.task.costs` and `mail.core.turns`."""

from mail.core.task.costs import MANY_MODELS, NO_MODELS, NO_USAGE, OTHER_MODELS, Usage, add_models
from mail.core.turns.context import report_usage
from mail.core.turns.usage import UsageMeter

__all__ = [
    "MANY_MODELS",
    "NO_MODELS",
    "NO_USAGE",
    "OTHER_MODELS",
    "Usage",
    "UsageMeter",
    "add_models",
    "report_usage",
]
