"""What MAIL costs, as ratios to a floor measured in the same run: `python -m bench`.

    floor     plain sqlite3, one transaction of six statements per turn: what durability alone costs
    engine    CPU per turn with agents that take no time of their own
    counts    store calls, SQL statements and bytes per turn: exact, and checked by a test
    http      latency and CPU per request, beside an empty FastAPI route that commits one such transaction
    imports   what a fresh interpreter pays before it does anything, and a server before its first answer
    earlier-tasks   one more task of a caller who has had 20,000, on every store; not in the quick modes
    large     memory, and the delay of `GET /health`, while a user has large tasks; not in the quick modes
    aws       AWS calls, capacity units and bytes per turn on ministack, and their price; not in the quick modes

Times are CPU times (user and system, all threads), as the machine may be busy with something else; each
is the median of several samples taken in turns with the floor's. Each row has what the figure was before, from
bench/results/before.json, which `--keep` writes. `--peers` compares with other durable engines (`bench.peers`).
"""
