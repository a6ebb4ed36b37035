"""Examples to run, read and copy: swarms without a language model, and agents with one."""
