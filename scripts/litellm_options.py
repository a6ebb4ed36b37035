"""Write the names of litellm's options to src/mail/factories/options.json; run it after an update of litellm."""

import inspect
import json
import re
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from mail.factories.models import load_litellm
from mail.factories.options import RESERVED

TARGET = Path(__file__).resolve().parent.parent / "src" / "mail" / "factories" / "options.json"

_INTERNAL = re.compile(
    r"_|self$|a?(completion|text_completion|embedding|img_generation)$|allm_|async_|litellm_(call|logging|trusted)"
    r"|use_(client|in_pass)|(model_list|shared_session|client|complete_response|proxy_server_request|secret_fields)$"
    r"|.*(-|cost|router|call_id|_fn$)"
)
"""Arguments that litellm passes to itself, prices, and settings of its router."""

_CONNECTION = (
    "extra_headers",
    "extra_body",
    "extra_query",
    "api_version",
    "custom_llm_provider",
    "drop_params",
)
"""Arguments of every call that litellm lists among those of Chat Completions, or nowhere."""


def read_names(litellm: Any) -> dict[str, list[str]]:
    """Return the names of all options that the installed litellm knows, by what they belong to.

    `connection` has those that choose the destination, the credentials and the rest of how a call is made.
    """
    constants, params = import_module("litellm.constants"), import_module("litellm.types.utils")
    api, router = import_module("litellm.types.llms.openai"), import_module("litellm.types.router")
    managers = import_module("litellm.utils").ProviderConfigManager
    chat = set(constants.DEFAULT_CHAT_COMPLETION_PARAM_VALUES)
    responses = set(api.ResponsesAPIOptionalRequestParams.__annotations__)
    calls = (litellm.acompletion, litellm.aresponses)
    arguments = {name for call in calls for name in inspect.signature(call).parameters if name != "kwargs"}
    known = {*params.all_litellm_params, *router.GenericLiteLLMParams.model_fields}
    general = {*known, *_CONNECTION} - responses
    chat -= general
    connection = general | (arguments - chat - responses)
    provider: set[str] = set()
    for each in params.LlmProviders:
        config: Any = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # pydantic's, of litellm's types
                config = managers.get_provider_chat_config(model="", provider=each)
        except (ValueError, TypeError, AttributeError, LookupError, ImportError):
            continue
        for kind in type(config).__mro__:
            provider |= {name for name in inspect.get_annotations(kind) if name == name.lower()}
    names = {
        "chat": chat,
        "responses": responses,
        "connection": connection,
        "provider": provider - chat - responses - connection,
    }
    return {group: sorted(name for name in found if not _is_left_out(name)) for group, found in names.items()}


def _is_left_out(name: str) -> bool:
    return name in RESERVED or _INTERNAL.match(name) is not None


if __name__ == "__main__":
    TARGET.write_text(json.dumps(read_names(load_litellm()), indent=1) + "\n", encoding="utf-8")
