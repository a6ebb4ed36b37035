"""Faults for crash tests and chaos: one wrapper per technology, each of which asks a plan at every point that it passes.

points      the plans: what happens at a point is nothing, a delay, an error, or death; and a wrapper for ports of the
            engine, such as a store or a queue: a point before and after each call
sqlite      a connection to SQLite: a point before each statement
postgres    a PostgreSQL database: a point before and after each round trip
dynamodb    a client of DynamoDB: a point before and after each request; and faults of the network below it
"""
