"""The catalogue of ready-made actions, to be imported by swarms.json or passed on by Python code.

Each area is a package with an `actions` module: `http`, `fs`, `interswarm`, `mcp` and `agentmail`. See
docs/stdlib/README.md. Environment variables set what agents may do; they are read at every call, and no state is kept
between calls.
"""
