"""Members of a swarm that run outside of it: people and agents that its agents write to by a name of its own.

Each is a peer of a task, with a mailbox of its own, whose name in the task is that of no swarm. Where the member is
reached, only the port `Members` understands.
"""

from mail.core.protocol.address import join_agent_address, parse_agent_address

_MARK = ":"

MEMBER_DAYS = 7.0
"""Days after which a request to a member expires, unless the swarm says otherwise."""


def peer_of_member(name: str) -> str:
    """Return the name that a member has among the peers of a task; no swarm's name contains `:`."""
    return _MARK + name


def member_of(peer: str) -> str | None:
    """Return the member that a peer is; None for a swarm."""
    return peer[len(_MARK) :] if peer.startswith(_MARK) else None


def member_address(name: str) -> str:
    """Return the address of a member in requests, of the form of a remote agent's."""
    return join_agent_address(name, peer_of_member(name))


def show_address(address: str) -> str:
    """Return an agent's address for display: of a member, its name."""
    name, peer = parse_agent_address(address)
    return address if peer is None or member_of(peer) is None else name


def show_peer(peer: str) -> str:
    """Return a peer for display."""
    return member_of(peer) or f"swarm {peer}"
