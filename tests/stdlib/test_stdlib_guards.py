"""Ready-made guards, and guards in swarms.json and in Python."""

import json
from pathlib import Path
from typing import Any

import pytest

from mail import ALLOW, Act, Agent, Refuse, Ruling, Swarm, guard
from mail.core.task.guards import AskPerson, Guard, Replace
from mail.errors import ConfigurationError
from mail.stdlib.guards import SECRETS, max_length, no_secrets, policy
from mail.swarms_json.build import build_swarm
from mail.swarms_json.specs import SwarmSpec
from mail.testing import call, with_scripts

HERE = f"python::{__name__}"


def act(text: str = "", **settings: Any) -> Act:
    about = {"on": "call", "agent": "clerk", "caller": "user:ann@desk", "task_id": "t"}
    return Act(text=text, **{**about, **settings})


@guard(on="answer")
def polite(act: Act) -> Ruling:
    return ALLOW if "please" in act.text else Refuse("say please")


def too_strict(limit: int) -> int:
    return limit


# ---------------------------------------------------------------------------------------- length and secrets


async def test_a_text_may_have_so_many_characters() -> None:
    judge = max_length(3).function
    assert await judge(act("abc")) == ALLOW
    assert await judge(act("abcd")) == Refuse("it has 4 characters, and may have 3")
    with pytest.raises(ConfigurationError, match="at least 1"):
        max_length(0)


KNOWN = {
    "a private key": "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
    "an AWS access key": "AKIA" + "Q7" * 8,
    "a token of GitHub": "ghp_" + "a1" * 18,
    "a key of OpenAI or Anthropic": "sk-ant-" + "a1" * 20,
    "a token of Slack": "xoxb-" + "1234567890-ab",
    "a key of Google": "AIza" + "b" * 35,
    "a key of Stripe": "sk_live_" + "c3" * 12,
    "a JSON Web Token": "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2QT4",
    "a token of MAIL": "mail_user_" + "d4" * 22,
}


@pytest.mark.parametrize("what", SECRETS)
async def test_secrets_are_found_and_hidden(what: str) -> None:
    text = f"It is {KNOWN[what]}, really."
    assert await no_secrets().function(act(text)) == Refuse(f"it contains {what}")
    assert await no_secrets(mask=True).function(act(text)) == Replace(f"It is [{what}], really.")
    hidden = act("harmless", arguments={"target": [KNOWN[what]]})
    assert await no_secrets(mask=True).function(hidden) == Refuse(f"it contains {what}")


async def test_no_secrets_in_plain_text_and_patterns_of_ones_own() -> None:
    text = "Ask Ann about the sk-learn class, AKIA and mail_order; ghp_ is a prefix. SWORDFISH!"
    assert await no_secrets().function(act(text)) == ALLOW
    mine = no_secrets(patterns={"the word": "SWORDFISH"})
    assert await mine.function(act(text)) == Refuse("it contains the word")
    with pytest.raises(ConfigurationError, match="not a regular expression"):
        no_secrets(patterns={"it": "("})


# -------------------------------------------------------------------------------------------------- the policy

RULES = """
[[rules]]
actions = ["look_up", "search_*"]

[[rules]]
actions = ["refund"]
callers = ["admin:*"]

[[rules]]
actions = ["refund"]
agents = ["clerk"]
arguments.amount = { maximum = 100 }

[[rules]]
actions = ["refund"]
then = "ask"
reason = "Is it right?"

[[rules]]
actions = ["drop"]
then = "refuse"
reason = "never"
"""


