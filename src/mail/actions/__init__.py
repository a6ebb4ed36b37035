"""Actions from Python functions: their schemas, and the wrappers that the engine runs.

signatures  the schema of an action from the signature of its function
functions   checks arguments, runs the function, and turns its result into text
"""
