"""What travels: addresses, messages, tool calls and the text that agents read. Values and pure functions."""
