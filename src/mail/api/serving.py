"""A server for a swarm that was built in Python, with a web interface beside it where there is one."""

import logging
import os
import shutil
import subprocess
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mail import server
from mail.config import SettingsConfig, load_config
from mail.core.task.swarm import SwarmCore
from mail.errors import MAILError

if TYPE_CHECKING:
    from mail.api.templates import MAILSwarmTemplate

logger = logging.getLogger(__name__)

URL_VARIABLES = ("MAIL_SERVER_URL", "NEXT_PUBLIC_MAIL_SERVER_URL")
"""How the web interface learns where the server is; browsers see only what begins with NEXT_PUBLIC_."""


def serve_template(
    template: "MAILSwarmTemplate",
    *,
    port: int,
    host: str,
    ui_path: Path | None,
    ui_port: int,
    open_browser: bool,
) -> None:
    """Serve a swarm until the process is told to stop. Raises MAILError where it can't start."""
    config = load_config().server.with_overrides(host=host, port=port, swarm_name=template.name, reload=False)
    swarm = build(template, config.settings)
    has_ui = ui_path is not None and _is_there(ui_path)
    url = f"http://localhost:{ui_port if has_ui else port}"
    with _interface(ui_path, ui_port, port) if has_ui and ui_path else _nothing():
        server.serve_swarm(swarm, config, on_ready=lambda: webbrowser.open(url) if open_browser else None)


def build(template: "MAILSwarmTemplate", settings: SettingsConfig) -> SwarmCore:
    """The swarm of a template as the settings of a server say, where it doesn't say otherwise itself."""
    swarm = template.to_core(print_llm_streams=settings.print_llm_streams)
    if template.task_message_limit is None:
        swarm = replace(swarm, task_message_limit=settings.task_message_limit)
    return swarm


def _is_there(path: Path) -> bool:
    if (path / "package.json").is_file():
        return True
    logger.warning("there is no web interface in %s (no package.json); the API is served alone", path)
    return False


@contextmanager
def _interface(path: Path, port: int, server_port: int) -> Iterator[None]:
    """The web interface's development server, for as long as the block runs."""
    npm = shutil.which("npm")
    if npm is None:
        raise MAILError("launch_ui needs npm; install Node.js, or leave launch_ui out")
    environ = {**os.environ, **dict.fromkeys(URL_VARIABLES, f"http://localhost:{server_port}")}
    process = subprocess.Popen(  # noqa: S603
        [npm, "run", "dev", "--", "--port", str(port)], cwd=path, env=environ
    )
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def _nothing() -> Iterator[None]:
    yield
