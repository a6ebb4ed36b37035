"""The JavaScript client, on a real server: in Node.js and in Chromium; its types, and the sample of its page."""

import os
import re
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.processes.approval_swarm import Bank
from support.processes.document_samples import DOCS
from ui_needs import unavailable

from mail.http.routes.ui import FOLDER

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CLIENT = FOLDER / "api/client.js"
SCENARIO = Path(__file__).with_name("client_scenario.js")


@pytest.fixture
def node() -> Path:
    playwright = find_spec("playwright")
    if playwright is None or playwright.origin is None:
        unavailable("playwright")
    return Path(playwright.origin).parent / "driver" / "node"


def run(node: Path, folder: Path, module: str, **env: str) -> str:
    """The output of a module beside the client."""
    (folder / "client.js").write_bytes(CLIENT.read_bytes())
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "main.js").write_text(module)
    done = subprocess.run(
        [node, "main.js"],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_in_node(node: Path, bank: Bank, tmp_path: Path) -> None:
    ends = "console.log(await scenario(MAILClient, process.env.MAIL, process.env.TOKEN));\nprocess.exit();"
    module = f'import {{ MAILClient }} from "./client.js";\n{SCENARIO.read_text()}\n{ends}'
    said = run(node, tmp_path, module, MAIL=bank.url, TOKEN=bank.tokens["user"])
    assert said == "cancelled\n"
    assert "bob 5" in bank.paid


def test_in_chromium(browser: "Browser", bank: Bank) -> None:
    page = browser.new_page()
    try:
        page.goto(f"{bank.url}/ui")
        script = f"""async ([url, token]) => {{
            {SCENARIO.read_text()}
            const {{ MAILClient }} = await import(`${{url}}/ui/api/client.js`);
            return scenario(MAILClient, url, token);
        }}"""
        assert (
            page.evaluate(script.replace("http://127.0.0.1:9", "nowhere:"), [bank.url, bank.tokens["admin"]])
            == "cancelled"
        )
    finally:
        page.close()


def test_the_sample_of_the_page(node: Path, bank: Bank, tmp_path: Path) -> None:
    (sample, *_) = re.findall(
        r"```js\n(.+?)```", (DOCS / "javascript.md").read_text(encoding="utf-8"), re.DOTALL
    )
    assert sample.count("\n") <= 16
    sample = sample.replace("http://localhost:8000", bank.url).replace("weather in Oslo and 2**10", "pay 700")
    said = run(node, tmp_path, sample, TOKEN=bank.tokens["user"])
    assert "payer wants to run pay { to: 'bob', amount: 700 }" in said
    assert said.splitlines()[-1].startswith("completed")
    assert "paid 700 to bob" in said


def test_types_name_everything_that_the_client_has() -> None:
    """The compiler of TypeScript is not installed here: names are compared, and that of each method's options."""
    source, types = CLIENT.read_text(), CLIENT.with_suffix(".d.ts").read_text()
    exported = set(
        re.findall(r"^export (?:const|class|async function\*|function) (\w+)", source, re.MULTILINE)
    )
    assert exported == set(re.findall(r"^export declare (?:const|class|function) (\w+)", types, re.MULTILINE))
    methods = set(re.findall(r"^  (?:async )?\*?(\w+)\(.*\) \{$", source, re.MULTILINE)) - {
        "constructor",
        "if",
        "for",
    }
    declared = set(re.findall(r"^  (\w+)\(", types, re.MULTILINE)) - {"constructor"}
    assert methods == declared
