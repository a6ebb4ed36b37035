#!/usr/bin/env python3
"""Record the studio: a task from its question to a fork of it, as an animated picture for the documentation; and
pictures.

    python3 scripts/studio_recording.py             writes docs/images/studio.webp and the pictures beside it
    python3 scripts/studio_recording.py FOLDER      writes them to another folder

It starts a server with scripted agents, so that no model is called, and drives the page in a headless Chromium as a
person would. The browser also encodes the pictures: of each, only what has changed since the one before it. It needs
what the tests of the page need (docs/ui.md).
"""

import asyncio
import base64
import os
import shutil
import struct
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.async_api import Browser, Locator, Page, async_playwright

from mail.auth.keys import Caller
from mail.auth.tokens import issue_link
from mail.bootstrap import local
from mail.config.models import ServerConfig
from mail.core.protocol.clock import SYSTEM_CLOCK
from mail.core.task.activity import model_call
from mail.core.task.swarm import ActionCore, AgentCore, SwarmCore
from mail.core.task.usage import Usage
from mail.server.process import serving
from mail.swarms_json.load import PACKAGED_SOURCE
from mail.testing.agents import (
    Call,
    Rule,
    View,
    build_agent,
    build_swarm,
    call,
    complete,
    request,
    respond,
    wait,
)

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images"
SIZE = (1240, 720)
QUALITY = 0.72
PACE = 2.5
"""How much slower everything is while it is recorded, as pictures take their time."""

LAST = 2500
"""Milliseconds for which the last picture stays."""

CHROMIUM = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
)
QUESTION = "Plan a day in Oslo for two, and book the train from Bergen."
ANSWER = """**Saturday in Oslo**

| Time | Plan |
| --- | --- |
| 10:00 | Walk up the opera's roof |
| 12:30 | Lunch in the food hall |
| 15:00 | The ships at Bygdøy |

It stays dry until the evening, 14 °C. The train is booked: Bergen 06:29, two seats, 118 €.
"""


async def think(model: str, seconds: float, usage: Usage, kind: str = "", text: str = "") -> None:
    """Call a model that takes its time and, with a `kind`, writes a text piece by piece."""
    with model_call(model) as called:
        words = text.split(" ") if kind else [""]
        for word in words:
            await asyncio.sleep(PACE * seconds / len(words))
            if kind:
                called.delta(kind, f"{word} ")  # type: ignore[arg-type]
        called.report(usage)


def agent(policy: Rule, model: str, prompt: str, **settings: Any) -> AgentCore:
    """Return a scripted agent that seems to have a model and a prompt."""
    made = build_agent(policy, **settings)
    made.function.llm, made.function.system = model, prompt  # type: ignore[attr-defined]
    return made


def travel_swarm() -> SwarmCore:
    """Return a swarm of a planner, who asks a guide and a forecaster, and books after an approval."""
    large, small = "openai/gpt-5", "openai/gpt-5-mini"

    async def plan(view: View) -> Sequence[Call]:
        if view.mail.sender_type == "user":
            await think(large, 0.9, Usage(calls=1, input_tokens=1180, output_tokens=96, cost=0.0024))
            return [request("guide", "Three things to do in Oslo on a Saturday", subject="Sights"),
                    request("forecaster", "Oslo, Saturday", subject="Weather"), wait()]  # fmt: skip
        if any("booked" in result for result in view.results):
            paid = Usage(calls=1, input_tokens=2890, output_tokens=160, cost=0.0052)
            await think(large, 2.2, paid, "answer", ANSWER)
            return [complete(ANSWER)]
        if view.mail.sender == "guide":
            return [wait("for the forecast")]
        await think(large, 0.7, Usage(calls=1, input_tokens=2310, output_tokens=41, cost=0.0033))
        return [call("book_train", route="Bergen–Oslo", departs="Saturday 06:29", seats=2, price="118 €")]

    async def guide(view: View) -> Sequence[Call]:
        await think(small, 0.8, Usage(calls=1, input_tokens=640, output_tokens=88, cost=0.0004))
        return [respond("planner", "The opera's roof, the food hall, the ships at Bygdøy.", subject="Sights")]

    async def forecast(view: View) -> Sequence[Call]:
        if view.mail.sender_type == "system":
            return [respond("planner", "Dry until the evening, 14 °C.", subject="Weather")]
        await think(small, 0.5, Usage(calls=1, input_tokens=520, output_tokens=24, cost=0.0002))
        return [call("get_forecast", city="Oslo", day="Saturday")]

    async def get_forecast(arguments: dict[str, Any]) -> str:
        await asyncio.sleep(PACE * 0.9)
        return "dry, 14 °C; rain from 20:00"

    async def book_train(arguments: dict[str, Any]) -> str:
        await asyncio.sleep(PACE * 0.4)
        return "booked, reference K7Q2"

    texts = {"type": "object", "additionalProperties": True}
    actions = {
        "get_forecast": ActionCore("get_forecast", get_forecast, "Get the forecast of a city.", texts),
        "book_train": ActionCore("book_train", book_train, "Book seats.", texts, needs_approval=True),
    }
    return build_swarm(
        {
            "planner": agent(
                plan,
                large,
                "You plan trips.",
                targets=["guide", "forecaster"],
                actions=["book_train"],
                supervises=True,
            ),
            "guide": agent(guide, small, "You know every city.", targets=["planner"]),
            "forecaster": agent(
                forecast, small, "You look up the weather.", targets=["planner"], actions=["get_forecast"]
            ),
        },
        actions=actions,
        name="travel",
    )


