"""MAIL over HTTP: translates requests for the runtime that it is handed, and nothing else."""
