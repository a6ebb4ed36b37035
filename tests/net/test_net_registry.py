"""Registering swarms, and what is kept of them."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from support.services.peer_server import PeerServer

from mail.adapters.sqlite.backend import SQLiteDocuments
from mail.adapters.sqlite.database import SQLiteDatabase
from mail.core.engine.documents import ServerDocuments
from mail.core.task.documents import IN_MEMORY
from mail.core.task.interswarm import PeerHealth, PeerRecord
from mail.errors import BadRequest, ConfigurationError
from mail.net import SwarmRegistry
from mail.net.types import SwarmEndpoint
from mail.testing.clock import FakeClock

HOME = "http://127.0.0.1:8000"
NOWHERE = "http://127.0.0.1:1"
VARIABLE = "SWARM_AUTH_TOKEN_BETA"
REFERENCE = "${SWARM_AUTH_TOKEN_BETA}"


def endpoint(registry: SwarmRegistry, name: str = "beta") -> SwarmEndpoint:
    found = registry.get_swarm_endpoint(name)
    assert found is not None
    return found


class TestRegistering:
    async def test_what_a_swarm_says_of_itself_is_kept(
        self, registry: SwarmRegistry, beta: PeerServer
    ) -> None:
        done = await registry.register_swarm("beta", f"{beta.url}/", metadata={"team": "b"}, caller_id="b-1")
        assert done.name == "beta"
        assert beta.paths() == ["/"]
        found = endpoint(registry)
        assert found.base_url == beta.url
        assert (found.version, found.swarm_description, found.keywords) == ("7", "it plays", ("play",))
        assert (found.public, found.entrypoint, found.caller_id) == (True, "boss", "b-1")
        assert found["metadata"] == {"team": "b"}
        assert found.is_active
        assert found.last_seen is not None
        assert found.latency is not None
        assert found.health_check_url == f"{beta.url}/health"
        assert (found.volatile, found.expires, found.auth_token_ref) == (False, None, REFERENCE)
        assert list(registry.get_all_endpoints()) == list(registry.get_active_endpoints()) == ["beta"]

    async def test_nulls_and_long_texts_of_a_peer_do_no_harm(
        self, registry: SwarmRegistry, beta: PeerServer
    ) -> None:
        beta.info = {"version": None, "keywords": None, "public": None, "description": "x" * 9999, "more": 1}
        await registry.register_swarm("beta", beta.url)
        found = endpoint(registry)
        assert (found.version, found.keywords, found.public) == ("", (), False)
        assert len(found.swarm_description) == 2000

    async def test_a_server_that_says_no_more_than_a_name(
        self, registry: SwarmRegistry, beta: PeerServer
    ) -> None:
        beta.answers["/"] = 200, {"name": "mail", "swarm": "beta"}
        await registry.register_swarm("beta", beta.url)
        assert (endpoint(registry).version, endpoint(registry).is_active) == ("", True)

    async def test_a_swarm_that_is_down_is_registered_and_described_later(
        self, registry: SwarmRegistry, beta: PeerServer
    ) -> None:
        beta.answers = {"/": (503, {"detail": "starting"}), "/health": (503, {})}
        done = await registry.register_swarm("beta", beta.url, "t0ken", volatile=False)
        assert any("does not answer" in note for note in done.notes)
        assert (endpoint(registry).is_active, endpoint(registry).last_seen) == (False, None)
        await registry.check_health()
        assert not endpoint(registry).is_active
        assert registry.get_active_endpoints() == {}
        beta.answers = {}
        await registry.check_health()
        found = endpoint(registry)
        assert (found.is_active, found.version, found.public) == (True, "7", True)
        assert registry.get_resolved_auth_token("beta") == "t0ken"

    @pytest.mark.parametrize(
        ("answer", "problem"),
        [
            ((200, {"swarm": {"name": "gamma"}}), "is swarm 'gamma', not 'beta'"),
            ((200, {"hello": "world"}), "not that of a MAIL server"),
            ((200, {"swarm": {"name": 7}}), "not that of a MAIL server"),
            ((200, {"swarm": {"name": "beta", "keywords": "k"}}), "not that of a MAIL server"),
            ((200, b"<html>"), "not that of a MAIL server"),
            ((200, b'{"swarm": {"name": "\\ud800"}}'), "not that of a MAIL server"),
            ((404, {"detail": "no such page"}), "404 Not Found$"),
            (
                (403, b"AWS_SECRET"),
                "403 Forbidden: it does not allow that with this token, or does not know this swarm$",
            ),
            ((301, b""), "redirects"),
        ],
    )
    async def test_something_else_is_there(
        self, registry: SwarmRegistry, beta: PeerServer, answer: Any, problem: str
    ) -> None:
        beta.answers["/"] = answer
        beta.headers = {"location": "http://127.0.0.1:1/"}
        with pytest.raises(BadRequest, match=problem):
            await registry.register_swarm("beta", beta.url)
        assert registry.get_all_endpoints() == {}

    @pytest.mark.parametrize(
        ("fields", "problem"),
        [
            ({"swarm_name": "be@ta"}, "name of a swarm"),
            ({"swarm_name": "alpha"}, "this swarm itself"),
            ({"base_url": "file:///x"}, "base_url"),
            ({"caller_id": "a:b"}, "name of a swarm"),
            ({"metadata": {"x": "y" * 20_000}}, "metadata has more than"),
            (
                {"auth": "aws_iam", "metadata": {"region": "eu-west-1", "mail_host": "b"}},
                "leave out mail_host",
            ),
            ({"auth_token": "${HOME}"}, "begin with SWARM_AUTH_TOKEN_"),
            ({"auth_token": "${HOME}", "volatile": True}, "begin with SWARM_AUTH_TOKEN_"),
        ],
    )
    async def test_what_is_refused(
        self, registry: SwarmRegistry, fields: dict[str, Any], problem: str
    ) -> None:
        with pytest.raises(BadRequest, match=problem):
            await registry.register_swarm(**{"swarm_name": "beta", "base_url": NOWHERE, **fields})
        assert registry.get_all_endpoints() == {}

    async def test_again_takes_the_place(self, registry: SwarmRegistry, beta: PeerServer) -> None:
        await registry.register_swarm("beta", NOWHERE, "old")
        await registry.register_swarm("beta", beta.url, "new")
        assert endpoint(registry).base_url == beta.url
        assert registry.get_resolved_auth_token("beta") == "new"
        assert await registry.unregister_swarm("beta") is True
        assert await registry.unregister_swarm("beta") is False
        assert registry.get_swarm_endpoint("beta") is None
        assert registry.get_resolved_auth_token("beta") is None
        assert await registry.find("beta") is None

    async def test_the_local_swarm(self, registry: SwarmRegistry) -> None:
        registry.register_local_swarm("https://Alpha.example/")
        assert registry.local_base_url == "https://alpha.example"
        with pytest.raises(BadRequest):
            registry.register_local_swarm("nonsense")


class TestTokens:
    async def test_only_volatile_entries_keep_a_token(self, registry: SwarmRegistry) -> None:
        await registry.register_swarm("beta", NOWHERE, "t0ken", volatile=True)
        await registry.register_swarm("gamma", NOWHERE, "t0ken", volatile=False)
        beta, gamma = await registry.find("beta"), await registry.find("gamma")
        assert beta is not None
        assert gamma is not None
        assert beta.auth_token == "t0ken"
        assert gamma.auth_token == "${SWARM_AUTH_TOKEN_GAMMA}"
        assert "t0ken" not in json.dumps(registry.to_dict())
        assert "t0ken" not in repr(registry.get_all_endpoints())

    async def test_by_default_a_token_makes_an_entry_volatile(self, registry: SwarmRegistry) -> None:
        await registry.register_swarm("with-token", NOWHERE, "t0ken")
        await registry.register_swarm("with-end", NOWHERE, expires=2e9)
        await registry.register_swarm("with-reference", NOWHERE, "${SWARM_AUTH_TOKEN_ALL}")
        await registry.register_swarm("plain", NOWHERE)
        kept = registry.get_persistent_endpoints()
        assert {name: found.auth_token_ref for name, found in kept.items()} == {
            "plain": "${SWARM_AUTH_TOKEN_PLAIN}",
            "with-reference": "${SWARM_AUTH_TOKEN_ALL}",
        }

    async def test_the_variable_comes_before_what_was_given(
        self, registry: SwarmRegistry, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        done = await registry.register_swarm("beta", NOWHERE, "given", volatile=False)
        assert any(f"set {VARIABLE}" in note for note in done.notes)
        assert registry.get_resolved_auth_token("beta") == "given"
        monkeypatch.setenv(VARIABLE, "exported")
        assert registry.get_resolved_auth_token("beta") == "exported"
        record = await registry.find("beta")
        assert record is not None
        assert await registry.token_for(record) == "exported"
        done = await registry.register_swarm("beta", NOWHERE, volatile=False)
        assert not any(VARIABLE in note for note in done.notes)

    async def test_nothing_secret_is_logged(
        self, registry: SwarmRegistry, beta: PeerServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        for volatile in (True, False):
            done = await registry.register_swarm("beta", beta.url, "t0ken", volatile=volatile)
            assert "t0ken" not in str(done)
        await registry.check_health()
        assert "t0ken" not in caplog.text

    async def test_helpers(self, registry: SwarmRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(VARIABLE, "exported")
        await registry.register_swarm("beta", NOWHERE)
        await registry.register_swarm("gamma", NOWHERE)
        await registry.register_swarm("delta", NOWHERE, "t0ken")
        assert registry.validate_environment_variables() == {VARIABLE: True, "SWARM_AUTH_TOKEN_GAMMA": False}
        assert registry._get_auth_token_ref("beta") == REFERENCE
        assert registry._resolve_auth_token_ref(REFERENCE) == "exported"
        assert registry._resolve_auth_token_ref("literal") == "literal"
        assert registry._resolve_auth_token_ref(None) is None
        assert registry.get_resolved_auth_token("gamma") is None


class TestVolatile:
    async def test_they_expire(self, beta: PeerServer) -> None:
        clock = FakeClock()
        registry = SwarmRegistry("alpha", HOME, clock=clock)
        await registry.register_swarm("beta", beta.url, volatile=True)
        await registry.register_swarm("gamma", NOWHERE, expires=clock.now().timestamp() + 60)
        clock.advance(60)
        assert list(registry.get_all_endpoints()) == ["beta"]
        clock.advance(24 * 3600)
        assert registry.get_swarm_endpoint("beta") is None
        assert await registry.names() == []
        assert await registry.check_health() == {}
        await registry.stop()

    async def test_they_end_with_the_program(self, tmp_path: Path) -> None:
        file = tmp_path / "registry.json"
        registry = SwarmRegistry("alpha", HOME, file)
        await registry.register_swarm("beta", NOWHERE)
        await registry.register_swarm("gamma", NOWHERE, "t0ken")
        assert await registry.cleanup_volatile_endpoints() == ["gamma"]
        assert list(registry.get_all_endpoints()) == ["beta"]
        await registry.stop()
        assert list(json.loads(file.read_text())["endpoints"]) == ["beta"]


class TestFile:
    async def test_round_trip(
        self, tmp_path: Path, beta: PeerServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        file = tmp_path / "deep" / "registry.json"
        registry = SwarmRegistry("alpha", HOME, str(file))
        assert not file.exists()
        await registry.register_swarm(
            "beta", beta.url, metadata={"region": "eu-west-1"}, auth="aws_iam", caller_id="b"
        )
        before = await registry.find("beta")
        await registry.register_swarm("gamma", NOWHERE, "t0ken", volatile=False)
        assert "t0ken" not in file.read_text()
        assert [path.name for path in file.parent.iterdir()] == ["registry.json"]
        assert file.stat().st_mode & 0o077 == 0
        again = SwarmRegistry("alpha", HOME, file)
        assert await again.find("beta") == before
        assert again.get_all_endpoints().keys() == {"beta", "gamma"}
        await again.unregister_swarm("gamma")
        assert list(json.loads(file.read_text())["endpoints"]) == ["beta"]
        await registry.stop()

    async def test_written_by_hand(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        file = tmp_path / "registry.json"
        file.write_text(
            '{"endpoints": {"beta": {"base_url": "http://localhost:1/", "auth_token": "t0ken", "new": 1},'
            ' "alpha": {"base_url": "http://localhost:2"}, "gamma": {"base_url": "http://localhost:3"}}}'
        )
        registry = SwarmRegistry("alpha", HOME, file)
        assert list(registry.get_all_endpoints()) == ["beta", "gamma"]
        assert endpoint(registry).base_url == "http://localhost:1"
        assert endpoint(registry).auth_token_ref == REFERENCE
        assert registry.get_resolved_auth_token("beta") == "t0ken"
        assert "set SWARM_AUTH_TOKEN_BETA, SWARM_AUTH_TOKEN_GAMMA" in caplog.text
        assert "t0ken" not in caplog.text
        assert registry.migrate_auth_tokens_to_env_refs() == [VARIABLE]
        assert registry.migrate_auth_tokens_to_env_refs() == []
        assert json.loads(file.read_text())["endpoints"]["beta"]["auth_token_ref"] == REFERENCE
        assert "t0ken" not in file.read_text()
        assert registry.get_resolved_auth_token("beta") == "t0ken"

    async def test_read_by_mail_1_3_6(self, tmp_path: Path, beta: PeerServer) -> None:
        """A server can go back to it: the file has every value that it reads."""
        file = tmp_path / "registry.json"
        registry = SwarmRegistry("alpha", HOME, file, "Ours.", ["a"], True)
        await registry.register_swarm("beta", beta.url)
        written = json.loads(file.read_text())
        about = {"name": "alpha", "description": "Ours.", "keywords": ["a"], "public": True}
        assert {name: written[f"local_swarm_{name}"] for name in about} == about
        entry = written["endpoints"]["beta"]
        assert (entry["swarm_name"], entry["health_check_url"]) == ("beta", f"{beta.url}/health")
        assert entry["volatile"] is False
        assert entry["auth_token_ref"] == REFERENCE
        assert entry.keys() >= {
            "base_url",
            "version",
            "last_seen",
            "is_active",
            "latency",
            "metadata",
            "public",
        }
        await registry.stop()

    async def test_written_by_mail_1_3_6(self, tmp_path: Path) -> None:
        """It writes a null for each value that it lacks, such as `metadata` for a swarm registered without."""
        lacking = dict.fromkeys(
            (
                "metadata",
                "version",
                "last_seen",
                "latency",
                "swarm_description",
                "keywords",
                "public",
                "auth_token_ref",
                "auth",
                "caller_id",
                "registered",
                "entrypoint",
            ),
        )
        entry = {"swarm_name": "beta", "base_url": "http://localhost:1", "is_active": True, "volatile": False}
        file = tmp_path / "registry.json"
        known = {"beta": {**entry, **lacking}, "gamma": None}
        file.write_text(json.dumps({"local_swarm_name": "alpha", "endpoints": known}))
        registry = SwarmRegistry("alpha", HOME, file)
        assert list(registry.get_all_endpoints()) == ["beta"]
        assert (endpoint(registry).metadata, endpoint(registry).version) == ({}, "")
        file.write_text('{"endpoints": null}')
        assert SwarmRegistry("alpha", HOME, file).get_all_endpoints() == {}

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("{", "is not valid JSON"),
            ("[]", "is not a registry"),
            ('{"endpoints": []}', "is not a registry"),
            ('{"endpoints": {"beta": {}}}', "'beta': base_url: Field required"),
            ('{"endpoints": {"beta": {"base_url": "s3cr3t"}}}', "'beta': base_url must be"),
            ('{"endpoints": {"be@ta": {"base_url": "http://x"}}}', "name of a swarm"),
            (
                '{"endpoints": {"b": {"base_url": "http://x", "auth": "s3cr3t"}}}',
                r"'b': auth: Input should be",
            ),
            ('{"endpoints": {"b": {"base_url": "http://x", "auth_token": ["s3cr3t"]}}}', "'b': auth_token:"),
        ],
    )
    def test_a_bad_file_is_told(self, tmp_path: Path, text: str, problem: str) -> None:
        file = tmp_path / "registry.json"
        file.write_text(text)
        with pytest.raises(ConfigurationError, match=problem) as refused:
            SwarmRegistry("alpha", HOME, file)
        assert str(file) in refused.value.detail
        assert "s3cr3t" not in refused.value.detail

    def test_an_empty_file_is_an_empty_registry(self, tmp_path: Path) -> None:
        file = tmp_path / "registry.json"
        file.touch()
        assert SwarmRegistry("alpha", HOME, file).get_all_endpoints() == {}

    async def test_a_file_that_cannot_be_used(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="can't be read"):
            SwarmRegistry("alpha", HOME, tmp_path)
        (tmp_path / "file").touch()
        registry = SwarmRegistry("alpha", HOME)
        registry._directory.file = tmp_path / "file" / "registry.json"
        with pytest.raises(ConfigurationError, match="can't be written"):
            await registry.register_swarm("beta", NOWHERE)


class TestRecords:
    @pytest.fixture
    def records(self) -> Any:
        with SQLiteDatabase(IN_MEMORY) as database:
            yield ServerDocuments(SQLiteDocuments(database))

    async def test_what_one_process_registers_others_know(
        self, records: ServerDocuments, beta: PeerServer
    ) -> None:
        now = 0.0
        one = SwarmRegistry("alpha", HOME, documents=records)
        two = SwarmRegistry("alpha", HOME, documents=records, monotonic=lambda: now)
        assert await two.names() == []
        await one.register_swarm("beta", beta.url, "t0ken")
        assert await two.names() == []
        record = await two.find("beta")
        assert record is not None
        assert record.base_url == beta.url
        assert two.get_resolved_auth_token("beta") == "t0ken"
        await one.register_swarm("beta", beta.url, metadata={"n": 2})
        await one.check_health()
        now = 5.0
        await two.refresh()
        assert endpoint(two).metadata == {"n": 2}
        assert endpoint(two).is_active
        await one.unregister_swarm("beta")
        now = 10.0
        assert await two.find("beta") is None
        for registry in (one, two):
            await registry.stop()

    async def test_names_that_nobody_has_are_not_looked_for(self, records: ServerDocuments) -> None:
        registry = SwarmRegistry("alpha", HOME, documents=records)
        for name in ("", "x" * 5000, "a@b", "\x00"):
            assert await registry.find(name) is None

    async def test_a_reading_that_was_overtaken_is_not_believed(self, records: ServerDocuments) -> None:
        registry = SwarmRegistry("alpha", HOME, documents=records)
        await records.set_peer(PeerRecord(name="old", base_url=NOWHERE))

        class Overtaken(ServerDocuments):
            async def peers(self) -> tuple[list[PeerRecord], dict[str, PeerHealth]]:
                found = await records.peers()
                await registry.register_swarm("beta", NOWHERE)
                return found

        registry._directory.documents = Overtaken.__new__(Overtaken)
        registry._directory.documents.__dict__.update(records.__dict__)
        await registry.refresh(max_age=0.0)
        assert registry.get_swarm_endpoint("beta") is not None

    async def test_the_file_is_taken_over_and_kept_as_a_copy(
        self, records: ServerDocuments, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        file = tmp_path / "registry.json"
        file.write_text(
            '{"endpoints": {"beta": {"base_url": "http://localhost:1", "auth_token": "t0ken"},'
            ' "gamma": {"base_url": "http://localhost:2"}}}'
        )
        await records.set_peer(PeerRecord(name="gamma", base_url="http://localhost:3"))
        registry = SwarmRegistry("alpha", HOME, file, documents=records)
        assert registry.get_all_endpoints() == {}
        await registry.start()
        assert f"imported from {file}: beta" in caplog.text
        assert "localhost:3, which is used" in caplog.text
        kept = await records.peer("beta")
        assert kept is not None
        assert kept.auth_token == REFERENCE
        assert registry.get_resolved_auth_token("beta") == "t0ken"
        assert "t0ken" not in file.read_text()
        await registry.unregister_swarm("beta")
        await registry.stop()
        again = SwarmRegistry("alpha", HOME, file, documents=records)
        await again.start()
        assert list(again.get_all_endpoints()) == ["gamma"]
        await again.stop()

    async def test_a_server_goes_on_without_its_file(
        self, records: ServerDocuments, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        (tmp_path / "file").touch()
        registry = SwarmRegistry("alpha", HOME, tmp_path / "file" / "registry.json", documents=records)
        await registry.register_swarm("beta", NOWHERE)
        assert "is out of date" in caplog.text
        assert await records.peer("beta") is not None
        await registry.stop()
