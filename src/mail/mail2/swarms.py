"""The swarms of a host as MAIL 2.0 has them: names under which agents and lists are."""

from dataclasses import asdict
from typing import Any

from mail.core.protocol.values import value
from mail.core.task.documents import PutIf
from mail.core.task.rows import Rows, Write
from mail.errors import Conflict, NotFound
from mail.mail2.accounts import Accounts
from mail.mail2.records import SWARMS, Row


@value
class Swarm(Row):
    """A swarm."""

    description: str
    keywords: tuple[str, ...]


class Swarms:
    """The swarms of a host; their agents are those of its accounts."""

    def __init__(self, rows: Rows, accounts: Accounts) -> None:
        self._rows = rows
        self._accounts = accounts

    async def all(self) -> list[dict[str, Any]]:
        """Return the summaries of all swarms, ordered by name."""
        agents = await self._agents()
        return [
            {"name": name, **asdict(Swarm.read(text)), "num_agents": len(agents.get(name, ()))}
            for name, text in await self._rows.find(SWARMS, "")
        ]

    async def get(self, name: str) -> dict[str, Any]:
        """Return a swarm with its agents. Raises NotFound."""
        text = (await self._rows.read((SWARMS, name))).get((SWARMS, name))
        if text is None:
            raise NotFound(f"there is no swarm {name!r}")
        agents = (await self._agents()).get(name, [])
        return {"name": name, **asdict(Swarm.read(text)), "agents": agents, "metadata": {}}

    async def create(self, name: str, swarm: Swarm) -> dict[str, Any]:
        """Make a swarm. Raises Conflict."""
        if not await self._rows.write([Write((SWARMS, name), swarm.text, PutIf.ABSENT)]):
            raise Conflict(f"the swarm {name} is taken")
        return await self.get(name)

    async def delete(self, name: str) -> dict[str, Any]:
        """Delete a swarm; its agents and lists stay. Raises NotFound."""
        found = await self.get(name)
        await self._rows.write([Write((SWARMS, name), None)])
        return found

    async def _agents(self) -> dict[str, list[str]]:
        """Return the names of the agents of each swarm."""
        found: dict[str, list[str]] = {}
        for account in await self._accounts.all("agent"):
            found.setdefault(account.swarm, []).append(account.name)
        return found