REPORT = {
    "lead": ("researcher", "editor", "data-analyst", "legal-reviewer"),
    "researcher": ("web-searcher", "archivist"),
    "editor": ("fact-checker", "translator", "copywriter"),
    "data-analyst": ("sql-runner", "chart-maker"),
}
"""Who asks whom for the report."""

HOURS = 3600.0


def newsroom_swarm() -> SwarmCore:
    """Return a swarm of twelve, in which a few work until the server stops."""
    bosses = {name: boss for boss, names in REPORT.items() for name in names}
    slow = ("web-searcher", "chart-maker", "legal-reviewer")

    def made(name: str) -> AgentCore:
        async def work(view: View) -> Sequence[Call]:
            asked = [] if view.mail.sender in REPORT.get(name, ()) else REPORT.get(name, ())
            if asked:
                return [*(request(each, f"A part for {each}", subject="Report") for each in asked), wait()]
            if name in REPORT:
                return [wait("for the others")]
            with model_call("openai/gpt-5-mini") as called:
                await asyncio.sleep(HOURS if name in slow else 0.1)
                called.report(Usage(calls=1, input_tokens=910, output_tokens=120, cost=0.0006))
            return [respond(view.mail.sender, f"The part of {name}", subject="Report")]

        targets = [*REPORT.get(name, ()), *([bosses[name]] if name in bosses else ())]
        model = "anthropic/claude-sonnet-4-5" if name == "lead" else "openai/gpt-5-mini"
        return agent(work, model, f"You are the {name}.", targets=targets, supervises=name == "lead")

    return build_swarm({name: made(name) for name in ("lead", *bosses)}, name="newsroom")


