"""Who decides on a call: its reviewers, in place of the task's owner; and the index of what waits for whom."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StringConstraints, WithJsonSchema

from mail.core.protocol.address import Principal
from mail.core.protocol.values import Value, value

DecisionName = Literal["approve", "edit", "answer", "reject"]
"""A person's decision: whether a call runs, with which arguments, or the answer to the question that it asks."""

MOST_REVIEWERS = 8
"""How many roles and callers an action may name as reviewers, and as many to whom a call is escalated."""

MOST_REVIEWERS_IN_ALL = 32
"""How many a swarm may name, so that the commit of a turn stays small."""

LINKS = "link"
"""In place of a role: anybody who has the link of the call."""

Reviewer = Annotated[str, StringConstraints(pattern=r"^(admin|user)(:[^:@\x00-\x1f\x7f]{1,256})?$")]
"""A role, or a caller as `role:id`."""


class Approval(Value):
    """Who must approve the calls of an action, in place of the task's owner: `needs_approval=Approval(by=["admin"])`.

    Of a breakpoint tool, they answer the questions. They see and decide these calls only, and nothing else of the task.

    Args:
        by: roles (`admin`, `user`) and callers (`user:ann`); the first decision counts.
        not_requester: whether the task's owner may never decide, not even with another role.
        escalate_to: who may decide, too, if nobody has within the action's `approval_timeout`; they have as long again.
        otherwise: what happens to a call on which nobody decides in time.
        webhook: a URL that receives each request, with a link that takes the decision once, if there is a `secret`.
        secret: a reference to the secret that signs these requests and links, `${WEBHOOK_SECRET_NAME}`.
        when: a function of the arguments, a dictionary, that says whether a call needs approval; without it, each does.
    """

    by: tuple[Reviewer, ...] = Field(min_length=1, max_length=MOST_REVIEWERS, strict=False)
    not_requester: bool = False
    escalate_to: tuple[Reviewer, ...] = Field(default=(), max_length=MOST_REVIEWERS, strict=False)
    otherwise: Literal["reject", "approve"] = "reject"
    webhook: str = Field(default="", pattern=r"^(https?://\S+)?$")
    secret: str = Field(default="", pattern=r"^(\$\{WEBHOOK_SECRET_\w+\})?$")
    when: Annotated[Any, WithJsonSchema({"type": "string"})] = None

    @property
    def has_links(self) -> bool:
        """Whether its requests have links."""
        return bool(self.webhook and self.secret)

    @property
    def hook_id(self) -> str:
        """The id that its webhook has in a task, which no webhook of a caller has."""
        digest = sha256(f"{self.webhook}\n{self.secret}".encode()).hexdigest()
        return f"reviewers-{digest[:16]}" if self.webhook else ""

    def but(self, **fields: Any) -> Self:
        """Return it with other fields."""
        return type(self)(**{**dict(self), **fields})

    def escalated(self) -> Self:
        """Return it after its deadline: the others may decide, too."""
        return self.but(by=tuple(dict.fromkeys((*self.by, *self.escalate_to))), escalate_to=())

    def lets(self, caller: Principal, owner: Principal) -> bool:
        """Return whether a caller may decide on a call in a task of this owner."""
        if self.not_requester and caller.id == owner.id:
            return False
        return caller.swarm == owner.swarm and not {caller.role, f"{caller.role}:{caller.id}"}.isdisjoint(
            self.by
        )


@value
class LinkHolder:
    """Who has the link of a call, which was sent to a host."""

    approval_id: str
    host: str

    def __str__(self) -> str:
        return f"{LINKS}:{self.host}"


@value
class ShareHolder:
    """Who has a link to a task, by its number."""

    number: str

    def __str__(self) -> str:
        return f"{LINKS}:{self.number}"


@value
class Ask:
    """An entry of the index of what waits for a decision: whom a breakpoint asks.

    Attributes:
        who: a caller or a role of a swarm: `user:ann@example`, `admin@example`; `link@example` for those with links.
        id: that of the breakpoint, which begins with its time; so the oldest come first.
    """

    who: str
    id: str


APPROVAL_MARK = "."
"""Between the id of a breakpoint and the index of a call of it."""

NO_ASKS = frozenset[Ask]()


def whos(caller: Principal) -> tuple[str, str]:
    """Return under which names the index has what waits for a caller."""
    return str(caller), f"{caller.role}@{caller.swarm}"


def asked_by(instance: str, breakpoint_id: str, rule: Approval | None) -> Iterator[Ask]:
    """Yield whom a call asks: the task's owner, who sees what it waits for, and its reviewers."""
    yield Ask(instance, breakpoint_id)
    if rule is not None:
        swarm = instance.rpartition("@")[2]
        for each in (*rule.by, *((LINKS,) if rule.has_links else ())):
            yield Ask(f"{each}@{swarm}", breakpoint_id)
