"""Skills: folders of instructions, whose descriptions are in the prompt and which agents read by `read_more`."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.processes.document_samples import DOCS
from support.services.llm_stub import LLMStub, call, reply
from support.services.llm_stub.server import Request

from mail import Agent, MAILAgent, MAILAgentTemplate, MAILSwarmTemplate, Swarm
from mail.core.task.skills import HOW_TO_READ
from mail.errors import ConfigurationError
from mail.factories import LiteLLMActionAgentFunction
from mail.swarms_json import build_swarm, validate_swarm_from_swarms_json

MODEL = "openai/gpt-5-mini"
SKILL = "skills/refunds/SKILL.md"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write(
    path: str,
    text: str = "",
    *,
    name: str = "refunds",
    description: str = "Use it for money.",
    raw: bytes | None = None,
) -> None:
    """Write a file of a skill; a SKILL.md gets its front matter, unless its bytes are given."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.name == "SKILL.md":
        text = f"---\nname: {name}\ndescription: {description}\n---\n\n{text}\n"
    file.write_bytes(text.encode() if raw is None else raw)


def prompt_of(request: Request) -> str:
    return str(request.body["instructions"])


def results_of(request: Request) -> list[str]:
    return [item["output"] for item in request.body["input"] if item.get("type") == "function_call_output"]


