"""Trying another prompt on the page: a draft, a fork that runs on it, and both tasks side by side."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from studio_page import expect, violations
from support.processes.server import ServerProcess, run_mail
from support.services.llm_stub import LLMStub, Request, call, reply
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
        expect(page.get_by_role("tabpanel", name="Setup")).to_contain_text("System promptAnswer at length.")
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
        expect(page.locator(".pair-heads .quiet")).to_contain_text(
            [re.compile(r"^1 turn · 1 model call · \$[\d.]+ · [\d.]+ m?s$")] * 2
        )
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
        page.keyboard.press("Escape")
        page.get_by_role("link", name="Admin").click()
        page.get_by_role("link", name="Loaded swarm").click()
        expect(page.get_by_text("This swarm is built in Python.")).to_be_visible()
        expect(page.get_by_role("button", name="Check")).to_be_disabled()
        expect(page.get_by_text("can't load a swarm")).to_have_count(0)
        page.goto("about:blank")  # no stream is left that the server would wait for
        run_mail(
            "draft", "save", "try-lead", "lead", "--llm", "openai/gpt-5", "--server", server.url, cwd=tmp_path
        )
        undone = run_mail("draft", "undo", "try-lead", "--server", server.url, cwd=tmp_path)
        assert "+Answer in a word." in undone.stdout, undone.stderr
        assert 'openai/gpt-5"' not in undone.stdout


def test_a_draft_is_tried_on_many_tasks(
    page: "Page", tmp_path: Path, shoot: "Callable[[str], None]", axe: str
) -> None:
    (tmp_path / "desk.py").write_text(DESK, encoding="utf-8")
    flags = ("--swarm-source", "python::desk:swarm", "--swarm-name", "desk")

    def answer(request: Request) -> object:
        is_long = "Answer at length" in json.dumps(request.body)
        return reply(
            call("task_complete", finish_message="A long answer.\nEnd." if is_long else "Short.\nEnd.")
        )

    with LLMStub() as stub, ServerProcess(tmp_path, *flags, env=stub.environ) as server:
        stub.otherwise = answer

        def mail(*command: str) -> None:
            done = run_mail(*command, "--server", server.url, cwd=tmp_path)
            assert done.returncode == 0, done.stderr

        for name in ("bees", "wasps", "ants", "moths"):
            mail("send", f"What are {name}?", "--task-id", name)
        page.goto(new_link(server, tmp_path))
        page.get_by_role("link", name="Admin").click()
        page.get_by_role("navigation", name="Administration").get_by_role("link", name="Drafts").click()
        expect(page.get_by_text("No drafts yet")).to_be_visible()
        mail("draft", "save", "short", "lead", "--system", "Be brief.", "--tester", "user:user")
        page.reload()
        ticks = page.get_by_role("checkbox")
        expect(ticks).to_have_count(4)
        page.get_by_text("What short changes").click()
        expect(page.get_by_text("+Be brief.")).to_be_visible()
        page.get_by_role("combobox", name="Changed").select_option("Yesterday")
        expect(page.get_by_text("No completed tasks match.")).to_be_visible()
        page.get_by_role("combobox", name="Changed").select_option("Today")
        page.get_by_label("The last", exact=True).fill("3")
        expect(ticks).to_have_count(3)
        page.get_by_label("Search the tasks").fill("are")
        page.get_by_label("What are wasps?").focus()
        page.keyboard.press("Space")
        page.get_by_label("The last", exact=True).fill("4")
        run = page.get_by_role("button", name="Run 3 tasks")
        refuse = "**/task/fork"
        page.route(
            refuse,
            lambda route: (
                route.fulfill(status=429, json={"detail": "It runs too much."})
                if "ants" in (route.request.post_data or "")
                else route.continue_()
            ),
        )
        run.press("Enter")
        expect(page.get_by_text("3 of 3 are done.")).to_be_visible()
        rows = page.get_by_role("table", name="Tasks on short").locator("tbody").get_by_role("row")
        expect(rows).to_have_count(4)
        expect(rows.filter(has_text="ants")).to_contain_text("It runs too much.")
        bees = rows.filter(has_text="bees")
        expect(bees.get_by_role("cell")).to_contain_text(
            ["A long answer.", "Short.", "1 → 1", "→", re.compile(r"\d m?s → \d+")]
        )
        bees.get_by_text("Differences").click()
        expect(bees.locator(".code")).to_contain_text(re.compile(r"-A long answer\.\s*\+Short\.\s*End\."))
        expect(rows.last).to_contain_text("All 2")
        expect(rows.last).to_contain_text("2 → 2")
        for width, scheme in ((1440, "light"), (360, "dark")):
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            assert violations(page, axe) == []
            shoot(f"tries-{width}")
        page.set_viewport_size({"width": 1440, "height": 900})
        bees.get_by_role("link").click()
        expect(page.locator(".compare-words")).to_contain_text("They part at")
        assert page.url.endswith("&tab=trace&compare")
        page.go_back()
        expect(rows).to_have_count(4)
        expect(ticks).to_have_count(4)  # forks are no tasks to try
        page.unroute(refuse)
        page.wrong.clear()  # type: ignore[attr-defined]  # Chromium reports the request that was refused
        page.goto("about:blank")
