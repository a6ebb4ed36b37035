"""What can be wrong with who is meant. Like every BadRequest they are ValueErrors, and in the tree of `mail.errors`."""

from mail.errors import BadRequest


class AlreadyRegistered(BadRequest):
    """The entity is already registered."""


class NotRegistered(BadRequest):
    """The entity is not registered."""