class Recording:
    """Pictures of a page, each with the milliseconds for which it is shown."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.pictures: list[tuple[bytes, int]] = []

    async def shoot(self, milliseconds: int) -> None:
        """Take a picture."""
        self.pictures.append((await self._page.screenshot(type="png", caret="hide"), milliseconds))

    async def watch(self, until: Locator, milliseconds: int = 200) -> None:
        """Take pictures until something is on the page."""
        while not await until.count():
            await self.shoot(milliseconds)
            await asyncio.sleep(milliseconds / 1000)


async def perform(page: Page, recording: Recording) -> None:
    """Do what the recording shows."""
    shoot = recording.shoot
    field = page.get_by_label("Message", exact=True)
    await field.wait_for()
    await shoot(1200)
    for end in range(6, len(QUESTION) + 6, 6):
        await field.fill(QUESTION[:end])
        await shoot(60)
    await shoot(400)
    await field.press("Enter")
    approve = page.get_by_role("button", name="Approve")
    await recording.watch(approve)
    await shoot(2200)
    await approve.click()
    await recording.watch(page.locator(".task-head .chip", has_text="completed"), 160)
    await page.wait_for_timeout(300)
    await shoot(2600)

    await page.get_by_role("tab", name="Trace").click()
    await page.wait_for_timeout(400)
    await shoot(2600)
    rows = page.get_by_role("listbox").get_by_role("option")
    await rows.filter(has_text="get_forecast").first.click()
    await page.wait_for_timeout(500)
    await shoot(2400)
    await page.keyboard.press("Escape")

    slider = page.get_by_role("slider", name="Moment")
    await slider.focus()
    for _ in range(4):
        await slider.press("ArrowLeft")
        await shoot(260)
    await slider.press("Enter")
    await page.wait_for_timeout(400)
    await shoot(1800)
    await page.get_by_role("button", name="Fork from here…").last.click()
    await page.wait_for_timeout(300)
    await shoot(2200)
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Back to now").click()
    await page.get_by_role("tab", name="Graph").click()
    await page.wait_for_timeout(500)
    await shoot(LAST)


# ------------------------------------------------------------------------------------------------ encoding

ENCODE = """
async ([picture, previous, quality]) => {
  const read = async (text) => createImageBitmap(await (await fetch(`data:image/png;base64,${text}`)).blob());
  const image = await read(picture);
  const { width, height } = image;
  const draw = (bitmap) => {
    const context = new OffscreenCanvas(width, height).getContext("2d", { alpha: false });
    context.drawImage(bitmap, 0, 0);
    return context.getImageData(0, 0, width, height);
  };
  let [left, top, right, bottom] = [0, 0, width, height];
  if (previous) {
    const [now, then] = [draw(image), draw(await read(previous))].map(({ data }) => new Uint32Array(data.buffer));
    [left, top, right, bottom] = [width, height, 0, 0];
    for (let at = 0; at < now.length; at += 1) {
      if (now[at] === then[at]) continue;
      const [x, y] = [at % width, Math.floor(at / width)];
      [left, top] = [Math.min(left, x), Math.min(top, y)];
      [right, bottom] = [Math.max(right, x + 1), Math.max(bottom, y + 1)];
    }
    if (right <= left) return null;
  }
  left -= left % 2;  // offsets are even in the format
  top -= top % 2;
  const part = new OffscreenCanvas(right - left, bottom - top);
  part.getContext("2d", { alpha: false }).drawImage(image, -left, -top);
  const bytes = new Uint8Array(await (await part.convertToBlob({ type: "image/webp", quality })).arrayBuffer());
  const data = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  return { left, top, width: right - left, height: bottom - top, data };
}
"""


async def encode(page: Page, pictures: Sequence[tuple[bytes, int]]) -> bytes:
    """Return the pictures as an animated WebP that repeats forever, encoded by the browser of a blank page."""
    frames: list[tuple[dict[str, Any], int]] = []
    previous = None
    for picture, milliseconds in pictures:
        text = base64.b64encode(picture).decode()
        part = await page.evaluate(ENCODE, [text, previous, QUALITY])
        previous = text
        if part is None:  # nothing has changed
            frames[-1] = (frames[-1][0], frames[-1][1] + milliseconds)
        else:
            frames.append((part, milliseconds))
    body = chunk(b"VP8X", bytes([0b10, 0, 0, 0]) + u24(SIZE[0] - 1) + u24(SIZE[1] - 1))
    body += chunk(b"ANIM", bytes(4) + struct.pack("<H", 0))
    for part, milliseconds in frames:
        place = (
            u24(part["left"] // 2) + u24(part["top"] // 2) + u24(part["width"] - 1) + u24(part["height"] - 1)
        )
        image = image_of(base64.b64decode(part["data"]))
        body += chunk(b"ANMF", place + u24(milliseconds) + bytes([0b10]) + image)
    return b"RIFF" + struct.pack("<I", len(body) + 4) + b"WEBP" + body


def image_of(file: bytes) -> bytes:
    """Return the chunk with the image of a WebP file, which may have a colour profile besides."""
    at = 12
    while file[at : at + 4] not in (b"VP8 ", b"VP8L"):
        at += 8 + -(-struct.unpack("<I", file[at + 4 : at + 8])[0] // 2) * 2
    (size,) = struct.unpack("<I", file[at + 4 : at + 8])
    return chunk(file[at : at + 4], file[at + 8 : at + 8 + size])


def chunk(name: bytes, data: bytes) -> bytes:
    """Return a chunk of a RIFF file."""
    return name + struct.pack("<I", len(data)) + data + bytes(len(data) % 2)


def u24(number: int) -> bytes:
    """Return a number as three bytes."""
    return struct.pack("<I", number)[:3]


SEND = """
(message) => fetch("message", {
  method: "POST",
  headers: {
    Authorization: `Bearer ${sessionStorage.getItem("mail-token")}`,
    "Content-Type": "application/json",
    Prefer: "respond-async",
  },
  body: JSON.stringify(message),
})
"""
"""Sends a message with options that the page doesn't have."""


