"""A research desk with a small made-up library, and a model: the swarm `research` of the package's swarms.json."""
