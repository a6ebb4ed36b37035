"""LangGraph with its SQLite checkpointer: `python on_langgraph.py sqlite:///<path>`.

A node is a turn. `durability="sync"` persists each step before the next one begins, as the others do
(https://docs.langchain.com/oss/python/langgraph/durable-execution). The state has the last message only, as a list of
all of them would be written again at every step.
"""

import asyncio
import sys
from typing import TypedDict
from uuid import uuid4

from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from workload import TEXT, serve


class State(TypedDict):
    """What the nodes hand on."""

    message: str
    left: int


async def agent(state: State) -> State:
    """Take a turn."""
    return {"message": TEXT, "left": state["left"] - 1}


def build() -> StateGraph:
    """Two agents that take turns until none is left."""
    graph = StateGraph(State)
    for name, other in (("supervisor", "worker"), ("worker", "supervisor")):
        graph.add_node(name, agent)
        graph.add_conditional_edges(
            name, lambda state, other=other: other if state["left"] else END, [other, END]
        )
    graph.add_edge(START, "supervisor")
    return graph


class LangGraph:
    """A compiled graph."""

    def __init__(self, checkpointer: AsyncSqliteSaver) -> None:
        self.graph = build().compile(checkpointer=checkpointer)

    async def run(self, turns: int) -> None:
        """Run the graph on a new thread."""
        config = {"configurable": {"thread_id": uuid4().hex}, "recursion_limit": turns + 1}
        end = await self.graph.ainvoke({"message": TEXT, "left": turns}, config, durability="sync")
        assert end["left"] == 0


async def main(database: str) -> None:
    """Serve until stdin ends."""
    async with AsyncSqliteSaver.from_conn_string(database.removeprefix("sqlite:///")) as checkpointer:
        await serve(LangGraph(checkpointer))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
