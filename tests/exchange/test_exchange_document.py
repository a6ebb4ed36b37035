"""docs/exchange.md: its pieces run in order and print what they say, and it names what there is."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import forkserver
from support.processes.document_samples import blocks, run_in_order
from support.processes.server import environment

import mail.exchange
from mail.adapters.aws.rows import ROW_BYTES
from mail.exchange import DurableExchange, Exchange

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "exchange.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")

pytestmark = pytest.mark.full


async def test_every_piece(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert await run_in_order(DOCUMENT, capsys) == 5


def test_the_command_prints_what_it_says() -> None:
    (_, command), (_, text) = blocks(DOCUMENT, "bash", "console")
    done = forkserver.run(
        [sys.executable, *command.split()[1:]],
        env=environment(),
    )
    assert done.stdout.startswith(text.removesuffix("…\n"))


def test_every_public_name_is_there() -> None:
    for name in mail.exchange.__all__:
        assert getattr(mail.exchange, name).__class__ is not None
    assert set(mail.exchange.__all__) <= set(dir(mail.exchange))


def test_mail_and_exchange_bring_neither_databases_nor_the_engine() -> None:
    program = "import sys, mail.exchange; print(sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment({}), capture_output=True, text=True, check=True
    )
    for module in ("mail.api", "mail.bootstrap", "mail.adapters", "sqlite3", "botocore"):
        assert f"'{module}'" not in done.stdout


def methods(cls: type) -> set[str]:
    return {
        name
        for name, member in vars(cls).items()
        if not name.startswith(("_", "model_"))
        and (inspect.isfunction(member) or isinstance(member, property))
    }


def test_every_method_is_named() -> None:
    names = methods(Exchange)
    assert {"sync", "owner_ids", "remove_mail"} <= names
    for name in names:
        assert re.search(rf"`{name}\b", TEXT), name


def test_a_durable_exchange_has_the_same_methods() -> None:
    assert methods(Exchange) - {"to_dict", "to_json"} == methods(DurableExchange)
    for name in methods(DurableExchange) - {"owner_ids"}:
        ours, its = (inspect.signature(getattr(cls, name)) for cls in (Exchange, DurableExchange))
        assert ours == its
        assert inspect.iscoroutinefunction(getattr(DurableExchange, name)) == (name != "stop")


def test_the_largest_mail() -> None:
    assert f"{ROW_BYTES:,} bytes" in TEXT