@pytest.mark.parametrize(
    ("tool", "arguments", "settings", "ruling"),
    [
        ("look_up", {}, {}, ALLOW),
        ("search_web", {}, {}, ALLOW),
        ("refund", {"amount": 100}, {}, ALLOW),
        ("refund", {"amount": 101}, {}, AskPerson("Is it right?")),
        ("refund", {}, {}, AskPerson("Is it right?")),
        ("refund", {"amount": 5}, {"agent": "chief"}, AskPerson("Is it right?")),
        ("refund", {"amount": 500}, {"caller": "admin:bob@desk"}, ALLOW),
        ("drop", {}, {"caller": "admin:bob@desk"}, Refuse("never")),
        ("other", {}, {}, Refuse("the policy does not allow agent clerk this call of other")),
    ],
)
async def test_the_first_rule_that_fits_decides(
    tmp_path: Path, tool: str, arguments: dict[str, Any], settings: dict[str, str], ruling: Ruling
) -> None:
    (tmp_path / "policy.toml").write_text(RULES)
    judge = policy(tmp_path / "policy.toml").function
    assert await judge(act(tool=tool, arguments=arguments, **settings)) == ruling


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ("nowhere.toml", "nowhere.toml can't be read"),
        ({"rules": [{"action": ["x"]}]}, "action"),
        ({"rules": [], "default": "perhaps"}, "default"),
        ({"rules": [{"arguments": {"n": {"type": "nonsense"}}}]}, "nonsense"),
    ],
)
def test_a_policy_is_checked(rules: Any, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        policy(rules)


# -------------------------------------------------------------------------------- in Python and in swarms.json


async def test_an_agent_and_a_swarm_have_guards() -> None:
    agent = Agent("lead", "You answer.", model="openai/gpt-5-mini", guards=[polite])
    swarm = with_scripts(
        Swarm(agent, guards=[max_length(20)]), {"lead": ["no", "x please " * 9, "yes please"]}
    )
    async with swarm:
        answer = await swarm.aask("Hello")
        events = await swarm.running.runtime.read_events(answer.task_id)
    told = [json.loads(each.data)["description"] for each in events if each.event == "guard_decision"]
    assert answer.text == "yes please"
    assert told == [
        "guard polite refused the answer by agent lead: say please",
        "guard max_length refused the answer by agent lead: it has 81 characters, and may have 20",
        "guards max_length, polite allowed the answer by agent lead",
    ]


def entry(guards: list[Any], agent_guards: list[Any]) -> SwarmSpec:
    agent = {
        "name": "lead",
        "factory": "python::mail.factories.supervisor:LiteLLMSupervisorFunction",
        "enable_entrypoint": True,
        "can_complete_tasks": True,
        "agent_params": {"llm": "openai/gpt-5-mini", "system": "s"},
        "guards": agent_guards,
    }
    swarm = {"name": "desk", "entrypoint": "lead", "agents": [agent], "guards": guards}
    return SwarmSpec.model_validate_json(json.dumps(swarm))


def test_swarms_json_names_guards() -> None:
    given = entry(
        [{"factory": "python::mail.stdlib.guards:max_length", "params": {"characters": 9}}],
        [f"{HERE}:polite"],
    )
    swarm = build_swarm(given)
    assert [each.name for each in swarm.guards_of(swarm.agents["lead"])] == ["max_length", "polite"]
    assert swarm.entry is not None
    assert swarm.entry["guards"] == [
        {"factory": "python::mail.stdlib.guards:max_length", "params": {"characters": 9}}
    ]
    assert swarm.entry["agents"][0]["guards"] == [f"{HERE}:polite"]
    assert '{"fails_open":false,"name":"polite","on":["answer"]}' in swarm.specify()


@pytest.mark.parametrize(
    ("guards", "problem"),
    [
        ([f"{HERE}:RULES"], "is no guard; make it by @guard"),
        ([{"factory": f"{HERE}:too_strict", "params": {"limit": 1}}], "makes no guard"),
        (
            [{"factory": f"{HERE}:too_strict", "params": {"limits": 1}}],
            "unexpected keyword argument 'limits'",
        ),
        ([{"factory": "python::mail.stdlib.guards:max_length", "params": {"characters": 0}}], "at least 1"),
        ([f"{HERE}:gone"], "gone"),
    ],
)
def test_wrong_guards_in_swarms_json(guards: list[Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        build_swarm(entry(guards, []))


@pytest.mark.parametrize("guards", ["polite", [{"function": "x"}], 5])
def test_guards_are_a_list_of_references(guards: Any) -> None:
    with pytest.raises(ValueError, match="guards"):
        entry(guards, [])


def test_what_is_no_guard() -> None:
    with pytest.raises(ConfigurationError, match="not of 'text'"):
        guard(on="call")("text")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="on must be one or more of message, call, result, answer"):
        guard(on="replies")(too_strict)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="made by @guard"):
        _ = Swarm(Agent("lead", "s", model="openai/gpt-5-mini", guards=["polite"])).running  # type: ignore[list-item]
    assert isinstance(polite, Guard)


@pytest.mark.parametrize("approves", [True, False])
async def test_a_policy_that_asks_waits_for_approval(approves: bool) -> None:
    paid: list[int] = []

    def refund(amount: int) -> str:
        """Refund."""
        paid.append(amount)
        return f"refunded {amount}"

    guards = [policy({"rules": [{"then": "ask", "reason": "Really?"}]})]
    agent = Agent("lead", "You answer.", model="openai/gpt-5-mini", actions=[refund], guards=guards)
    swarm = with_scripts(Swarm(agent), {"lead": [[call("refund", amount=7)], "done"]})
    async with swarm:
        paused = await swarm.aask("Refund 7")
        assert [each.needs_approval for each in paused.pending] == [True]
        done = await (swarm.aapprove(paused) if approves else swarm.areject(paused, reason="no"))
    assert done.text == "done"
    assert paid == ([7] if approves else [])
