"""A help desk of a shop: a coordinator and two agents, one for common questions and one for orders, with a model.

It is the swarm `support` of the package's swarms.json. The shop is made up.
"""
