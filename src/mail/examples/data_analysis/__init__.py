"""A desk for data, with a model: the swarm `data-analysis` of the package's swarms.json."""
