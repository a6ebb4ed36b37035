"""Options of model calls: what litellm takes, what this package sets itself, and hints for names that don't exist.

The names are litellm's own. It takes seconds to import, so those that agents use are listed here; for any other name,
litellm is asked.
"""

import os
import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from mail.core.protocol.calls import ToolFormat
from mail.core.protocol.error_text import did_you_mean
from mail.errors import AgentUnavailable, ConfigurationError
from mail.factories.litellm_parts import load_litellm
from mail.factories.models import is_claude

_HISTORY = "the engine sends the agent's history"
_STORED = "histories are stored by MAIL, not by the provider"
_RETRIES = "retries follow the agent's retry_policy"
_STREAM = "use stream_tokens"
_TOOLS = "use actions=[…], and mcp for the tools of MCP servers"
_CHOICE = "use default_tool_choice"
_MAX_TOKENS = "use max_tokens"
_CACHING = 'prompts are cached by default (docs/caching.md); cache="off" turns that off'


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_ROUTER = {
    "set the limits of a provider or model in [server.models], or as Swarm(model_limits=…)": _words("""
        default_api_key_rpm_limit default_api_key_tpm_limit default_max_parallel_requests itpm max_parallel_requests
        otpm rpm rpm_limit tpm tpm_limit
    """),
    "use fallback": _words("""
        content_policy_fallbacks context_window_fallback_dict context_window_fallbacks default_fallbacks
        enable_weighted_failover fallbacks max_fallbacks
    """),
    _RETRIES: _words("""
        allowed_fails allowed_fails_policy cooldown_time disable_cooldowns max_retries model_group_retry_policy
        num_retries retry_after retry_policy retry_strategy
    """),
    "give the message a budget, or set one for its caller in [server.budgets]": _words("""
        budget_duration max_budget max_end_user_budget provider_budget_config soft_budget
    """),
    "let people approve actions, with needs_approval; if llm is called through litellm's proxy, name its guardrails in "
    "extra_body": _words("guardrail_list guardrails policies"),
    "an agent calls its model and no router: use llm, and fallback for other models": _words("""
        adaptive_router_config adaptive_router_default_model allowed_model_region auto_router_config
        auto_router_config_path auto_router_default_model auto_router_embedding_model caching_groups
        complexity_router_config complexity_router_default_model enable_pre_call_checks enable_tag_filtering
        fastest_response model_group_alias model_list order quality_router_config quality_router_default_model
        routing_groups routing_strategy routing_strategy_args silent_model tag_regex weight
    """),
    "only litellm's proxy does this": _words("""
        allow_client_keepalive_override configurable_clientside_auth_params keepalive_seconds max_file_size_mb
    """),
}
"""Options of litellm's router and proxy, which do nothing in a call or compete with MAIL, by what to use instead."""

RESERVED: Mapping[str, str] = MappingProxyType(
    {
        "model": "use llm",
        "messages": _HISTORY,
        "input": _HISTORY,
        "instructions": "use system",
        "prompt": "use system",
        "system_prompt": "use system",
        "tools": _TOOLS,
        "functions": _TOOLS,
        "tool_choice": _CHOICE,
        "function_call": _CHOICE,
        "stream": _STREAM,
        "stream_options": _STREAM,
        "max_completion_tokens": _MAX_TOKENS,
        "max_output_tokens": _MAX_TOKENS,
        "request_timeout": "use timeout",
        "store": _STORED,
        "previous_response_id": _STORED,
        "conversation": _STORED,
        "background": "an agent waits for the reply",
        "include": "reasoning is always included",
        "n": "an agent takes one reply",
        "enable_prompt_caching": _CACHING,
        "cache_control_injection_points": _CACHING,
        **{name: instead for instead, names in _ROUTER.items() for name in names},
    }
)
"""Arguments of litellm that are set here or do nothing, with what to do instead."""

_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")

CHAT = _words("""
    additional_drop_params audio context_management frequency_penalty include_server_side_tool_invocations logit_bias
    logprobs max_tokens metadata modalities parallel_tool_calls prediction presence_penalty prompt_cache_key
    prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop temperature
    thinking top_logprobs top_p user verbosity web_search_options
""")
"""The options of Chat Completions."""

