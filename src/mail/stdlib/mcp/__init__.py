"""Actions that use servers of the Model Context Protocol. They need `pip install "mail[mcp]"`."""
