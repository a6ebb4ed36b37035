"""Documented helpers for programs built on MAIL.

Names are imported on first use: reading an import string needs no web framework.
"""

from typing import TYPE_CHECKING

from mail.startup import homes_of, lazy_exports

if TYPE_CHECKING:
    from mail.auth.fastapi import *  # noqa: F403
    from mail.utils.logger import *  # noqa: F403
    from mail.utils.parsing import *  # noqa: F403
    from mail.utils.store import *  # noqa: F403

_HOMES = homes_of(
    {
        "mail.auth.fastapi": "caller_is_admin caller_is_admin_or_user caller_is_agent caller_is_user "
        "extract_token_info generate_agent_id generate_user_id get_token_info login",
        "mail.utils.logger": "get_loggers init_logger",
        "mail.utils.parsing": "read_python_string read_url_string target_address_is_interswarm",
        "mail.utils.store": "get_langmem_store",
    }
)

__all__ = list(_HOMES)

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
