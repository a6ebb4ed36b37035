"""`POST /interswarm/*`: mail from other swarms, and messages from users to agents of other swarms.

The function's own URL, for swarms that sign their requests, also serves `/`, `/health` and the files of mail to them.
"""

from handlers.http_api import serve
from mail.http.routes import health, interswarm, shared_files

handler = serve(interswarm.router, health.router, shared_files.router)
