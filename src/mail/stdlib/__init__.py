"""The catalogue of ready-made actions, to be imported by swarms.json or passed on by Python code.

Each area is a package with an `actions` module: `http`, `fs`, `interswarm`, `mcp` and `agentmail`. The actions of all
but `agentmail` can also be imported from here. See docs/stdlib/README.md. Environment variables set what agents may
do; they are read at every call, and no state is kept between calls.
"""

from typing import TYPE_CHECKING

from mail.startup import homes_of, lazy_exports

if TYPE_CHECKING:
    from mail.stdlib.fs import *  # noqa: F403
    from mail.stdlib.http import *  # noqa: F403
    from mail.stdlib.interswarm import *  # noqa: F403
    from mail.stdlib.mcp import *  # noqa: F403

__getattr__, __dir__ = lazy_exports(
    __name__,
    homes_of(
        {
            "mail.stdlib.fs": "create_directory delete_file find_files list_directory read_directory read_file "
            "search_files write_file",
            "mail.stdlib.http": "http_delete http_get http_head http_options http_patch http_post http_put "
            "http_request",
            "mail.stdlib.interswarm": "get_swarm_health get_swarm_registry list_known_swarms ping_swarm",
            "mail.stdlib.mcp": "mcp_call_tool mcp_get_prompt mcp_list_prompts mcp_list_resources mcp_list_servers "
            "mcp_list_tools mcp_ping mcp_read_resource",
        }
    ),
)
