"""The swarms that work in a round: what they do depends on what they have read, and on nothing else.

A person's words are an order: its first word says what to do, its second is a mark that no other order has. `north` is
asked by people, `south` by north. Where an agent reads something that it should never get, it says UNEXPECTED, and
people notice.
"""

import asyncio
import zlib
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from chaos.invariants import Run
from chaos.process import PROCESS
from mail.core.task.swarm import ActionCore, AgentCore, AgentFunction, History, SwarmCore, ToolChoice
from mail.core.turns.context import CURRENT_TASK, TURN
from mail.examples.math_dummy.actions import calculate_expression
from mail.examples.rule_based import MathAgent, Supervisor, WeatherAgent
from mail.examples.rule_based.calls import say
from mail.examples.weather_dummy.actions import get_weather_forecast
from mail.testing.agents import (
    Call,
    View,
    acknowledge,
    broadcast,
    call,
    complete,
    ignore,
    interrupt,
    output,
    request,
    respond,
    wait,
)

NORTH, SOUTH = "north", "south"
WORKERS = ("ada", "bo", "cy", "di")
IDEMPOTENT = frozenset({"look", "calculate_expression", "get_weather_forecast"})
UNKNOWN = "the outcome is unknown"
STEPS = 40


class Swarms:
    """Both swarms, and what their actions have done.

    Attributes:
        ran: by task id, the actions that took effect. Tasks of one id in two swarms are one to those who asked.
        mended: the marks of orders whose `flaky` part does not fail any more.
    """

    def __init__(self, seed: str) -> None:
        self._seed = seed
        self.ran: dict[str, list[Run]] = {}
        self.mended: set[str] = set()

    def swarms(self) -> dict[str, SwarmCore]:
        """By name."""
        north = self._swarm(
            NORTH,
            {"chief": chief, "clerk": clerk, **dict.fromkeys(WORKERS, worker)},
            {"supervisor": Supervisor, "weather": WeatherAgent, "math": MathAgent},
        )
        return {NORTH: north, SOUTH: self._swarm(SOUTH, {"helper": helper, "aide": worker})}

    def _swarm(
        self, name: str, policies: dict[str, Callable[[View], Sequence[Call]]], demo: Any = None
    ) -> SwarmCore:
        actions = {
            "look": self._action("look", _found),
            "book": self._action("book", _booked),
            "calculate_expression": self._action("calculate_expression", calculate_expression),
            "get_weather_forecast": self._action("get_weather_forecast", get_weather_forecast),
        }
        first = next(iter(policies))
        agents = {
            each: AgentCore(
                self._agent(each, policy),
                comm_targets=(*(other for other in policies if other != each), "helper@south"),
                actions=("look", "book", "approve"),
                tool_format="completions",
                enable_entrypoint=each == first,
                can_complete_tasks=each == first,
                enable_interswarm=True,
            )
            for each, policy in policies.items()
        }
        for each, factory in (demo or {}).items():
            leads = each == "supervisor"
            targets = ["weather", "math"] if leads else ["supervisor"]
            agents[each] = AgentCore(
                _deaf_to_news(each, factory(name=each, comm_targets=targets)),
                comm_targets=targets,
                actions=() if leads else ("calculate_expression", "get_weather_forecast"),
                tool_format="responses",
                enable_entrypoint=leads,
                can_complete_tasks=leads,
            )
        return SwarmCore(
            name=name,
            version="1",
            entrypoint=first,
            agents=agents,
            actions={**actions, "approve": ActionCore("approve", _nothing)},
            breakpoint_tools=frozenset({"approve"}),
            task_message_limit=STEPS,
        )

    def _agent(self, name: str, policy: Callable[[View], Sequence[Call]]) -> Callable[..., Any]:
        async def function(history: History, choice: ToolChoice) -> Any:
            # What an agent says must not depend on when it is asked, as it is asked again where nothing of it was kept.
            thought = zlib.crc32(str(history[-1]["content"]).encode())
            chance = Random(f"{self._seed} {name} {len(history)} {thought}")
            await asyncio.sleep(chance.choice((0, 0, chance.uniform(0, 0.2), chance.uniform(0, 5))))
            pass_point(f"agent {name}")
            view = View(history, choice)
            word, _, mark = view.mail.body.partition(" ")
            if word == "flaky" and mark not in self.mended:
                raise ValueError(f"{mark} is nothing that I can do yet")
            return None, output(policy(view), prefix=f"{name}-{len(history)}-{thought}")

        return function

    def _action(self, name: str, result: Callable[[dict[str, Any]], Any]) -> ActionCore:
        async def function(args: dict[str, Any]) -> str:
            call_id = TURN.get().call.id
            chance = Random(f"{self._seed} {name} {call_id}")
            pass_point(f"before {name}")
            await asyncio.sleep(chance.choice((0, chance.uniform(0, 3))))
            pass_point(f"inside {name}")
            self.ran.setdefault(CURRENT_TASK.get() or "", []).append(Run(str(call_id), name))
            await asyncio.sleep(chance.choice((0, chance.uniform(0, 3))))
            pass_point(f"after {name}")
            return str(await result(args))

        return ActionCore(name, function, idempotent=name in IDEMPOTENT)


def _deaf_to_news(name: str, agent: AgentFunction) -> AgentFunction:
    """Agents of the demo would take every word for a question."""

    async def function(history: History, choice: ToolChoice) -> Any:
        if "<subject>News</subject>" in str(history[-1]["content"]):
            return say("responses", [("ignore_broadcast", {})], turn_id=f"{name}-news-{len(history)}")
        return await agent(history, choice)

    return function


