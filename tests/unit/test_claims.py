"""What the claims of an identity provider's token mean."""

from typing import Any

import pytest
from pydantic import ValidationError

from mail.auth.claims import JWTSettings
from mail.auth.keys import Caller
from mail.errors import Forbidden, Unauthenticated

ISSUER = "https://id.example/realms/team"


def settings(**changes: Any) -> JWTSettings:
    return JWTSettings.model_validate({"issuer": ISSUER, "audience": "mail", **changes})


@pytest.mark.parametrize(
    ("changes", "claims", "caller"),
    [
        ({}, {"sub": "ann"}, Caller("user", "ann")),
        ({"id_claim": "oid"}, {"sub": "x", "oid": "ann"}, Caller("user", "ann")),
        (
            {"role_claim": "groups", "admins": ["ops"]},
            {"sub": "ann", "groups": ["ops"]},
            Caller("admin", "ann"),
        ),
        ({"role_claim": "groups", "admins": ["ops"]}, {"sub": "ann", "groups": []}, Caller("user", "ann")),
        ({"role_claim": "scp", "agents": ["swarm"]}, {"sub": "b", "scp": "read swarm"}, Caller("agent", "b")),
        (
            {"role_claim": "realm_access.roles", "users": ["staff"]},
            {"sub": "ann", "realm_access": {"roles": ["staff"]}},
            Caller("user", "ann"),
        ),
        (
            {"role_claim": "https://team.example/roles", "admins": ["ops"], "users": ["staff"]},
            {"sub": "ann", "https://team.example/roles": ["staff", "ops"]},
            Caller("admin", "ann"),
        ),
    ],
)
def test_claims_name_a_caller(changes: dict[str, Any], claims: dict[str, Any], caller: Caller) -> None:
    assert settings(**changes).caller_of(claims) == caller


@pytest.mark.parametrize(
    ("changes", "claims", "said"),
    [
        ({}, {}, "sub names no caller"),
        ({}, {"sub": 7}, "sub names no caller"),
        ({"id_claim": "email"}, {"email": "ann@example.com"}, "choose another claim as id_claim"),
        (
            {"role_claim": "groups", "users": ["staff"]},
            {"sub": "ann", "groups": ["guests"]},
            "no role with access",
        ),
        ({"role_claim": "a.b", "users": ["staff"]}, {"sub": "ann", "a": "b"}, "no role with access"),
    ],
)
def test_others_have_no_access(changes: dict[str, Any], claims: dict[str, Any], said: str) -> None:
    with pytest.raises(Forbidden, match=said):
        settings(**changes).caller_of(claims)


@pytest.mark.parametrize(
    ("changes", "claims"),
    [
        ({}, {"aud": "mail"}),
        ({}, {"aud": ["account", "mail"]}),
        ({"audience": ["mail", "old-mail"]}, {"aud": "old-mail"}),
        ({"audience_claim": "client_id"}, {"client_id": "mail"}),
    ],
)
def test_a_token_is_for_this_server(changes: dict[str, Any], claims: dict[str, Any]) -> None:
    settings(**changes).check_audience(claims)


@pytest.mark.parametrize(
    "claims", [{}, {"aud": "billing"}, {"aud": None}, {"aud": {"mail": 1}}, {"client_id": "mail"}]
)
def test_one_for_another_service_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(Unauthenticated, match="get a token for 'mail'"):
        settings().check_audience(claims)


@pytest.mark.parametrize("issuer", ["https://id.example", "http://localhost:8080/realms/team", ""])
def test_an_issuer_is_a_url(issuer: str) -> None:
    assert settings(issuer=issuer).issuer == issuer


@pytest.mark.parametrize("issuer", ["id.example", "http://id.example", "https://", "ftp://localhost"])
def test_others_could_be_anybody(issuer: str) -> None:
    with pytest.raises(ValidationError, match="must be an https URL"):
        settings(issuer=issuer)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, ""),
        ({"issuer": ISSUER, "audience": "mail"}, ""),
        ({"issuer": ISSUER}, "set audience"),
        ({"issuer": ISSUER, "audience": ""}, "set audience"),
        ({"audience": "mail"}, "set issuer"),
        ({"issuer": ISSUER, "audience": "mail", "admins": ["ops"]}, "set role_claim"),
    ],
)
def test_settings_that_trust_too_much_are_refused(given: dict[str, Any], problem: str) -> None:
    assert JWTSettings.model_validate(given).problem().startswith(problem)
    assert bool(JWTSettings.model_validate(given).problem()) == bool(problem)
