"""A stand-in for language model providers: a real HTTP server on loopback that speaks their documented wire formats.

    with LLMStub() as stub:
        stub.script(reply(thinking("The user greets."), call("task_complete", finish_message="Hi!")))
        os.environ.update(stub.environ)     # it is now found where OpenAI, Anthropic, Bedrock and a proxy would be
        ...
        stub.requests[0].body["tools"]      # what was sent

One script serves them all: `/v1/chat/completions`, `/v1/responses`, `/v1/messages` and Bedrock's `/model/…`, each whole
or streamed.
It is as strict as they are: a request that the provider would refuse gets the provider's 400, and is noted in
`stub.complaints`.

- `script`     what a model says, and what can go wrong: parts, replies, failures, recorded responses
- `server`     the server, its queues, and the requests that it got
- `chat`, `responses`, `anthropic`, `converse`   one wire format each: bodies, event streams, and what it refuses
- `prefix_cache`  what the providers' caches of prompts would bill
"""

from support.services.llm_stub.prefix_cache import PrefixCache
from support.services.llm_stub.script import (
    Failure,
    Reply,
    Tokens,
    bad_key,
    bad_request,
    call,
    code,
    context_exceeded,
    hang_up,
    overloaded,
    quota_used_up,
    rate_limited,
    recorded,
    redacted,
    reply,
    search,
    server_error,
    text,
    thinking,
    unknown_model,
)
from support.services.llm_stub.server import LLMStub, Request

__all__ = [
    "Failure",
    "LLMStub",
    "PrefixCache",
    "Reply",
    "Request",
    "Tokens",
    "bad_key",
    "bad_request",
    "call",
    "code",
    "context_exceeded",
    "hang_up",
    "overloaded",
    "quota_used_up",
    "rate_limited",
    "recorded",
    "redacted",
    "reply",
    "search",
    "server_error",
    "text",
    "thinking",
    "unknown_model",
]