def pass_point(where: str) -> None:
    """The process that runs an agent or an action may die in it, too."""
    process = PROCESS.get()
    if process is not None:
        process.points.hit(where)


async def _nothing(args: dict[str, Any]) -> str:
    raise AssertionError("a breakpoint tool is run by the user")


async def _found(args: dict[str, Any]) -> str:
    return f"found {args['mark']}"


async def _booked(args: dict[str, Any]) -> str:
    return f"booked {args['mark']}"


# ------------------------------------------------------------------------------------------------- agents


def chief(view: View) -> list[Call]:
    """What a person has ordered last, as far as it has come."""
    last = max(n for n, letter in enumerate(view.messages) if letter.sender_type == "user")
    verb, mark, *rest = view.messages[last].body.split()
    since = view.messages[last + 1 :]
    mail = view.mail
    if mail.subject == "::maximum_steps_reached::":
        return [complete(f"stopped {mark}")]
    if mail.subject == "::agent_error::":
        return [complete(f"told {mark}: {mail.body}")]
    if mail.subject == "::action_complete::":
        return [complete(f"{mark}: {mail.body}")]
    if mail.subject == "::runtime_error::" and "is a fork of task" in mail.body:
        return [complete(f"left behind {mark}")]
    if verb == "idle":
        return [wait("nothing")]
    if mail.sender_type == "system":
        return [complete(f"UNEXPECTED {mail.subject} {mail.body}")]
    if mail.sender_type == "user":
        return _begin(verb, mark, rest)
    answers = {letter.subject: letter.body for letter in since if letter.subject.startswith(f"Re: {mark}.")}
    if mail.subject not in answers:
        return [wait("what belongs to this order")]  # an answer to an order before it
    if verb == "loop":
        return [request("ada", f"square {len(answers)}", f"{mark}.{len(answers)}"), wait()]
    if len(answers) < _due(verb, rest):
        return [wait("the others")]
    return [complete(f"{mark}: {' '.join(answers[subject] for subject in sorted(answers))}")]


def _due(verb: str, rest: Sequence[str]) -> int:
    """How many answers an order needs."""
    return {"fan": int(rest[0]) if verb == "fan" else 0, "meet": 2}.get(verb, 1)


def _begin(verb: str, mark: str, rest: Sequence[str]) -> list[Call]:
    match verb:
        case "echo":
            return [complete(f"echo {mark}")]
        case "fan":
            asked = WORKERS[: int(rest[0])]
            return [*(request(name, f"square {n}", f"{mark}.{n}") for n, name in enumerate(asked)), wait()]
        case "act":
            return [request("clerk", "act", f"{mark}.act"), wait()]
        case "approve":
            return [call("approve", mark=mark)]
        case "meet":
            return [
                broadcast("we meet", "News"),
                interrupt("clerk", "hurry", f"{mark}.hurry"),
                request("ada", "square 7", f"{mark}.0"),
                wait(),
            ]
        case "abroad":
            return [request("helper@south", "square 9", f"{mark}.0"), wait()]
        case "loop":
            return [request("ada", "square 1", f"{mark}.first"), wait()]
        case "flaky":
            return [complete(f"mended {mark}")]
        case "delegate":
            return [request("bo", f"flaky {mark}", f"{mark}.0"), wait()]
        case "break":
            return [request("bo", "break", f"{mark}.0"), wait()]
    return [complete(f"UNEXPECTED order {verb}")]


def worker(view: View) -> list[Call]:
    mail = view.mail
    if mail.subject == "News":
        return [ignore() if zlib.crc32(mail.timestamp.encode()) % 2 else acknowledge("noted")]
    if mail.sender_type == "system":
        return [wait(mail.subject)]
    word, _, number = mail.body.partition(" ")
    if word == "flaky":
        return [respond(mail.sender, f"mended {number}", f"Re: {mail.subject}")]
    if word != "square":
        raise ValueError(f"{word} is nothing that I can do")
    return [respond(mail.sender, str(int(number) ** 2), f"Re: {mail.subject}")]


def clerk(view: View) -> list[Call]:
    mail = view.mail
    if mail.subject == "News":
        return [acknowledge("noted")]
    if mail.sender_type == "agent" and mail.subject.endswith(".hurry"):
        return [respond("chief", "hurried", f"Re: {mail.subject}")]
    asked = [letter.subject for letter in view.messages if letter.subject.endswith(".act")]
    if mail.sender_type == "agent":
        mark = mail.subject.removesuffix(".act")
        return [call("look", mark=mark), call("book", mark=mark)]
    if mail.subject in ("::action_complete::", "::action_error::"):
        return [respond("chief", "; ".join(mail.body.splitlines()), f"Re: {asked[-1]}")]
    return [respond("chief", f"UNEXPECTED {mail.subject} {mail.body}", f"Re: {asked[-1]}")]


def helper(view: View) -> list[Call]:
    """Works for chiefs elsewhere: has somebody else do it, and passes on what comes of it."""
    mail = view.mail
    if mail.sender_type == "system":
        return [wait(mail.subject)]
    if "@" in mail.sender:
        return [request("aide", mail.body, mail.subject), wait()]
    subject = mail.subject.removeprefix("Re: ")
    asker = next(letter.sender for letter in reversed(view.messages) if letter.subject == subject)
    return [respond(asker, mail.body, mail.subject)]