RESPONSES = _words("""
    context_management max_tool_calls metadata parallel_tool_calls partial_images prompt_cache_key
    prompt_cache_options prompt_cache_retention reasoning safety_identifier service_tier temperature text top_logprobs
    top_p truncation user verbosity
""")
"""The options of Responses, and `verbosity`, which becomes a part of `text`."""

OF_PROVIDERS = _words("""
    adapter_id adapter_source bad_words best_of candidate_count chat_history connectors
    context_length_exceeded_behavior conversation_id debug decoder_input_details decoding_method details do_sample
    documents echo end_sequence filter_kb_content_by_query_metadata generation_id include_functions_info
    include_guardrails_info include_retrieval_info include_stop_sequences instruction_override k kb_filters
    length_no_input length_penalty max_length max_new_tokens max_tokens_to_sample min_new_tokens min_tokens mirostat
    mirostat_eta mirostat_tau model_version moderations num_beams num_ctx num_gpu num_gqa num_predict
    num_return_sequences num_thread p preamble profanity_check prompt_truncate_len prompt_truncation provide_citations
    random_seed remove_end_sequence remove_input repeat_last_n repeat_penalty repetition_penalty response_id
    response_mime_type response_schema retrieval_method return_full_text return_options safe_prompt
    search_queries_only stop_sequences suffix supports_vertex_params template tfs_z tool_results top_k truncate
    truncate_input_tokens typical_p watermark
""")
"""The options that some providers add to Chat Completions."""

DESTINATION = _words("api_base base_url api_key timeout extra_headers extra_body extra_query api_version")
"""The options by which calls go elsewhere, or with other credentials, whatever the provider."""

CONNECTION = DESTINATION | _words("""
    allowed_openai_params assistant_continue_message azure base_model bos_token cache_key caching client_id
    client_secret custom_llm_provider custom_prompt_dict data_residency deployment_id
    disable_add_transform_inline_image_block drop_params enable_json_schema_validation
    ensure_alternating_roles eos_token final_prompt_value force_timeout headers hf_model_name
    litellm_credential_name litellm_disabled_callbacks litellm_metadata litellm_request_debug litellm_session_id
    litellm_system_prompt litellm_trace_id log_client_error_tracebacks max_agentic_loops
    merge_reasoning_content_in_choices mock_response mock_timeout model_config model_info organization
    preset_cache_key prompt_environment prompt_id prompt_label prompt_variables prompt_version
    provider_affinity_header provider_specific_header region_name roles rust search_tool_name ssl_verify
    stream_chunk_size stream_response stream_timeout stream_timeout_by_service_tier supports_system_message tags
    tenant_id text_format timeout_by_service_tier ttl turn_off_message_logging use_chat_completions_api
    use_litellm_proxy use_xai_oauth user_continue_message vector_store_id verbose
""")
"""These, and the others that say how a call is made."""

_OF_SERVICES = re.compile(
    "(anthropic|arize|aws|azure|bedrock|dd|fireworks|gcs|humanloop|langfuse|langsmith|milvus|newrelic|openai|posthog|s3|signoz"
    "|valkey|vertex|wandb|watsonx|weave)_[a-z]"
)
"""The beginnings of settings of a provider, a cloud or a tracing service, such as its credentials."""


def is_connection(name: str) -> bool:
    """Return whether an option says where calls go, with which credentials, and how."""
    return name in CONNECTION or _OF_SERVICES.match(name) is not None


# ------------------------------------------------------------------------------------------------ checking


def check_options(
    where: str,
    options: Mapping[str, Any],
    *,
    llm: str,
    tool_format: ToolFormat,
    parameters: Iterable[str] = (),
) -> None:
    """Check an agent's options.

    Args:
        where: the agent, for messages.
        parameters: names that the agent takes besides options, for hints.

    Raises ConfigurationError for an unknown name, one that is set here, and one of the other API.
    """
    api = api_of(llm, tool_format)
    for name, value in options.items():
        if name in RESERVED:
            raise ConfigurationError(f"{where}: {name!r} is not an option: {RESERVED[name]}")
        if name == "timeout" and (
            isinstance(value, bool) or not isinstance(value, int | float) or value <= 0
        ):
            raise ConfigurationError(f"{where}: timeout must be a number of seconds")
        if _takes(api, name):
            continue
        if _is_known(name):
            other = "responses" if api == "completions" else "completions"
            raise ConfigurationError(
                f"{where}: {name!r} is an option of the other API; set tool_format to {other!r}"
                + (", which is not used for Claude" if is_claude(llm) else "")
            )
        if name in _openai_parameters(llm):
            continue
        hint = did_you_mean(name, {*parameters, *CHAT, *RESPONSES, *DESTINATION})
        hint = hint or "; put provider-specific options in extra_body"
        raise ConfigurationError(f"{where}: {name!r} is not an option of litellm{hint}")


