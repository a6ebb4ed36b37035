"""The audit, apart from tasks: who did what with rights."""

from datetime import datetime
from enum import StrEnum
from typing import Self

from mail.core.protocol.clock import Clock
from mail.core.protocol.values import value

STARTED = "started"
"""The outcome of an act that has not ended, or whose process has ended before it."""

OPERATOR = "operator"
"""Who acts by a command that opens the database itself."""

MAX_TEXT = 200
"""Characters of what a caller has named, in an entry."""


class Act(StrEnum):
    """An act with rights."""

    CREATE_TOKEN = "create token"  # noqa: S105
    REVOKE_TOKEN = "revoke token"  # noqa: S105
    MAKE_LINK = "make sign-in link"
    SIGN_IN = "sign in"
    SIGN_OUT = "sign out"
    LOAD_SWARM = "load swarm"
    DUMP_SWARM = "dump swarm"
    SAVE_DRAFT = "save draft"
    DELETE_DRAFT = "delete draft"
    PUBLISH_DRAFT = "publish draft"
    WITHDRAW_DRAFT = "withdraw draft"
    SET_HEALTH = "set health"
    REGISTER_SWARM = "register swarm"
    REMOVE_SWARM = "remove swarm"
    CANCEL_TASK = "cancel task"
    DELETE_TASK = "delete task"
    DECIDE = "decide on call"
    DELETE_CALLER = "delete caller"
    SET_HOLD = "set hold"
    LIFT_HOLD = "lift hold"
    READ_TURNS = "read turns of task"
    LIST_TASKS = "list tasks"
    LIST_DEAD_LETTERS = "list dead letters"
    REDRIVE = "redrive dead letters"
    DISCARD = "discard dead letters"
    REGISTER_WEBHOOK = "register webhook"
    DISABLE_WEBHOOK = "disable webhook"
    CREATE_SCHEDULE = "create schedule"
    CHANGE_SCHEDULE = "change schedule"
    DELETE_SCHEDULE = "delete schedule"
    RUN_SCHEDULE = "run schedule"
    CREATE_ACCOUNT = "create account"
    DELETE_ACCOUNT = "delete account"
    CHANGE_PASSWORD = "change password"  # noqa: S105
    LOG_IN = "log in"
    READ_AUDIT = "read audit"
    OPEN_TASK = "open task"
    SHARE_TASK = "share task"
    REVOKE_SHARE = "revoke share"
    READ_SHARE = "read shared task"
    REQUEST = "request"


@value
class AuditEntry:
    """An act with rights.

    Attributes:
        id: its time and a random part, which order entries.
        time: when it began, in ISO 8601, UTC.
        by: the principal who acted, or `OPERATOR`.
        on: what the act was about.
        owner: the principal whose task, webhook or schedule it was about; None for all callers', or for none of these.
        address: from where the request came; empty if that is unknown.
        reason: why, if the act asks for a reason.
        outcome: `done`, `refused`, `failed` or `STARTED`.
    """

    id: str
    time: str
    act: str
    by: str
    on: str = ""
    owner: str | None = None
    address: str = ""
    reason: str = ""
    outcome: str = STARTED

    @classmethod
    def begin(
        cls,
        clock: Clock,
        act: Act,
        by: str,
        on: str = "",
        *,
        owner: str | None = None,
        address: str = "",
        reason: str = "",
    ) -> Self:
        """Return the entry of an act that begins now."""
        now = clock.now()
        number = f"{cls.moment(now)}-{clock.new_id()}"
        return cls(number, now.isoformat(), act.value, by, on[:MAX_TEXT], owner, address, reason)

    @staticmethod
    def moment(time: datetime) -> str:
        """Return the beginning of the ids of entries of a time; those of later ones are greater."""
        return f"{int(time.timestamp() * 1_000_000):016d}"
