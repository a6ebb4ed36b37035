"""Calls of models: a documented import path for `mail.core.turns.context`."""

from mail.core.turns.context import model_call

__all__ = ["model_call"]
