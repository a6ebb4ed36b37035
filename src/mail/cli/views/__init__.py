"""Text views of tasks, threads, usage and dead letters for people."""