@asynccontextmanager
async def studio(browser: Browser, swarm: SwarmCore | None, size: tuple[int, int]) -> AsyncIterator[Page]:
    """Serve a swarm, or the example, and open its page as a user."""
    with TemporaryDirectory() as folder:
        config = ServerConfig.model_validate({}).with_overrides(
            database=str(Path(folder) / "mail.db"), swarm_source=str(PACKAGED_SOURCE)
        )
        system = local(config, clock=SYSTEM_CLOCK, environ={})
        async with serving(system) as url:
            if swarm is not None:
                system.runtime.swarm = swarm
            link = await issue_link(system.documents, Caller("user", "ann"), SYSTEM_CLOCK)
            page = await browser.new_page(
                viewport={"width": size[0], "height": size[1]}, color_scheme="light", reduced_motion="reduce"
            )
            page.set_default_timeout(20_000)
            await page.goto(f"{url}/ui#sign-in={link.code}")
            yield page
            await page.close()


async def ask(page: Page, text: str) -> None:
    """Begin a task."""
    field = page.get_by_label("Message", exact=True)
    await field.fill(text)
    await field.press("Enter")


async def take_pictures(browser: Browser, folder: Path) -> None:
    """Write the pictures of the conversation, of an approval, and of a graph at work."""
    async with studio(browser, travel_swarm(), (1280, 800)) as page:
        await ask(page, QUESTION)
        card = page.get_by_role("group", name="book_train needs your approval")
        await card.get_by_role("button", name="Edit").click()
        await page.emulate_media(color_scheme="dark")
        await page.screenshot(path=folder / "studio-approval.png", caret="hide")
        await page.emulate_media(color_scheme="light")
        await page.get_by_role("button", name="Approve with these arguments").click()
        await page.locator(".answer.is-writing td", has_text="Lunch").wait_for()
        await page.locator(".chat-scroll").evaluate("pane => pane.scrollTo(0, pane.scrollHeight)")
        await page.screenshot(path=folder / "studio-conversation.png", caret="hide")
    async with studio(browser, newsroom_swarm(), (1280, 760)) as page:
        await page.get_by_label("Message", exact=True).wait_for()
        await page.evaluate(SEND, {"body": "Write the report on the tides.", "kwargs": {"max_steps": 60}})
        await page.locator("a.task-item").click()
        await page.get_by_role("tab", name="Graph").click()
        await page.locator(".node.is-working").nth(2).wait_for()
        await page.wait_for_timeout(2500)
        await page.screenshot(path=folder / "studio-graph.png", caret="hide")


async def take_pictures_of_steps(browser: Browser, folder: Path) -> None:
    """Write the pictures of the learning path: the task of step 5 as a conversation, as a trace, and in the past."""
    async with studio(browser, None, (1180, 640)) as page:
        await ask(page, "weather in Oslo and 2**10")
        await page.locator(".task-head .chip", has_text="completed").wait_for()
        await page.wait_for_timeout(500)
        await page.screenshot(path=folder / "learn-conversation.png", caret="hide")
        await page.get_by_role("tab", name="Trace").click()
        await page.get_by_role("listbox").get_by_role("option").first.wait_for()
        await page.wait_for_timeout(500)
        await page.screenshot(path=folder / "learn-trace.png", caret="hide")
        slider = page.get_by_role("slider", name="Moment")
        await slider.focus()
        await slider.press("Home")
        await slider.press("Enter")
        await page.get_by_role("button", name="Fork from here…").last.click()
        await page.wait_for_timeout(500)
        await page.screenshot(path=folder / "learn-fork.png", caret="hide")


async def record(browser: Browser) -> bytes:
    """Return the recording."""
    async with studio(browser, travel_swarm(), SIZE) as page:
        recording = Recording(page)
        await perform(page, recording)
    return await encode(await browser.new_page(), recording.pictures)


async def main(folder: Path) -> None:
    """Write the recording and the pictures."""
    executable = os.environ.get("MAIL_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUM)), None)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=executable, args=["--no-sandbox", "--hide-scrollbars"]
        )
        await take_pictures(browser, folder)
        await take_pictures_of_steps(browser, folder)
        (folder / "studio.webp").write_bytes(await record(browser))
        await browser.close()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else TARGET
    asyncio.run(main(target))
    for path in sorted(target.iterdir()):
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
