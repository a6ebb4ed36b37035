"""The HTTP API: translates requests into calls of the runtime that it is given."""
