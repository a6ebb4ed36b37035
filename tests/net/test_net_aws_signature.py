"""Function URLs with `AuthType: AWS_IAM`: calls are signed, and the bearer travels in a header of its own."""

from datetime import UTC, datetime
from typing import Any

import botocore.auth
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from support.services.messages import wrapped
from support.services.peer_server import PeerServer, Request

from mail.errors import BadRequest, PeerRefused
from mail.net import InterswarmRouter, SwarmRegistry
from mail.net.aws_signature import AwsSigner, region_for
from mail.net.http import PeerHTTP, Target

HOME = "http://127.0.0.1:8000"
KEYS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG", "session-token")


class Session:
    """The part of a session of botocore's that is asked for credentials."""

    def __init__(self, credentials: Credentials | None = KEYS) -> None:
        self._credentials = credentials

    def get_credentials(self) -> Credentials | None:
        return self._credentials


def signature_of(request: Request, url: str, region: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The `Authorization` that a verifier computes for what arrived: of the signed headers, the body and the time."""
    given = request.headers["authorization"]
    names = given.split("SignedHeaders=")[1].split(",")[0].split(";")
    signed_at = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    monkeypatch.setattr(botocore.auth, "get_current_datetime", lambda *_: signed_at.replace(tzinfo=None))
    again = AWSRequest(
        request.method,
        url + request.path,
        data=request.body,
        headers={name: request.headers[name] for name in names if not name.startswith("x-amz-")},
    )
    SigV4Auth(KEYS, "lambda", region).add_auth(again)
    return str(again.headers["Authorization"])


@pytest.fixture
async def signing(beta: PeerServer) -> Any:
    http = PeerHTTP(allow_private=True, signer=AwsSigner(Session()))
    registry = SwarmRegistry("alpha", HOME, http=http)
    await registry.register_swarm("beta", beta.url, "t0ken", {"region": "eu-north-1"}, auth="aws_iam")
    yield registry
    await registry.stop()


async def test_what_is_sent_is_signed(
    signing: SwarmRegistry, beta: PeerServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await InterswarmRouter(signing, "alpha").deliver(wrapped(), back=False)
    await signing.check_health()
    assert beta.paths() == ["/", "/interswarm/forward", "/health"]
    for request in beta.requests:
        authorization = request.headers["authorization"]
        assert authorization.startswith("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
        assert "/eu-north-1/lambda/aws4_request" in authorization
        assert request.headers["x-amz-security-token"] == "session-token"
        assert signature_of(request, beta.url, "eu-north-1", monkeypatch) == authorization
    forward = beta.requests[1]
    assert forward.headers["x-mail-authorization"] == "Bearer t0ken"
    for name in ("host", "content-type", "x-mail-authorization", "x-amz-security-token"):
        assert name in forward.headers["authorization"].split("SignedHeaders=")[1]
    assert "x-mail-authorization" not in beta.requests[0].headers
    forged = Request(forward.method, forward.path, forward.headers, forward.body + b" ")
    assert signature_of(forged, beta.url, "eu-north-1", monkeypatch) != forward.headers["authorization"]


async def test_without_credentials() -> None:
    http = PeerHTTP(allow_private=True, signer=AwsSigner(Session(None)))
    with pytest.raises(PeerRefused, match="need AWS credentials"):
        await http.get(Target("http://127.0.0.1:1", "aws_iam", "eu-north-1"), "/")


async def test_without_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(BadRequest, match="'aws_iam' needs a region"):
        await SwarmRegistry("alpha", HOME).register_swarm("beta", "http://127.0.0.1:1", auth="aws_iam")


def test_which_region() -> None:
    url = "https://abc.lambda-url.eu-west-1.on.aws"
    assert region_for(url, {"region": "us-east-1"}, {"AWS_REGION": "x"}) == "eu-west-1"
    assert region_for("https://beta.example", {"region": "us-east-1"}, {"AWS_REGION": "x"}) == "us-east-1"
    assert region_for("https://beta.example", {"region": 7}, {"AWS_REGION": "x"}) == "x"
    assert region_for("https://beta.example", {}, {"AWS_DEFAULT_REGION": "y"}) == "y"
    assert region_for("https://beta.example", {}, {}) is None
