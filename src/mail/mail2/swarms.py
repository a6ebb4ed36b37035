"""The swarms of a host as MAIL 2.0 has them: names under which agents and lists are."""

from dataclasses import asdict
from typing import Any

from mail.core.protocol.values import value
from mail.core.task.documents import PutIf
from mail.core.task.rows import Rows, Write
from mail.errors import Conflict, NotFound
from mail.mail2.accounts import Accounts
from mail.mail2.agents import Agents, slug_of
from mail.mail2.records import SWARMS, Row

MAX_DESCRIPTION = 255


@value
class Swarm(Row):
    """A swarm."""

    description: str
    keywords: tuple[str, ...]


@value
class Swarms:
    """The swarms of a host: the one that it runs, and those made here.

    Their agents are those of its accounts, and the entrypoints of the one that runs.
    """

    _rows: Rows
    _accounts: Accounts
    _running: Agents

    async def all(self) -> list[dict[str, Any]]:
        """Return the summaries of all swarms, ordered by name."""
        agents = await self._agents()
        made = {name: Swarm.read(text) for name, text in await self._rows.find(SWARMS, "")}
        return [
            {"name": name, **asdict(swarm), "num_agents": len(agents.get(name, ()))}
            for name, swarm in sorted({**made, **self._run()}.items())
        ]

    async def get(self, name: str) -> dict[str, Any]:
        """Return a swarm with its agents. Raises NotFound."""
        made = await Swarm.find(self._rows, (SWARMS, name))
        swarm = self._run().get(name) or (made and made[0])
        if swarm is None:
            raise NotFound(f"there is no swarm {name!r}")
        agents = (await self._agents()).get(name, [])
        return {"name": name, **asdict(swarm), "agents": agents, "metadata": {}}

    async def create(self, name: str, swarm: Swarm) -> dict[str, Any]:
        """Make a swarm. Raises Conflict."""
        if name in self._run() or not await self._rows.write(
            [Write((SWARMS, name), swarm.text, PutIf.ABSENT)]
        ):
            raise Conflict(f"the swarm {name} is taken")
        return await self.get(name)

    async def delete(self, name: str) -> dict[str, Any]:
        """Delete a swarm; its agents and lists stay. Raises NotFound, and Conflict for the one that runs."""
        found = await self.get(name)
        if name in self._run():
            raise Conflict(f"the swarm {name} runs on this server")
        await self._rows.write([Write((SWARMS, name), None)])
        return found

    def _run(self) -> dict[str, Swarm]:
        """Return the swarm that runs, by its name here."""
        swarm = self._running.swarm
        if swarm is None:
            return {}
        keywords = tuple(dict.fromkeys(map(slug_of, swarm.keywords)))
        return {slug_of(swarm.name): Swarm(swarm.description[:MAX_DESCRIPTION], keywords)}

    async def _agents(self) -> dict[str, list[str]]:
        """Return the names of the agents of each swarm."""
        found: dict[str, list[str]] = {}
        for key in self._running.entrypoints():
            name, _, swarm = key.partition("@")
            found.setdefault(swarm, []).append(name)
        for account in await self._accounts.all("agent"):
            found.setdefault(account.swarm, []).append(account.name)
        return found
