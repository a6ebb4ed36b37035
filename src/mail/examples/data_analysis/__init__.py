"""A desk for data: a lead, an agent that reads tables, a statistician, and a writer, with a model.

It is the swarm `data_analysis` of the package's swarms.json. Its tables are made up.
"""