def _takes(api: ToolFormat, name: str) -> bool:
    """Return whether calls of an API take an option, as far as the lists know it."""
    return is_connection(name) or name in (CHAT | OF_PROVIDERS if api == "completions" else RESPONSES)


def _is_known(name: str) -> bool:
    return _takes("completions", name) or _takes("responses", name)


def _openai_parameters(llm: str) -> Collection[str]:
    """Return OpenAI's parameters that the installed litellm takes for a model; it may be newer than the list."""
    try:
        return load_litellm().get_supported_openai_params(model=llm) or ()
    except AgentUnavailable:
        return ()


def api_of(llm: str, tool_format: ToolFormat) -> ToolFormat:
    """Return the API by which a model is called: Chat Completions for Claude, whatever the `tool_format`."""
    return "completions" if is_claude(llm) else tool_format


def needs_chat(options: Iterable[str]) -> bool:
    """Return whether only calls of Chat Completions take one of the options."""
    return any(_is_known(name) and not _takes("responses", name) for name in options)


def common_options(extra: Mapping[str, Any], llm: str, tool_format: ToolFormat) -> dict[str, Any]:
    """Return the options among parameters that may also be a subclass's own: those that all providers know."""
    known = (CHAT if api_of(llm, tool_format) == "completions" else RESPONSES) | DESTINATION
    return {name: value for name, value in extra.items() if name in known}


def options_of_fallback(
    options: Mapping[str, Any], llm: str, other: str, tool_format: ToolFormat, own: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the options of a call of the model `other` in place of `llm`, which has options of its `own`.

    Those that only the other API knows are left out. So are, at another provider, those that say where calls go, and
    with which credentials: they would send one provider's key to another.
    """
    api, is_same = api_of(other, tool_format), llm.partition("/")[0] == other.partition("/")[0]
    kept = {
        name: value
        for name, value in options.items()
        if name == "timeout" or (is_same if is_connection(name) or not _is_known(name) else _takes(api, name))
    }
    return {**kept, **own}


def choose_connection(options: Mapping[str, Any]) -> list[str]:
    """Return the options that say where calls go, with which credentials, and how, also those of other models."""
    fallback = options.get("fallback")
    by_cause = fallback.values() if isinstance(fallback, Mapping) and "llm" not in fallback else [fallback]
    entries = [entry for each in by_cause for entry in (each if isinstance(each, list) else [each])]
    names = {*options, *(name for entry in entries if isinstance(entry, Mapping) for name in entry)}
    return sorted(filter(is_connection, names))


def name_variables(options: Mapping[str, Any]) -> list[str]:
    """Return the options that refer to environment variables by `${NAME}`, also inside mappings and lists."""

    def refers(value: Any) -> bool:
        match value:
            case str():
                return _REFERENCE.fullmatch(value) is not None
            case Mapping():
                return any(map(refers, value.values()))
            case list() | tuple():
                return any(map(refers, value))
            case _:
                return False

    return sorted(name for name, value in options.items() if refers(value))


# ------------------------------------------------------------------------------------------------ applying


def resolve_options(where: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options with the values of environment variables in place of references to them, `${NAME}`.

    Raises AgentUnavailable for a variable that is not set.
    """

    def resolve(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: resolve(f"{name}.{key}", item) for key, item in value.items()}
        found = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if found is None:
            return value
        if not os.environ.get(found[1]):
            raise AgentUnavailable(f"{where}: its {name} is {value}, but this variable is not set")
        return os.environ[found[1]]

    return {name: resolve(name, value) for name, value in options.items()}


def merge_options(arguments: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with the agent's options, which take precedence; headers are combined.

    The timeout stays: it is what the turn has left of the agent's.
    """
    headers = {**arguments.get("extra_headers", {}), **(options.get("extra_headers") or {})}
    names = {"base_url": "api_base"}
    merged = {
        **arguments,
        **{names.get(name, name): value for name, value in options.items() if name != "timeout"},
    }
    return {**merged, "extra_headers": headers} if headers else merged
