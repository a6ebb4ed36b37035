"""One swarm, three agents, one question: the mail between them as it is sent, and the answer.

    python scripts/single_swarm_demo.py "weather in Oslo tomorrow and 12*(3+4)"
    python scripts/single_swarm_demo.py --llm openai/gpt-5-mini "Do I need an umbrella in Oslo?"

Without --llm the agents follow rules, and no key is needed.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterable
from typing import Any

import environment  # noqa: F401  # first: it checks that MAIL is installed

from mail import MAILAgentTemplate, MAILSwarmTemplate
from mail.errors import MAILError
from mail.examples.math_dummy.template import action_calculate_expression
from mail.examples.rule_based import MathAgent, Supervisor, WeatherAgent
from mail.examples.weather_dummy.template import action_get_weather_forecast

TEAM = {"supervisor": ["weather", "math"], "weather": ["supervisor"], "math": ["supervisor"]}
"""The agents, and to whom each may write."""

ACTIONS = {"weather": [action_get_weather_forecast], "math": [action_calculate_expression]}
RULES = {"supervisor": Supervisor, "weather": WeatherAgent, "math": MathAgent}


def build_agent(name: str, llm: str | None) -> MAILAgentTemplate:
    """An agent that asks a model, as the examples have it, or one that follows rules."""
    if llm is not None:
        agent = MAILAgentTemplate.from_example(name, comm_targets=TEAM[name])
        agent.agent_params["llm"] = llm
        return agent
    return MAILAgentTemplate(
        name=name,
        factory=RULES[name],
        comm_targets=TEAM[name],
        actions=ACTIONS.get(name, []),
        agent_params={},
        enable_entrypoint=name == "supervisor",
        can_complete_tasks=name == "supervisor",
    )


def show(message: dict[str, Any]) -> None:
    """Print who writes what to whom."""
    letter = message["message"]
    recipients = letter.get("recipients") or [letter["recipient"]]
    names = ", ".join(recipient["address"] for recipient in recipients)
    print(f"{letter['sender']['address']:>10} → {names}: {letter['body']}")


async def main(question: str, llm: str | None) -> None:
    """Ask the swarm, and watch."""
    agents = [build_agent(name, llm) for name in TEAM]
    template = MAILSwarmTemplate(name="demo", version="1.0.0", agents=agents, entrypoint="supervisor")
    swarm = template.instantiate({"user_token": "dummy"}, user_id="ann")
    stream = await swarm.post_message_stream(question)
    events: AsyncIterable[Any] = stream.body_iterator
    async for event in events:
        data = json.loads(event.data)
        if event.event == "new_message":
            show(data["extra_data"]["full_message"])
    print(f"\nThe answer: {data['response']}")
    await swarm.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", nargs="?", default="weather in Oslo tomorrow and 12*(3+4)")
    parser.add_argument("--llm", metavar="MODEL", help="the model of all three, as litellm names it")
    arguments = parser.parse_args()
    try:
        asyncio.run(main(arguments.question, arguments.llm))
    except MAILError as error:
        sys.exit(error.detail)
