"""What travels: addresses, messages, tool calls and the text that agents read. Values and pure functions."""

PROTOCOL_VERSION = "1.3"
"""The version of the MAIL protocol that this package implements."""
