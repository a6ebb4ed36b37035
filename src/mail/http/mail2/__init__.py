"""The server of MAIL 2.0, an application of its own below `/v2`, with the statuses and errors of that protocol.

Only `mail.http.routes.mail2` opens this package, when the first request comes.
"""
