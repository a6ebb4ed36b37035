"""A help desk of a made-up shop, with a model: the swarm `support` of the package's swarms.json."""
