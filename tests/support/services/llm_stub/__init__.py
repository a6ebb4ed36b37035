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

from support.services.llm_stub.prefix_cache import PrefixCache as PrefixCache
from support.services.llm_stub.script import Failure as Failure
from support.services.llm_stub.script import Reply as Reply
from support.services.llm_stub.script import Tokens as Tokens
from support.services.llm_stub.script import bad_key as bad_key
from support.services.llm_stub.script import bad_request as bad_request
from support.services.llm_stub.script import call as call
from support.services.llm_stub.script import code as code
from support.services.llm_stub.script import context_exceeded as context_exceeded
from support.services.llm_stub.script import hang_up as hang_up
from support.services.llm_stub.script import overloaded as overloaded
from support.services.llm_stub.script import quota_used_up as quota_used_up
from support.services.llm_stub.script import rate_limited as rate_limited
from support.services.llm_stub.script import recorded as recorded
from support.services.llm_stub.script import redacted as redacted
from support.services.llm_stub.script import reply as reply
from support.services.llm_stub.script import search as search
from support.services.llm_stub.script import server_error as server_error
from support.services.llm_stub.script import text as text
from support.services.llm_stub.script import thinking as thinking
from support.services.llm_stub.script import unknown_model as unknown_model
from support.services.llm_stub.server import LLMStub as LLMStub
from support.services.llm_stub.server import Request as Request
