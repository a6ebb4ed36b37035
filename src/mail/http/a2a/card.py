"""The agent card: what the swarm can do, where, and how to authenticate."""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    OpenIdConnectSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)
from a2a.utils.signing import ProtectedHeader, create_agent_card_signer
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from fastapi import Request
from jwt.algorithms import ECAlgorithm
from pydantic_core import to_json

from mail.auth.claims import metadata_url
from mail.auth.oidc import JWTAuthenticator
from mail.core.task.swarm import SwarmCore
from mail.errors import ConfigurationError
from mail.http.a2a.progress import JSON_TYPE
from mail.http.service import base_url, service_of

PATH = "/a2a"
"""The path of both bindings."""

VERSIONS = ("1.0", "0.3")
BINDINGS = ("JSONRPC", "HTTP+JSON")


def make_card(request: Request, *, is_extended: bool = False) -> AgentCard:
    """Return the card for everybody or, `is_extended`, the one for callers: it has a skill for each entrypoint."""
    service = service_of(request)
    swarm = service.runtime.swarm
    url = (service.stream_url or base_url(request)) + PATH
    schemes = dict(_schemes(service.identity))
    card = AgentCard(
        name=swarm.name,
        description=swarm.description or f"The swarm {swarm.name}.",
        version=swarm.version,
        supported_interfaces=[
            AgentInterface(url=url, protocol_binding=binding, protocol_version=version)
            for version in VERSIONS
            for binding in BINDINGS
        ],
        capabilities=AgentCapabilities(
            streaming=True, push_notifications=service.runtime.webhooks is not None, extended_agent_card=True
        ),
        security_schemes=schemes,
        security_requirements=[SecurityRequirement(schemes={name: StringList()}) for name in schemes],
        default_input_modes=["text/plain", JSON_TYPE, "*/*"],
        default_output_modes=["text/plain" if swarm.output_schema is None else JSON_TYPE, "*/*"],
        skills=_skills(swarm, is_extended=is_extended),
    )
    return _signer(service.card_key)(card) if service.card_key else card


def _schemes(identity: JWTAuthenticator | None) -> Iterator[tuple[str, SecurityScheme]]:
    """Yield the ways to authenticate, each of which is enough."""
    about = "An API key of this server, for the role user or admin."
    yield (
        "bearer",
        SecurityScheme(http_auth_security_scheme=HTTPAuthSecurityScheme(scheme="bearer", description=about)),
    )
    if identity is not None:
        url = metadata_url(identity.settings.issuer)
        yield (
            "oidc",
            SecurityScheme(
                open_id_connect_security_scheme=OpenIdConnectSecurityScheme(open_id_connect_url=url)
            ),
        )


@cache
def _signer(path: str) -> Callable[[AgentCard], AgentCard]:
    """Return what signs cards with a key of the curve P-256. Raises ConfigurationError for another file."""
    try:
        pem = Path(path).read_bytes()
        key = load_pem_private_key(pem, password=None)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"[server.interswarm] card_key: {path} can't be read: {error}") from error
    if not isinstance(key, EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ConfigurationError(f"[server.interswarm] card_key: {path} must have a key of the curve P-256")
    public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    thumbprint = {name: public[name] for name in ("crv", "kty", "x", "y")}  # RFC 7638
    kid = urlsafe_b64encode(sha256(to_json(thumbprint)).digest()).rstrip(b"=").decode()
    header: ProtectedHeader = {"kid": kid, "alg": "ES256", "jku": None, "typ": "JOSE"}
    return create_agent_card_signer(pem, header)


def _skills(swarm: SwarmCore, *, is_extended: bool) -> Iterator[AgentSkill]:
    """Yield the swarm as a skill and, `is_extended`, its other entrypoints; a skill's id is that of its agent."""
    entrypoints = swarm.entrypoints if is_extended else ()
    for name in (swarm.entrypoint, *(each for each in entrypoints if each != swarm.entrypoint)):
        shown = swarm.name if name == swarm.entrypoint else name
        about = swarm.describe_entrypoint(name)
        yield AgentSkill(id=name, name=shown, description=about, tags=swarm.keywords or (shown,))
