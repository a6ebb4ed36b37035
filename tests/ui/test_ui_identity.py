"""Signing in at an identity provider, in Chromium."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from page_server import PageServer
from studio_page import expect
from support.services.identity_provider import AUDIENCE, CLIENT, IdentityProvider, identity_provider

from mail.bootstrap import local
from mail.config.models import ServerConfig
from mail.server.process import serving
from mail.swarms_json.load import PACKAGED_SOURCE

if TYPE_CHECKING:
    from playwright.sync_api import Page


class TeamServer(PageServer):
    """A server whose people sign in at a provider."""

    def __init__(self, folder: Path, provider: IdentityProvider) -> None:
        self._folder = folder
        self._provider = provider

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        jwt = {"issuer": self._provider.issuer, "audience": AUDIENCE, "client_id": CLIENT}
        given = {"auth": {"jwt": {**jwt, "role_claim": "groups", "admins": ["ops"]}}}
        config = ServerConfig.model_validate(given).with_overrides(
            database=str(self._folder / "mail.db"), swarm_source=str(PACKAGED_SOURCE)
        )
        async with serving(local(config, environ={})) as self.url:
            yield


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with identity_provider() as found:
        yield found


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory, provider: IdentityProvider) -> Iterator[TeamServer]:
    with TeamServer(tmp_path_factory.mktemp("team"), provider) as server:
        yield server


def sign_in(page: "Page", address: str) -> None:
    page.goto(address)
    page.get_by_role("button", name="Sign in at 127.0.0.1").click()


def test_people_come_back_signed_in(
    page: "Page", team: TeamServer, provider: IdentityProvider, inspect: Callable[[str], None]
) -> None:
    provider.person = {"sub": "eve", "groups": ["ops"]}
    page.goto(f"{team.url}/ui#swarm")
    expect(page.get_by_role("button", name="Sign in at 127.0.0.1")).to_be_visible()
    inspect("sign in")
    sign_in(page, f"{team.url}/ui#swarm")
    expect(page.locator(".who")).to_have_text("eve · admin")
    assert page.url == f"{team.url}/ui#swarm", "no code is left in the address"
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.soak
def test_what_goes_wrong_is_said(page: "Page", team: TeamServer, provider: IdentityProvider) -> None:
    page.goto(f"{team.url}/ui?code=stolen&state=of-another-tab")
    expect(page.get_by_text("This tab didn't ask for this sign-in.")).to_be_visible()
    assert "stolen" not in page.url
    provider.person = {"sub": "ann@example.com"}
    sign_in(page, f"{team.url}/ui")
    expect(page.get_by_text("choose another claim as id_claim")).to_be_visible()
    page.wrong.clear()  # type: ignore[attr-defined]  # Chromium's own lines about the refusals
