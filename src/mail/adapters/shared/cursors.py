"""Cursors of a list in which each task has a number, and the newest has the highest."""

from mail.errors import BadRequest

LAST_PLACE = 2**63 - 1


def place_before(cursor: str | None) -> int:
    """The task before which a page starts. Raises BadRequest for a cursor that no page gave out."""
    if cursor is not None and not (cursor.isascii() and cursor.isdigit() and len(cursor) < 19):
        raise BadRequest(f"cursor {cursor!r} is not one that this server gave out")
    return int(cursor or LAST_PLACE)
