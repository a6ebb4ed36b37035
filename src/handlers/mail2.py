"""MAIL 2.0, below `/v2`."""

from importlib import import_module

from handlers.http_api import serve
from mail.http.routes import mail2

import_module("mail.http.mail2.app")  # which its first request imports in other processes
handler = serve(mail2.router)
