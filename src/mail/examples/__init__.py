"""Examples to run, read and copy: a swarm that needs no language model, and the actions that it uses."""
