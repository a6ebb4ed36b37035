"""How many answers have led to a mail: so that agents don't write to each other for ever."""

from dataclasses import dataclass
from weakref import WeakValueDictionary

from mail.core.task.context import CURRENT_TASK
from mail.exchange.mail import Mail

REPLIES = "replies"
"""In the metadata of a mail that an agent has written: how many such mails have led to it, itself included."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Chain:
    """What an agent works on.

    Attributes:
        replies: how many answers have led to the mail that it reads.
        most: how many may follow one upon another.
    """

    replies: int
    most: int

    @property
    def is_at_its_end(self) -> bool:
        """Whether nothing is sent any more."""
        return self.replies >= self.most

    @property
    def metadata(self) -> dict[str, int]:
        """What goes with a mail that the agent writes."""
        return {REPLIES: self.replies + 1}


_BY_TASK: WeakValueDictionary[str, Chain] = WeakValueDictionary()
"""The chains of the tasks that a bridge of this process has mail worked on in. The bridges hold them."""


def remember(task_id: str, chain: Chain) -> None:
    """Tell the actions of a task what it works on, as long as the caller holds the chain."""
    _BY_TASK[task_id] = chain


def present_chain() -> Chain | None:
    """Inside of an action: what its agent works on, None where no bridge of this process has brought it."""
    return _BY_TASK.get(CURRENT_TASK.get())


def replies_to(mail: Mail) -> int:
    """How many answers have led to a mail; what is no number, as others may have written it, counts as none."""
    found = mail.metadata.get(REPLIES, 0)
    return max(0, found) if isinstance(found, int) else 0
