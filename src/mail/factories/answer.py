"""The answer in a reply that is still being streamed: the text of a call of `task_complete`."""

from pydantic_core import from_json

from mail.core.protocol.mail_tools import TaskComplete
from mail.core.turns.activity import ModelCall

LAG = 256
"""Arguments are read again when they have grown by one part in this many, so that the time for long ones is linear."""


class AnswerReader:
    """A reader of the arguments of `task_complete`, which reports the text of `finish_message` as it grows.

    If nobody wants the pieces of the reply, it reads nothing.
    """

    def __init__(self, model_call: ModelCall) -> None:
        self._model_call = model_call
        self._call: int | None = None
        self._arguments = ""
        self._unread: list[str] = []
        self._unread_size = 0
        self._reported = 0

    def add(self, call: int, name: str, piece: str) -> None:
        """Add a piece of the arguments of a call; `call` is its position in the reply. Only the first one counts."""
        self._model_call.note_chunk()
        if name != TaskComplete.tool_name or not piece:
            return
        if self._call is None:
            self._call = call
        if call != self._call:
            return
        self._unread.append(piece)
        self._unread_size += len(piece)
        if self._unread_size * LAG >= len(self._arguments):
            self.read()

    def read(self) -> None:
        """Report the text that has not been reported yet."""
        if not (self._unread and self._model_call.wants_deltas):
            return
        self._arguments += "".join(self._unread)
        self._unread.clear()
        self._unread_size = 0
        try:
            arguments = from_json(self._arguments, allow_partial="trailing-strings")
        except ValueError:  # the assembly reports it
            return
        text = arguments.get("finish_message") if isinstance(arguments, dict) else None
        if isinstance(text, str) and len(text) > self._reported:
            self._model_call.delta("answer", text[self._reported :])
            self._reported = len(text)
