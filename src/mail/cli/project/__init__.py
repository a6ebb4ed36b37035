"""Users' projects: the files that `mail init` creates, and what `mail build` collects of them for AWS."""
