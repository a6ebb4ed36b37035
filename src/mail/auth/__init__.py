"""Authentication: API keys, tokens, and the external authentication service."""