async def test_the_sample_of_the_page_reads_a_skill_and_its_file(
    stub: LLMStub, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (DOCS / "skills.md").read_text(encoding="utf-8")
    (front,) = re.findall(r"```markdown\n(.+?)```", page, re.DOTALL)
    (sample,) = re.findall(r"```python\n(.+?)```", page, re.DOTALL)
    write("skills/refunds/letters.md", "Dear customer, " + "with our regards, " * 3000)
    Path("skills/refunds/SKILL.md").write_text(front, encoding="utf-8")
    stub.script(
        reply(call("read_more", ref="skill:refunds"), call("read_more", ref="skill:refunds/letters.md")),
        reply(call("read_more", ref="skill:refunds/letters.md", offset=54_000)),
        reply(call("task_complete", finish_message="You get $30 back.")),
    )
    namespace: dict[str, Any] = {}
    exec(sample.replace("swarm.ask(", "str("), namespace)  # of the documentation
    answer = await namespace["swarm"].aask("Ana wants her money back.")
    assert answer.text == "You get $30 back."
    prompts = {prompt_of(request) for request in stub.requests}
    (prompt,) = prompts  # the same in each call, for the provider's cache
    line = "- refunds: How to decide on a refund and word the answer. Use it for every question about money back."
    assert prompt.endswith(f"{HOW_TO_READ}\n{line}")
    assert "within 30 days" not in prompt
    whole, beginning, end = results_of(stub.requests[-1])
    assert "Refund the full price within 30 days." in whole
    assert "description:" not in whole
    assert "Dear customer, with our regards" in beginning
    assert "read_more(ref='skill:refunds/letters.md', offset=" in beginning
    assert "that is its end" in end
    assert not stub.complaints
    await namespace["swarm"].aclose()


async def test_what_is_not_there_is_said_and_nothing_outside_is_read(stub: LLMStub) -> None:
    write("secret.txt", "swordfish")
    write("skills/refunds/SKILL.md")
    write("skills/refunds/picture.png", raw=b"\x89PNG\xff")
    write("skills/refunds/.hidden", "swordfish")
    write("skills/tax/SKILL.md", name="tax")
    refs = ["refund", "refunds/../../secret.txt", "tax/SKILL.md/../../../secret.txt", "refunds/.hidden"]
    refs += ["refunds/picture.png", f"refunds/{Path('secret.txt').absolute()}", "refunds/skill.md"]
    lead = Agent("lead", model=MODEL, skills=["skills"])
    stub.script(
        reply(*(call("read_more", ref=f"skill:{ref}") for ref in refs)),
        reply(call("task_complete", finish_message="done")),
    )
    async with Swarm(lead) as swarm:
        await swarm.aask("Read!")
    results = results_of(stub.requests[-1])
    assert len(results) == len(refs)
    assert "you have no skill 'refund'. Did you mean 'refunds'?" in results[0]
    assert "no text file 'skill.md'; it has: SKILL.md" in results[-1]
    assert all(result.startswith("ERROR") and "swordfish" not in result for result in results)


async def test_a_swarm_of_a_file_has_them_and_agents_read_only_their_own(stub: LLMStub) -> None:
    write("one/refunds/SKILL.md", "Pay.")
    write("two/SKILL.md", "Count.", name="two")
    entry = swarm_entry(["one"], ["two/"])
    swarm = build_swarm(validate_swarm_from_swarms_json(entry))
    prompts = {name: agent.system_prompt or "" for name, agent in swarm.agents.items()}
    assert prompts["lead"].endswith("The skills:\n- refunds: Use it for money.")
    assert prompts["clerk"].endswith("The skills:\n- two: Use it for money.")
    assert [skill.name for skill in swarm.agents["lead"].skills] == ["refunds"]
    assert swarm.entry is not None
    assert swarm.entry["agents"][0]["skills"] == ["one"]
    before = swarm.digest
    assert build_swarm(validate_swarm_from_swarms_json(entry)).digest == before
    write("one/refunds/letters.md", "Dear Ana,")
    assert build_swarm(validate_swarm_from_swarms_json(entry)).digest != before
    template = MAILSwarmTemplate.from_swarm_json(json.dumps(entry))
    assert [skill.name for skill in template.to_core().agents["clerk"].skills] == ["two"]


def swarm_entry(lead: list[str], clerk: list[str] | None = None, **settings: Any) -> dict[str, Any]:
    def agent(name: str, skills: list[str], **more: Any) -> dict[str, Any]:
        factory = f"python::mail.factories:{LiteLLMActionAgentFunction.__name__}"
        return {
            "name": name,
            "factory": factory,
            "skills": skills,
            "agent_params": {"llm": MODEL, "system": f"You are {name}."},
            "comm_targets": ["clerk" if name == "lead" else "lead"],
            **more,
        }

    return {
        "name": "team",
        "version": "1",
        "entrypoint": "lead",
        "agents": [
            agent("lead", lead, enable_entrypoint=True, can_complete_tasks=True, **settings),
            agent("clerk", clerk or []),
        ],
    }


def test_a_loaded_swarm_has_no_files_of_the_server() -> None:
    write("skills/refunds/SKILL.md")
    entry = validate_swarm_from_swarms_json(swarm_entry(["skills"]))
    with pytest.raises(ConfigurationError, match=r"only in its own swarms\.json, not in a loaded swarm"):
        build_swarm(entry, allowed_prefixes=["mail"])


def link_out() -> None:
    write("secret.txt", "swordfish")
    write(SKILL)
    Path("skills/refunds/more.md").symlink_to(Path("secret.txt").absolute())


def too_large() -> None:
    write(SKILL)
    write("skills/refunds/data.csv", "1,2\n" * 600_000)


MISTAKES: dict[str, tuple[Callable[[], None], str]] = {
    "no folder": (lambda: None, "there is no folder '.*skills'"),
    "no SKILL.md": (
        lambda: write("skills/refunds/skill.txt"),
        "neither 'skills' nor a folder in it has a file SKILL.md",
    ),
    "no front matter": (lambda: write(SKILL, raw=b"# Refunds\n"), "must begin with its front matter"),
    "another name": (
        lambda: write(SKILL, name="refund"),
        "name in SKILL.md is 'refund'; it must be that of its folder, 'refunds'",
    ),
    "a bad name": (
        lambda: write("skills/Refunds/SKILL.md", name="Refunds"),
        "lowercase letters, digits and single hyphens, not 'Refunds'",
    ),
    "no description": (
        lambda: write(SKILL, description=""),
        "description in SKILL.md must have 1 to 1024 characters",
    ),
    "a link out": (link_out, "'more.md' is a link out of the folder"),
    "another encoding": (
        lambda: write(SKILL, raw=b"---\nname: refunds\ndescription: \xe9\n---\n"),
        "SKILL.md must be text in UTF-8",
    ),
    "too large": (too_large, "its files have more than 2097152 bytes"),
}


@pytest.mark.parametrize(("prepare", "problem"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_found_at_build(prepare: Callable[[], None], problem: str) -> None:
    prepare()
    with pytest.raises(ConfigurationError, match=f"agent 'lead'.*skill.*{problem}"):
        Swarm(Agent("lead", model=MODEL, skills=["skills"])).running  # noqa: B018  # it builds the swarm


def test_settings_with_which_no_agent_could_read_them() -> None:
    write("skills/refunds/SKILL.md")
    with pytest.raises(ConfigurationError, match="read with the tool read_more, which context 'off'"):
        build_swarm(validate_swarm_from_swarms_json(swarm_entry(["skills"], context="off")))
    with pytest.raises(ConfigurationError, match="read with the tool read_more, which context 'off'"):
        build_swarm(validate_swarm_from_swarms_json(swarm_entry(["skills"], exclude_tools=["read_more"])))
    with pytest.raises(ConfigurationError, match="there are two 'refunds'"):
        build_swarm(validate_swarm_from_swarms_json(swarm_entry(["skills", "skills/refunds"])))
    with pytest.raises(ConfigurationError, match="skills: must be a list of folders"):
        Agent("lead", model=MODEL, skills="skills")

    async def function(_history: Any, _choice: Any) -> Any:
        raise NotImplementedError

    with pytest.raises(ConfigurationError, match="skills are for agents with a model and a system prompt"):
        Swarm(Agent("lead", function=function, skills=["skills"])).running  # noqa: B018
    with pytest.raises(ConfigurationError, match="made without the skills; give them to its template"):
        MAILAgent("lead", function, [], function, [], {}, skills=["skills"])


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Plain text: with a colon", "Plain text: with a colon"),
        ('"Quoted: \\"so\\""', 'Quoted: "so"'),
        ("'It''s quoted'", "It's quoted"),
        (">-\n  folded over\n  two lines", "folded over two lines"),
        ("|\n  one\n  two", "one two"),
        ("continued\n  in the next line", "continued in the next line"),
        ("with a comment # not of it", "with a comment"),
    ],
)
def test_descriptions_as_yaml_writes_them(written: str, read: str) -> None:
    write("refunds/SKILL.md", description=f"{written}\nlicense: MIT\nmetadata:\n  author: me\n  name: x")
    template = MAILAgentTemplate(
        "lead", LiteLLMActionAgentFunction, [], [], {"llm": MODEL}, skills=[Path("refunds")]
    )
    (skill,) = template.instantiate({}).to_core().skills
    assert (skill.name, skill.description) == ("refunds", read)
