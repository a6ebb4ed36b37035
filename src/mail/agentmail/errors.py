"""What `mail.agentmail` refuses; both are bad requests of `mail.errors`' tree."""

from collections.abc import Mapping

from mail.agentmail.kinds import MessageType
from mail.errors import BadRequest


class MalformedMessage(BadRequest):
    """The message does not have the form of its type.

    `missing` and `invalid` map the name of each field at fault to its place, or to what is wrong with it; a name is
    that of the envelope's field or of the typed message's. All of them are told at once.
    """

    def __init__(self, kind: MessageType, missing: Mapping[str, str], invalid: Mapping[str, str]) -> None:
        self.kind = kind
        self.missing = dict(missing)
        self.invalid = dict(invalid)
        faults = [f"{name} is missing ({place})" for name, place in self.missing.items()]
        faults += [f"{name} is not valid ({why})" for name, why in self.invalid.items()]
        super().__init__(f"{kind}: {'; '.join(faults)}")

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of all fields at fault."""
        return (*self.missing, *self.invalid)


class UnknownMessage(BadRequest):
    """No message with this id has been read."""
