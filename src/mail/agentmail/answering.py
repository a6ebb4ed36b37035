"""Which requests a message answers: the one place where that is decided.

| a message | answers |
| --- | --- |
| that says which message it replies to | that one |
| HELP_RESPONSE | the oldest open HELP_REQUEST in its thread: of the bead that it names, if it names one |
| SPAWN_ACK | all open SPAWN_REQUESTs for its issue |

A HELP_RESPONSE that replies to something else than a HELP_REQUEST answers both.
"""

from mail.agentmail.envelope import AgentMailMessage
from mail.agentmail.kinds import MessageType


class Answering:
    """Reads messages one by one, and numbers them from 0. What one takes depends only on the requests still open."""

    def __init__(self) -> None:
        self._types: list[MessageType] = []
        self._help: dict[str, dict[int, str]] = {}
        self._spawn: dict[str, dict[int, None]] = {}
        self._open: dict[int, dict[int, str] | dict[int, None]] = {}

    def read(self, message: AgentMailMessage, thread_id: str, target: int | None) -> tuple[int, ...]:
        """The numbers of what the next message answers, which isn't open any more; first what it stands below.

        `target` is the number of the message that it says it replies to, if it does and that has been read.
        """
        found: list[int] = [] if target is None else [target]
        if message.type is MessageType.HELP_RESPONSE and not self._asks_for_help(target):
            waiting = self._help.get(thread_id, {})
            of_bead = (number for number, bead_id in waiting.items() if message.bead_id in ("", bead_id))
            found += [number for number in [next(of_bead, None)] if number is not None]
        elif message.type is MessageType.SPAWN_ACK:
            found += reversed(self._spawn.get(message.bead_id, {}))
        for number in found:
            self.close(number)
        self._note(message, thread_id)
        return tuple(dict.fromkeys(found))

    def close(self, number: int) -> None:
        """What has this number has been answered."""
        self._open.pop(number, {}).pop(number, None)

    def _asks_for_help(self, number: int | None) -> bool:
        return number is not None and self._types[number] is MessageType.HELP_REQUEST

    def _note(self, message: AgentMailMessage, thread_id: str) -> None:
        number = len(self._types)
        self._types.append(message.type)
        if message.type is MessageType.HELP_REQUEST:
            of_thread = self._help.setdefault(thread_id, {})
            of_thread[number] = message.bead_id
            self._open[number] = of_thread
        elif message.type is MessageType.SPAWN_REQUEST:
            of_issue = self._spawn.setdefault(message.bead_id, {})
            of_issue[number] = None
            self._open[number] = of_issue
