"""The catalogue: ready-made actions, which swarms.json imports and Python code passes on.

Each area is a package whose `actions` module holds what `@action` has made: `http`, `fs`, `interswarm` and `mcp`.
docs/stdlib/README.md describes them. An agent may only do what its operator has set up by environment
variables; they are read at every call, and nothing is kept between calls.
"""
