"""Documented helpers for programs built on MAIL.

Names are imported on first use: reading an import string needs no web framework.
"""

from typing import TYPE_CHECKING

from mail.lazy import lazy_exports

if TYPE_CHECKING:
    from mail.auth.fastapi import (
        caller_is_admin,
        caller_is_admin_or_user,
        caller_is_agent,
        caller_is_user,
        extract_token_info,
        generate_agent_id,
        generate_user_id,
        get_token_info,
        login,
    )
    from mail.utils.logger import get_loggers, init_logger
    from mail.utils.parsing import read_python_string, read_url_string, target_address_is_interswarm
    from mail.utils.store import get_langmem_store

__all__ = [
    "caller_is_admin",
    "caller_is_admin_or_user",
    "caller_is_agent",
    "caller_is_user",
    "extract_token_info",
    "generate_agent_id",
    "generate_user_id",
    "get_langmem_store",
    "get_loggers",
    "get_token_info",
    "init_logger",
    "login",
    "read_python_string",
    "read_url_string",
    "target_address_is_interswarm",
]

_OTHER_HOMES = {
    "get_langmem_store": "mail.utils.store",
    "get_loggers": "mail.utils.logger",
    "init_logger": "mail.utils.logger",
    "read_python_string": "mail.utils.parsing",
    "read_url_string": "mail.utils.parsing",
    "target_address_is_interswarm": "mail.utils.parsing",
}

__getattr__, __dir__ = lazy_exports(
    __name__, {name: _OTHER_HOMES.get(name, "mail.auth.fastapi") for name in __all__}
)
