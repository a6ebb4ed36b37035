"""The turn of an agent's mailbox whose mail waits for a copy of it: a copy that is free gets the first message."""

from mail.core.decisions.copies import hand_over
from mail.core.engine.leased_turn import LeasedTurn
from mail.core.task.change import TaskChange, Turn


class HandOver(LeasedTurn):
    """A turn that calls nobody, and costs no step."""

    turn: Turn

    async def run(self, seconds: float) -> TaskChange | None:
        """Commit the change; None if no copy is free."""
        return await self.commit(lambda draft: hand_over(draft, self.turn))

    async def fail(self, reason: str, upto: int, attempts: int) -> TaskChange | None:
        """Hand the message over nevertheless, as nothing in it was at fault; None if it is newer than `upto`."""
        return None if self.turn.entry.seq > upto else await self.run(0.0)
