"""`POST /interswarm/*`: mail from other swarms, and messages from users to agents of other swarms.

The function's own URL, for swarms that sign their requests, also serves `/` and `/health`.
"""

from handlers.http_api import serve
from mail.http.routes import health, interswarm

handler = serve(interswarm.router, health.router)
