"""Trying another prompt on the page: a draft, a fork that runs on it, and both tasks side by side."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

from studio_page import expect
from support.processes.server import ServerProcess, run_mail
from support.services.llm_stub import LLMStub, call, reply
from test_ui_one_person import new_link

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Page

DESK = """
from mail import Agent, Swarm, action

@action
def search(topic: str) -> str:
    \"\"\"Search.\"\"\"
    return topic

swarm = Swarm(Agent("lead", "Answer at length.", model="openai/gpt-5-mini", actions=[search]), name="desk")
"""


def test_another_prompt_is_tried_beside_the_first(
    page: "Page", tmp_path: Path, shoot: "Callable[[str], None]"
) -> None:
    (tmp_path / "desk.py").write_text(DESK, encoding="utf-8")
    flags = ("--swarm-source", "python::desk:swarm", "--swarm-name", "desk")
    with LLMStub() as stub, ServerProcess(tmp_path, *flags, env=stub.environ) as server:
        stub.script(reply(call("task_complete", finish_message="A long answer.")), to="Answer at length")
        stub.script(reply(call("task_complete", finish_message="Short.")), to="Answer in a word")
        sent = run_mail("send", "Bees?", "--task-id", "bees", "--server", server.url, cwd=tmp_path)
        assert sent.returncode == 0, sent.stderr
        page.goto(new_link(server, tmp_path))
        page.locator('[data-task="bees"]').click()
        page.get_by_role("tab", name="Trace").click()
        page.get_by_role("option", name="completes the task").click()
        page.get_by_role("tab", name="Setup").click()
        expect(page.get_by_text("The prompt of this turn isn't shown to you.")).to_be_visible()
        now = page.get_by_role("link", name="the one that lead has now")
        expect(now).to_have_attribute("href", "#swarm=lead")
        page.get_by_role("button", name="Try another prompt…").click()
        dialog = page.get_by_role("dialog", name="Try another prompt for lead")
        prompt = dialog.get_by_label("System prompt")
        expect(prompt).to_have_value(re.compile("^Answer at length"))
        expect(dialog.get_by_label("search")).to_be_checked()
        dialog.get_by_label("search").uncheck()
        dialog.get_by_label("Options to set, as JSON").fill("low")
        prompt.fill("Answer in a word.")
        run = dialog.get_by_role("button", name="Run with this draft")
        run.click()
        expect(dialog.get_by_text("Write the options as a JSON object")).to_be_visible()
        dialog.get_by_label("Options to set, as JSON").fill('{"verbosity": "low"}')
        shoot("draft-dialog")
        run.click()
        expect(dialog).to_have_count(0)
        expect(page.locator(".compare-words")).to_contain_text("They part at")
        expect(page.locator(".pair.differs .side-text").filter(has_text="Short.").first).to_be_visible()
        expect(
            page.locator(".pair.differs .side-text").filter(has_text="A long answer.").first
        ).to_be_visible()
        expect(page.locator(".pair-heads .quiet")).to_contain_text([re.compile(r"100 tokens in .* m?s$")] * 2)
        shoot("draft-compare")
        assert (stub.complaints, stub.is_done) == ([], True)
        tools = [tool.get("name") for tool in stub.requests[-1].body["tools"]]
        assert "search" not in tools
        shown = run_mail("draft", "show", "try-lead", "--server", server.url, cwd=tmp_path)
        assert "+Answer in a word." in shown.stdout, shown.stderr
        page.locator('[data-task="bees"]').click()
        page.get_by_role("tab", name="Trace").click()
        page.get_by_role("option", name="completes the task").click()
        page.get_by_role("tab", name="Setup").click()
        page.get_by_role("button", name="Try another prompt…").click()
        expect(dialog.get_by_text("What try-lead changes is filled in already")).to_be_visible()
        expect(prompt).to_have_value("Answer in a word.")
        expect(dialog.get_by_label("search")).not_to_be_checked()
        page.goto("about:blank")  # no stream is left that the server would wait for
        run_mail(
            "draft", "save", "try-lead", "lead", "--llm", "openai/gpt-5", "--server", server.url, cwd=tmp_path
        )
        undone = run_mail("draft", "undo", "try-lead", "--server", server.url, cwd=tmp_path)
        assert "+Answer in a word." in undone.stdout, undone.stderr
        assert 'openai/gpt-5"' not in undone.stdout
