"""`MAILRuntime`: a documented import path for `mail.api.runtime`."""

from mail.api.runtime import MAILRuntime

__all__ = ["MAILRuntime"]
