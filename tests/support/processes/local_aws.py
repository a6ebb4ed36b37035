"""The deployed shape as people run it: `mail local-aws`, a process of its own."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.engines.aws import ROOT, has_ministack
from support.processes.server import MAIL, ServerProcess

needs_ministack = pytest.mark.skipif(not has_ministack(), reason="ministack is not installed")


class LocalAwsProcess(ServerProcess):
    """`mail local-aws` with a template (default: the project's), on free ports. `start` returns once it is ready."""

    command = (*MAIL, "local-aws")

    def __init__(
        self,
        folder: Path,
        *flags: str,
        template: Path = ROOT / "template.yaml",
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, "--template", str(template), "--stream-port", "0", *flags, env=env)

    @property
    def stream_url(self) -> str:
        """The base URL of the function that streams."""
        return self._told(r"streams listens on (http://\S+)")

    @property
    def protocols_url(self) -> str:
        """The base URL of the function of A2A, AG-UI, MCP and OpenAI's APIs."""
        return self._told(r"URL of ProtocolsFunction listens on (http://\S+)")

    @property
    def endpoint(self) -> str:
        """What AWS_ENDPOINT_URL has to be."""
        return self._told(r"AWS_ENDPOINT_URL=(http://\S+)")

    def _told(self, pattern: str) -> str:
        found = re.search(pattern, self.output)
        assert found is not None, self.output
        return found[1]


def full_size(variable: str, *, small: int, full: int) -> int:
    """How much of something a test does: `small`, unless the environment variable asks for `full` or a number."""
    wanted = os.environ.get(variable, "")
    return full if wanted == "full" else int(wanted or small)
