"""Removing credentials from text that is shown or logged."""


def hide_credentials(url: str) -> str:
    """Return the URL of a database without user, password and options."""
    scheme, _, rest = url.partition("://")
    user, _, address = rest.rpartition("@")
    if "?" in user or "#" in user:  # the password is among the options, or not percent-encoded
        return f"{scheme}://…"
    return f"{scheme}://{address.partition('?')[0]}"
