"""The tools that look at the template: each lives in a virtual environment of its own, as their pins collide."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def find_tool(venv: str, name: str) -> str:
    """The path of a program. Without it the test is skipped, but in CI it fails."""
    path = ROOT / ".tools" / venv / "bin" / name
    if path.exists():
        return str(path)
    missing = f"{name} is not installed; run: python3 scripts/dev.py tools {venv}"
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


def environment() -> dict[str, str]:
    """Of a process that needs no account, and asks nobody."""
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "SSL_"))},
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "SAM_CLI_TELEMETRY": "0",
    }
