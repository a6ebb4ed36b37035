"""A research desk: a lead, a searcher who reads sources, and a checker who verifies claims, with a model.

It is the swarm `research` of the package's swarms.json. Its library is made up.
"""
