"""Folders that `mail server` and functions start from: a `swarms.json`, and the modules that it names."""

import json
import textwrap
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


def supervisor(name: str, factory: str, **fields: Any) -> Entry:
    """Return an agent that users write to and that completes tasks, made by a `python::` factory."""
    rights = {"enable_entrypoint": True, "can_complete_tasks": True}
    return {"name": name, "factory": f"python::{factory}", "comm_targets": [], **rights, **fields}


def entry(name: str, *agents: Entry, **fields: Any) -> Entry:
    """Return a swarm of `swarms.json`, whose entrypoint is the first agent."""
    return {
        "name": name,
        "version": "1.0.0",
        "entrypoint": agents[0]["name"],
        "agents": list(agents),
        **fields,
    }


def write_project(folder: Path, *swarms: Entry, **modules: str) -> Path:
    """Write these swarms and modules into a folder, which is made if it isn't there, and return the folder."""
    folder.mkdir(exist_ok=True)
    (folder / "swarms.json").write_text(json.dumps(swarms), encoding="utf-8")
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
    return folder
